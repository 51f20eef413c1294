"""koord-manager among thousands of clients without credentials: every pod that a real API server creates is changed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manager.webhook.installed import MUTATING
from tests.manager.webhook.reviews import review
from tests.real.control_plane import ControlPlane
from tests.real.hostile_crowd import Victim, hostile_crowd
from tests.real.manager_cluster import PROFILES, create, gates, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms
from tests.real.test_manager_webhooks import batch_pod
from tests.real_world.hostile_clients import HOSTILE_CLIENTS

REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PODS = "/api/v1/namespaces/default/pods"
COUNT = 120
REVIEW = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(review()), review())
METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
OTHERS = {client.name: 30 for client in HOSTILE_CLIENTS}
A_FEW = 5
"""Connections of the API server, which it keeps."""
MOST_GROWTH = 160 << 10
"""KiB: some 2,000 TLS connections, beside garbage that is collected late."""


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this module's own: its webhooks stand in the way of others' tests."""
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("control-plane")) as plane:
        prepare(plane)
        profile = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": "batch"},
            "spec": {"selector": {"matchLabels": {"kind": "batch"}}, "qosClass": "LS"},
        }
        create(plane, PROFILES, profile)
        yield plane


def ignore_failures(cluster: ControlPlane) -> None:
    """As the Helm chart has it: a webhook that does not respond is skipped."""
    configuration = cluster.request("GET", f"{REGISTRATION}/{MUTATING}")[1]
    for webhook in configuration["webhooks"]:
        webhook["failurePolicy"] = "Ignore"
    status, reply = cluster.request("PUT", f"{REGISTRATION}/{MUTATING}", configuration)
    assert status == 200, reply


def memory(running: ManagerProcess) -> int:
    """KiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{running.process.pid}/status").read_text())
    assert found is not None
    return int(found[1])


def descriptors(running: ManagerProcess) -> int:
    return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))


def create_pods(cluster: ControlPlane, running: ManagerProcess, name: str) -> float:
    """The median of the seconds that one took. Each is changed, and the program is ready all the while."""
    seconds, unchanged, not_ready = [], 0, 0
    for number in range(COUNT):
        pod = batch_pod()
        pod["metadata"]["name"] = f"{name}-{number}"
        started = time.perf_counter()
        status, created = cluster.request("POST", PODS, pod)
        seconds.append(time.perf_counter() - started)
        assert status == 201, created
        unchanged += "koordinator.sh/qosClass" not in created["metadata"]["labels"]
        if number % 10 == 0:
            not_ready += not running.ready()
    assert (unchanged, not_ready) == (0, 0), f"of {COUNT}"
    return sorted(seconds)[COUNT // 2]


def test_every_pod_is_changed_among_hostile_clients(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    ignore_failures(cluster)
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=("--enable-leader-election=false", gates())) as running:
        running.wait_ready()
        memory_before, descriptors_before = memory(running), descriptors(running)
        with hostile_crowd(
            Victim(running.webhook_port, REVIEW, True, {**OTHERS, "idle": 2300}),
            Victim(running.health_port, READY, False, {**OTHERS, "half-header": 500}),
            Victim(running.metrics_port, METRICS, False, OTHERS),
        ):
            # The API server has no connection yet: it must get one now.
            crowded = create_pods(cluster, running, "crowded")
            growth = memory(running) - memory_before
            assert "koordinator_server_closed_connections_total" in running.metrics()
        running.wait(lambda: descriptors(running) <= descriptors_before + A_FEW, "descriptors that are free again")
        alone = create_pods(cluster, running, "alone")
        print(f"a pod: {alone * 1e3:.1f} ms alone, {crowded * 1e3:.1f} ms in the crowd; {growth} KiB")  # noqa: T201
        assert growth < MOST_GROWTH
        assert running.stop() == 0
