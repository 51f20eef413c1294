"""What is left of a gang that others have evicted members of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_GANG = "default/training"
_BEFORE, _AT, _LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"
_EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastTransitionTime": _AT}
_LOCAL = "pod has local storage and descheduler is not configured with evictLocalStoragePods"


class Bench:
    """Members of a gang of which three are needed."""

    def __init__(self, members: int = 3, **args: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, 20)
        for number in range(members):
            self.member(number)
        given = {"gangPolicy": "Whole", "evictDisruptedGangs": True, "evictBurst": 99, **args}
        self.plugin = self.cluster.start(convert(given, MigrationControllerArgs).completed("args"))

    def member(self, number: int, created: str = _BEFORE) -> None:
        document = scene.member(self.cluster, f"web-{number}", f"node-{number}")
        document["metadata"]["creationTimestamp"] = created
        self.cluster.put(PODS, document)

    def lose(self, name: str, *conditions: dict[str, str]) -> None:
        """The pod is being deleted."""
        document = self.cluster.documents(PODS)[f"default/{name}"]
        document["metadata"]["deletionTimestamp"] = _AT
        document["status"]["conditions"] = list(conditions)
        self.cluster.put(PODS, document)

    def reconcile(self) -> float | None:
        assert self.plugin.disrupted_gangs is not None
        self.disrupted()
        return asyncio.run(self.plugin.disrupted_gangs.reconcile(_GANG))

    def disrupted(self) -> list[str]:
        """What would be done."""
        assert self.plugin.disrupted_gangs is not None
        self.cluster.deliver()
        return self.plugin.disrupted_gangs.intentions()

    @property
    def evicted(self) -> list[str]:
        return sorted(path.split("/")[-2] for _, path in self.cluster.writes if path.endswith("/eviction"))


def test_what_is_left_is_too_little_and_goes() -> None:
    bench = Bench()
    bench.lose("web-0", _EVICTED)
    assert bench.disrupted() == [f"gang {_GANG}, which has lost members: evict what is left"]
    assert bench.reconcile() is not None
    assert bench.evicted == ["web-1", "web-2"]
    (record, _) = bench.cluster.recorded.records
    assert (record.actor, record.cause.code) == (f"Gang/{_GANG}", "evictDisruptedGangs")


def test_a_gang_with_members_enough_stays() -> None:
    bench = Bench(4)
    bench.lose("web-0", _EVICTED)
    assert bench.reconcile() is None
    assert bench.evicted == []


def test_what_its_owner_deletes_is_no_disruption() -> None:
    bench = Bench()
    bench.lose("web-0")
    assert bench.disrupted() == []


def test_a_member_that_must_not_be_evicted_keeps_the_others() -> None:
    bench = Bench()
    document = bench.cluster.documents(PODS)["default/web-2"]
    document["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    bench.cluster.put(PODS, document)
    bench.lose("web-0", _EVICTED)
    assert bench.reconcile() is not None
    assert bench.reconcile() is not None
    assert bench.evicted == []
    notes = [note for _, reason, note in bench.cluster.recorded.notes if reason == "GangDisrupted"]
    assert notes == [f"gang {_GANG} has lost members, and cannot leave whole: default/web-2: {_LOCAL}"]


def test_it_waits_until_budgets_let_all_go() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 1
    bench.lose("web-0", _EVICTED)
    assert bench.reconcile() is not None
    assert bench.evicted == []
    bench.cluster.disruptions_allowed = 2
    assert bench.reconcile() is not None
    assert bench.evicted == ["web-1", "web-2"]


def test_a_gang_that_jobs_move_is_left_to_them() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-1", passed=False)
    bench.lose("web-0", _EVICTED)
    assert bench.disrupted() == []
    assert bench.reconcile() is not None
    assert bench.evicted == []


def test_what_jobs_have_not_moved_goes_when_they_end() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-1")
    bench.lose("web-0", _EVICTED)
    bench.reconcile()
    bench.cluster.change(POD_MIGRATION_JOBS, "job", phase="Failed")
    bench.cluster.remove(PODS, "default/web-0")
    bench.reconcile()
    assert bench.evicted == ["web-1", "web-2"]


def test_what_replaces_the_members_is_not_evicted_for_them() -> None:
    bench = Bench()
    bench.lose("web-0", _EVICTED)
    bench.reconcile()
    bench.cluster.remove(PODS, "default/web-0")
    bench.member(3, _LATER)
    assert bench.reconcile() is not None
    bench.cluster.remove(PODS, "default/web-1")
    bench.cluster.remove(PODS, "default/web-2")
    assert bench.reconcile() is not None
    assert bench.evicted == ["web-1", "web-2"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_gang_that_was_placed_anew_can_be_disrupted_again(is_gone: bool) -> None:
    """Whether or not the member that was lost first is still there, and is seen last."""
    bench = Bench()
    bench.lose("web-0", _EVICTED)
    bench.reconcile()
    for number in range(0 if is_gone else 1, 3):
        bench.cluster.remove(PODS, f"default/web-{number}")
    for number in range(3, 6):
        bench.member(number, _LATER)
    bench.lose("web-3", {**_EVICTED, "lastTransitionTime": "2026-01-01T05:00:00Z"})
    if not is_gone:
        bench.cluster.put(PODS, bench.cluster.documents(PODS)["default/web-0"])
    assert bench.reconcile() is not None
    assert bench.evicted == ["web-1", "web-2", "web-4", "web-5"]


def test_a_gang_that_is_whole_again_is_forgotten() -> None:
    bench = Bench()
    bench.lose("web-0", _EVICTED)
    bench.reconcile()
    for number in range(3):
        bench.cluster.remove(PODS, f"default/web-{number}")
        bench.member(number + 3, _LATER)
    assert (bench.reconcile(), bench.disrupted()) == (None, [])


def test_a_dry_run_says_once_what_it_would_evict(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(dryRun=True)
    bench.lose("web-0", _EVICTED)
    caplog.set_level("INFO", logger="koordinator.descheduler.migration.disrupted_gangs")
    bench.reconcile()
    bench.reconcile()
    said = [record.getMessage() for record in caplog.records]
    why = f"gang {_GANG} has lost members, and the 2 that are left are too few"
    assert (said, bench.evicted) == ([f"would evict default/web-1, default/web-2: {why}"], [])


def test_members_that_jobs_have_evicted_are_no_loss() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-0")
    bench.cluster.change(POD_MIGRATION_JOBS, "job", phase="Succeeded")
    bench.cluster.deliver()
    bench.lose("web-0", _EVICTED)
    assert bench.disrupted() == []


def test_the_job_of_an_earlier_pod_of_the_name_hides_no_loss() -> None:
    bench = Bench()
    earlier = {"namespace": "default", "name": "web-0", "uid": "another"}
    scene.job(bench.cluster, "web-0", podRef=earlier)
    bench.cluster.change(POD_MIGRATION_JOBS, "job", phase="Succeeded")
    bench.lose("web-0", _EVICTED)
    bench.reconcile()
    assert bench.evicted == ["web-1", "web-2"]


def test_it_needs_the_policy_whole() -> None:
    with pytest.raises(ConfigurationError, match="needs gangPolicy Whole"):
        convert({"evictDisruptedGangs": True}, MigrationControllerArgs).completed("args")
