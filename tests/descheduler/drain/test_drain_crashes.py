"""The program is killed at each write of a drain in turn, and another one goes on."""

from __future__ import annotations

from typing import Any, Final

import pytest

from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from tests.descheduler.drain.test_drain_node import Bench
from tests.descheduler.migration.simulated_cluster import Crash
from tests.descheduler.migration.test_crashes import Stop

_WRITES: Final = 26
"""Of a drain and of the job of its pod."""


class Killed(Bench):
    """A drain of a node with one pod."""

    def __init__(self, at: int, *, done: bool) -> None:
        super().__init__()
        for name in self.names[1:]:
            self.cluster.remove(PODS, f"default/{name}")
        self.cluster.deliver()
        self.uid = self.cluster.documents(PODS)["default/web-a"]["metadata"]["uid"]
        self.stop = Stop(at, done, Crash())
        self.cluster.fault = self.stop
        self.create()

    def _work(self, work: Any) -> None:
        try:
            super()._work(work)
        except Crash:
            self._others()
            self.start(seed=2)

    def play_until_killed(self) -> None:
        for _ in range(20):
            if not self.stop.happened:
                self.play(1)


def killed(at: int, *, done: bool) -> Killed:
    bench = Killed(at, done=done)
    bench.play_until_killed()
    assert bench.stop.happened
    return bench


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(_WRITES))
def test_a_drain_is_completed_and_evicts_a_pod_once(at: int, done: bool) -> None:
    bench = killed(at, done=done)
    bench.play(12)
    assert bench.status()["phase"] == "Complete"
    assert bench.cluster.evicted == [bench.uid]
    assert bench.node["spec"]["unschedulable"] is True


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(_WRITES))
def test_a_drain_that_is_called_off_leaves_nothing_behind(at: int, done: bool) -> None:
    bench = killed(at, done=done)
    bench.edit(confirmState="Aborted")
    bench.play(6)
    assert bench.status()["phase"] == "Aborted"
    assert not bench.node["spec"].get("unschedulable")
    assert not bench.node["metadata"].get("labels")
    assert not [job for job in bench.cluster.documents(POD_MIGRATION_JOBS).values() if not _has_ended(job)]
    assert not list(bench.cluster.reservations())


def _has_ended(job: dict[str, Any]) -> bool:
    return job.get("status", {}).get("phase") in ("Succeeded", "Failed")


def test_every_write_is_killed_at() -> None:
    bench = Killed(999, done=False)
    bench.play(20)
    assert len(bench.cluster.writes) == _WRITES, bench.cluster.writes
