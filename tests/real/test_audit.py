"""A pod is moved on a real API server; who moved it, when and why is known when its Events and its job are gone, and
after a restart of koord-manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.cli.main import main
from tests.real.control_plane import ControlPlane
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.migration_programs import cluster_of_moving_pods, created, deployment, descheduler, is_ready, items
from tests.real.polling import until
from tests.real.programs import RealPrograms

_JOBS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
_PODS: Final = "/api/v1/namespaces/shop/pods"
_EVENTS: Final = "/api/v1/namespaces/shop/events"


@contextmanager
def keeping(plane: ControlPlane, folder: Path) -> Iterator[ManagerProcess]:
    """A koord-manager whose audit is in a directory."""
    flags = [
        f"--audit-directory={folder / 'kept'}",
        "--enable-leader-election=false",
        "--feature-gates=WebhookFramework=false",
    ]
    with manager(OURS, plane.kubeconfig, folder / "manager", arguments=flags) as running:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log_tail()


def move_a_pod(plane: ControlPlane) -> str:
    """The name of the pod that was moved."""
    created(plane, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    created(plane, "/apis/apps/v1/namespaces/shop/deployments", deployment(3))
    until(lambda: sum(map(is_ready, items(plane, _PODS))) == 3, 60, "pods to be ready")
    pod: str = min(each["metadata"]["name"] for each in items(plane, _PODS))
    spec = {"podRef": {"namespace": "shop", "name": pod}, "mode": "ReservationFirst", "ttl": "60s"}
    annotations = {"koordinator.sh/evict-trigger": "user"}
    job = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "spec": spec}
    created(plane, _JOBS, {**job, "metadata": {"name": "move", "annotations": annotations}})
    until(lambda: plane.request("GET", f"{_JOBS}/move")[1].get("status", {}).get("phase") == "Succeeded", 60, "end")
    return pod


def test_what_was_moved_is_known_for_longer_than_its_events(
    real_programs: RealPrograms, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers of pytest-xdist have it, and tables are wrapped to it.
    monkeypatch.delenv("COLUMNS", raising=False)
    with cluster_of_moving_pods(real_programs, tmp_path, our_scheduler=True) as plane:
        cluster = f"--kubeconfig={plane.kubeconfig}"

        def asked(running: ManagerProcess, *words: str) -> tuple[int, str, str]:
            status = main([*words, cluster, f"--manager=http://127.0.0.1:{running.metrics_port}"])
            printed = capsys.readouterr()
            return status, printed.out, printed.err

        def kept(running: ManagerProcess) -> dict[str, dict[str, Any]]:
            _, lines, _ = asked(running, "audit", "--pod", f"shop/{pod}", "-o", "jsonl")
            records = [json.loads(line) for line in lines.splitlines()]
            return {each["action"]: each for each in records}

        with keeping(plane, tmp_path) as running:
            with descheduler(real_programs, plane.kubeconfig, tmp_path, {}, ours=True):
                pod = move_a_pod(plane)
                until(lambda: kept(running).keys() == {"evicted", "moved"}, 30, "records")
            first = kept(running)
        for path in (_EVENTS, f"{_JOBS}/move"):
            assert plane.request("DELETE", path)[0] == 200
        with keeping(plane, tmp_path) as running:
            # Until it works as the leader there is no answer.
            until(lambda: kept(running), 30, "records after the restart")
            assert kept(running) == first
            status, _, absent = asked(running, "explain", "pod", f"shop/{pod}")
            successor = first["moved"]["target"]
            _, explained, _ = asked(running, "explain", "pod", successor, "-o", "json")
            _, table, _ = asked(running, "audit", "--node", first["evicted"]["node"])
    evicted, moved = first["evicted"], first["moved"]
    assert (evicted["program"], evicted["actor"]) == ("koord-descheduler", "PodMigrationJob/move")
    assert (moved["outcome"], moved["cause"]["code"]) == ("done", "user")
    assert moved["pods"] == [successor]
    assert status == 3
    assert f"koord-descheduler has moved it: {successor} is in its place" in absent
    told = [each["what"] for each in json.loads(explained)["timeline"] if each["program"] == "koord-descheduler"]
    assert told == [f"has moved shop/{pod}, in whose place it is"]
    assert f"pod/shop/{pod}" in table
