"""A gang on a real API server that moves whole: for a PodMigrationJob of one member, for the drain of a node, and when
another client evicts a member.

Our koord-scheduler finds the places, and our koord-descheduler does the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane
from tests.real.migration_programs import (
    budget,
    cluster_of_moving_pods,
    created,
    deployment,
    descheduler,
    is_ready,
    items,
)
from tests.real.polling import until
from tests.real.programs import RealPrograms

_VERSION = "scheduling.koordinator.sh/v1alpha1"
_GROUP = f"/apis/{_VERSION}"
_JOBS = f"{_GROUP}/podmigrationjobs"
_DRAINS = f"{_GROUP}/drainnodes"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_MEMBERS = 3
_ARGS = {
    "gangPolicy": "Whole",
    "evictDisruptedGangs": True,
    "evictQPS": 100,
    "evictBurst": 100,
    "objectLimiters": {"workload": {"duration": "0s"}},
}


@pytest.fixture
def plane(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    """A gang of three runs, and koord-descheduler moves gangs whole."""
    with cluster_of_moving_pods(real_programs, tmp_path, our_scheduler=True) as plane:
        created(plane, "/apis/apps/v1/namespaces/default/deployments", _gang())
        until(lambda: sum(map(is_ready, _pods(plane))) == _MEMBERS, 60, "the gang to run")
        flags = ["--feature-gates=NodeDrain=true"]
        with descheduler(real_programs, plane.kubeconfig, tmp_path, _ARGS, ours=True, flags=flags):
            yield plane


def test_a_gang_moves_when_its_budget_lets_all_members_go(plane: ControlPlane) -> None:
    before = _uids(plane)
    created(plane, _BUDGETS, budget(maxUnavailable=2))
    until(lambda: _allowed(plane) == 2, 30, "the budget to be counted")
    created(plane, _JOBS, _job(_pods(plane)[0]["metadata"]["name"]))
    until(lambda: _reasons(plane) == ["WaitForGang"] * _MEMBERS, 60, "all members to have places")
    assert _uids(plane) == before
    plane.request("PATCH", f"{_BUDGETS}/web", {"spec": {"maxUnavailable": _MEMBERS}})
    until(lambda: _phases(plane) == ["Succeeded"] * _MEMBERS, 90, "all members to have moved")
    assert not _uids(plane) & before


def test_the_drain_of_a_node_takes_the_gang_along(plane: ControlPlane) -> None:
    before = _uids(plane)
    node = _pods(plane)[0]["spec"]["nodeName"]
    drain = {"apiVersion": _VERSION, "kind": "DrainNode", "metadata": {"name": "drain"}, "spec": {"nodeName": node}}
    created(plane, _DRAINS, drain)
    until(lambda: _drain_phase(plane) == "Complete", 120, "the drain to be complete")
    until(lambda: not _uids(plane) & before, 60, "all members to have moved")
    assert node not in {pod["spec"].get("nodeName") for pod in _pods(plane)}


def test_what_an_eviction_leaves_of_a_gang_goes_too(plane: ControlPlane) -> None:
    created(plane, _JOBS, _job("nobody"))
    until(lambda: items(plane, _JOBS)[0].get("status", {}).get("phase") == "Failed", 60, "the descheduler to work")
    # A replacement that got a node at once would make the gang whole again.
    _cordon(plane, is_cordoned=True)
    before, name = _uids(plane), _pods(plane)[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    created(plane, f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)
    until(lambda: not _uids(plane) & before, 60, "all members to have left")
    _cordon(plane, is_cordoned=False)
    until(lambda: sum(map(is_ready, _pods(plane))) == _MEMBERS, 60, "the gang to run again")
    events = items(plane, "/apis/events.k8s.io/v1/namespaces/default/events")
    evicted = {each["regarding"]["uid"] for each in events if each["reason"] == "Descheduled"}
    assert (evicted <= before, len(evicted)) == (True, _MEMBERS - 1)


def _gang() -> Document:
    found = deployment(_MEMBERS)
    declared = {"name": "training", "min-available": str(_MEMBERS)}
    annotations = {f"gang.scheduling.koordinator.sh/{key}": value for key, value in declared.items()}
    found["spec"]["template"]["metadata"]["annotations"] = annotations
    return found


def _cordon(plane: ControlPlane, *, is_cordoned: bool) -> None:
    for node in items(plane, "/api/v1/nodes"):
        plane.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": is_cordoned}})


def _job(pod: str) -> Document:
    spec = {"podRef": {"namespace": "default", "name": pod}, "mode": "ReservationFirst", "ttl": "3m0s"}
    return {"apiVersion": _VERSION, "kind": "PodMigrationJob", "metadata": {"name": "move"}, "spec": spec}


def _pods(plane: ControlPlane) -> list[Document]:
    return items(plane, "/api/v1/namespaces/default/pods")


def _uids(plane: ControlPlane) -> set[str]:
    return {pod["metadata"]["uid"] for pod in _pods(plane)}


def _allowed(plane: ControlPlane) -> int:
    allowed: int = plane.request("GET", f"{_BUDGETS}/web")[1].get("status", {}).get("disruptionsAllowed", 0)
    return allowed


def _reasons(plane: ControlPlane) -> list[str]:
    return [job.get("status", {}).get("reason", "") for job in items(plane, _JOBS)]


def _phases(plane: ControlPlane) -> list[str]:
    found = items(plane, _JOBS)
    phases = [job.get("status", {}).get("phase", "") for job in found]
    assert "Failed" not in phases, json.dumps([job["status"] for job in found])
    return phases


def _drain_phase(plane: ControlPlane) -> str:
    phase: str = plane.request("GET", f"{_DRAINS}/drain")[1].get("status", {}).get("phase", "")
    return phase
