"""The program is killed at each write of a group with one node, and another one goes on."""

from __future__ import annotations

from typing import Any, Final

import pytest

from koordinator.api.kinds import NODES, PODS
from tests.descheduler.drain_group.test_drain_node_group import Pool
from tests.descheduler.migration.simulated_cluster import Crash
from tests.descheduler.migration.test_crashes import Stop

_WRITES: Final = 38
"""Of a group, of the drain of its node, and of the job of its pod."""
_OF_THE_GROUP: Final = (*range(6), 16, 17, 18, 29, 36, 37)
"""Those at which the program is killed here; those of the drain have their own test."""


class Killed(Pool):
    def __init__(self, at: int, *, done: bool) -> None:
        super().__init__()
        for name in ("a", "b"):
            self.cluster.remove(PODS, f"default/web-{name}")
            self.cluster.remove(NODES, f"old-{name}")
        self.cluster.deliver()
        self.uid = self.cluster.documents(PODS)["default/web-c"]["metadata"]["uid"]
        self.cluster.fault = Stop(at, done, Crash())
        self.create_group()

    def _work(self, work: Any) -> None:
        try:
            super()._work(work)
        except Crash:
            self._others()
            self.start(seed=2)


@pytest.mark.parametrize("done", [False, True])
def test_a_group_succeeds_and_evicts_a_pod_once_wherever_the_program_is_killed(done: bool) -> None:
    for at in _OF_THE_GROUP:
        pool = Killed(at, done=done)
        pool.play_to_the_end()
        assert pool.group()["phase"] == "Succeeded", f"write {at}: {pool.group()}"
        assert pool.cluster.evicted == [pool.uid], f"write {at}"
        assert (pool.phases(), pool.cordoned()) == ({"old-c": "Complete"}, {"old-c"}), f"write {at}"


def test_every_write_is_killed_at() -> None:
    pool = Killed(999, done=False)
    pool.play_to_the_end()
    assert len(pool.cluster.writes) == _WRITES, pool.cluster.writes
