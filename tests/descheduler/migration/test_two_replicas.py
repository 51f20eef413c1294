"""A leader that does not know yet that it leads no more, and an API server that is away for a while."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.kinds import POD_MIGRATION_JOBS
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.migration.plugin import MigrationController
from koordinator.kube.errors import TransportError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster
from tests.descheduler.migration.test_crashes import ARGS, WRITES, Stop, Story


class TwoReplicas(Story):
    """From some write on, a second program carries the job out, while the first goes on with what it knew then: its
    watches are gone, and nothing fences its writes off."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode)
        self._first: MigrationController | None = None

    def play_with_a_successor(self, at: int) -> None:
        self.play(Stop(at, False, TransportError("frozen for a while")), self._succeed)

    def _succeed(self, cluster: SimulatedCluster) -> None:
        self._first = self.plugin
        self.plugin = cluster.start(ARGS, seed=2)

    def _round(self, runner: asyncio.Runner) -> None:
        if self._first is not None:
            self._work(runner, self._first.arbitrator.arbitrate)
            self._others()
            self._work(runner, lambda: self._first.controller.reconcile("job") if self._first else asyncio.sleep(0))
            self._others()
            self.cluster.deliver()
        super()._round(runner)


@pytest.fixture(scope="module", params=sorted(WRITES))
def shared(request: pytest.FixtureRequest) -> list[tuple[int, TwoReplicas]]:
    """The stories of one mode, by the write at which the second program began."""
    stories = [(at, TwoReplicas(request.param)) for at in range(WRITES[request.param])]
    for at, story in stories:
        story.play_with_a_successor(at)
    return stories


def test_two_that_both_believe_to_lead_evict_a_pod_once(shared: list[tuple[int, TwoReplicas]]) -> None:
    for at, story in shared:
        assert story.cluster.evicted == [story.uid], f"write {at}: {story.cluster.writes}"


def test_two_that_both_believe_to_lead_end_a_job_once(shared: list[tuple[int, TwoReplicas]]) -> None:
    for at, story in shared:
        assert story.cluster.status()["phase"] == "Succeeded", f"write {at}: {story.cluster.status()}"


def test_two_that_both_believe_to_lead_reserve_once(shared: list[tuple[int, TwoReplicas]]) -> None:
    for at, story in shared:
        assert len(list(story.cluster.reservations())) <= 1, f"write {at}: {story.cluster.writes}"


class Interrupted(Story):
    """The API server is away in two of the rounds."""

    def __init__(self, mode: str, away: int) -> None:
        super().__init__(mode)
        self._away = away
        self._rounds = 0

    def _round(self, runner: asyncio.Runner) -> None:
        self.cluster.is_away = self._rounds in (self._away, self._away + 1)
        self._rounds += 1
        super()._round(runner)

    def _others(self) -> None:
        if not self.cluster.is_away:
            super()._others()


@pytest.mark.parametrize("mode", sorted(WRITES))
@pytest.mark.parametrize("away", range(5))
def test_a_job_goes_on_when_the_api_server_is_back(mode: str, away: int) -> None:
    story = Interrupted(mode, away)
    story.play(Stop(99, False, KoordinatorError()), lambda cluster: None)
    assert (story.cluster.status()["phase"], story.cluster.evicted) == ("Succeeded", [story.uid])


def test_an_api_server_that_is_away_ends_no_loop() -> None:
    cluster = SimulatedCluster()
    scene.deployment(cluster)
    scene.pod(cluster, "web-0")
    scene.job(cluster, "web-0", passed=False, ttl="1s")
    plugin = cluster.start(ARGS)
    asyncio.run(cluster.clock.advance(3600))
    cluster.is_away = True
    asyncio.run(plugin.arbitrator.arbitrate())
    asyncio.run(plugin.scavenger.scavenge())
    assert list(cluster.documents(POD_MIGRATION_JOBS)) == ["job"]
