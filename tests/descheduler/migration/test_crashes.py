"""The program stops at each write of a migration in turn, and something else happens before it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.kube.errors import TransportError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import Crash, SimulatedCluster

_POD: Final = "default/web-0"
_ROUNDS: Final = 6
ARGS: Final = MigrationControllerArgs(evict_burst=9)
"""No rate limit stands between a mistake and a second eviction."""
WRITES: Final = {"ReservationFirst": 14, "EvictDirectly": 8}
"""How many writes a job is, by its mode."""


def nothing(cluster: SimulatedCluster) -> None:
    """The program just goes on."""


def replace_pod(cluster: SimulatedCluster) -> None:
    """Somebody deletes the pod, and its workload makes another one of the same name."""
    cluster.remove(PODS, _POD)
    scene.pod(cluster, "web-0", "node-3")


def abort(cluster: SimulatedCluster) -> None:
    if cluster.status().get("phase") not in ("Succeeded", "Failed"):
        cluster.change(POD_MIGRATION_JOBS, "job", phase="Aborted")


def lose_reservation(cluster: SimulatedCluster) -> None:
    for made in list(cluster.reservations()):
        cluster.remove(RESERVATIONS, made["metadata"]["name"])


def use_budget_up(cluster: SimulatedCluster) -> None:
    cluster.disruptions_allowed = 0


DISTURBANCES: Final = (nothing, replace_pod, abort, lose_reservation, use_budget_up)


@dataclass
class Stop:
    """Stops the program at its write number ``at``; ``done`` says whether that write was still done."""

    at: int
    done: bool
    error: Exception
    happened: bool = False

    def __post_init__(self) -> None:
        self._writes = count()

    def __call__(self, verb: str, path: str, done: bool) -> Exception | None:
        if done is self.done and not self.happened and next(self._writes) == self.at:
            self.happened = True
            return self.error
        return None


class Story:
    """A job for web-0, from its arbitration to its end; all others do their part at once."""

    def __init__(self, mode: str) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster)
        self.uid = scene.pod(self.cluster, "web-0")["metadata"]["uid"]
        scene.job(self.cluster, "web-0", passed=False, mode=mode)
        self.plugin = self.cluster.start(ARGS)

    def play(self, stop: Stop, disturb: Callable[[SimulatedCluster], None]) -> None:
        """Until ``stop`` has stopped the program; then ``disturb``, and on to the end."""
        self.cluster.fault = stop
        with asyncio.Runner() as runner:
            for _ in range(_ROUNDS):
                self._round(runner)
                if stop.happened:
                    self.cluster.fault = lambda verb, path, done: None
                    disturb(self.cluster)
                    break
            for _ in range(_ROUNDS):
                self._round(runner)
            self.cluster.disruptions_allowed = None
            runner.run(self.cluster.clock.advance(301))
            self._round(runner)
            self._round(runner)

    def _round(self, runner: asyncio.Runner) -> None:
        for work in (self.plugin.arbitrator.arbitrate, lambda: self.plugin.controller.reconcile("job")):
            self._work(runner, work)
            # Once more on what the informers knew before: events come late.
            self._work(runner, work)
            self._others()
            self.cluster.deliver()
        runner.run(self.cluster.clock.advance(1))

    def _work(self, runner: asyncio.Runner, work: Callable[[], Any]) -> None:
        try:
            runner.run(work())
        except Crash:
            # While no program runs, the others go on.
            self._others()
            self.plugin = self.cluster.start(ARGS, seed=2)
        except KoordinatorError:
            """Tried again in the next round."""

    def _others(self) -> None:
        """The simulated scheduler, kubelet and workload."""
        for made in list(self.cluster.reservations()):
            if not made.get("status"):
                scene.schedule(self.cluster, made["metadata"]["name"])
        pod = self.cluster.get_document(PODS, _POD)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.cluster.remove(PODS, _POD)
            successor = scene.pod(self.cluster, "web-0", "node-2")
            for made in list(self.cluster.reservations()):
                scene.bind(self.cluster, made["metadata"]["name"], successor)


def stops() -> Iterator[tuple[str, int, bool, type[Exception]]]:
    for mode, writes in WRITES.items():
        for at in range(writes):
            for done in (False, True):
                for error in (Crash, TransportError):
                    yield mode, at, done, error


@pytest.fixture(scope="module", params=DISTURBANCES, ids=lambda disturb: disturb.__name__)
def endings(request: pytest.FixtureRequest) -> tuple[str, list[tuple[str, Story]]]:
    """The name of a disturbance, and every story with it, with the place where it was stopped."""
    stories = []
    for mode, at, done, error in stops():
        story = Story(mode)
        story.play(Stop(at, done, error("stopped")), request.param)
        stories.append((f"{mode}, {error.__name__} {'after' if done else 'before'} write {at}", story))
    return request.param.__name__, stories


def test_a_pod_is_evicted_at_most_once(endings: tuple[str, list[tuple[str, Story]]]) -> None:
    for where, story in endings[1]:
        assert story.cluster.evicted in ([], [story.uid]), f"{where}: {story.cluster.writes}"


def test_the_job_ends_and_keeps_no_capacity(endings: tuple[str, list[tuple[str, Story]]]) -> None:
    for where, story in endings[1]:
        status = story.cluster.status()
        assert status["phase"] in ("Succeeded", "Failed", "Aborted"), f"{where}: {status}"
        assert status["phase"] == "Succeeded" or not list(story.cluster.reservations()), f"{where}: {status}"


def test_undisturbed_jobs_succeed(endings: tuple[str, list[tuple[str, Story]]]) -> None:
    disturbance, stories = endings
    for where, story in stories if disturbance == nothing.__name__ else []:
        assert story.cluster.status()["phase"] == "Succeeded", f"{where}: {story.cluster.status()}"
        assert story.cluster.evicted == [story.uid], where


@pytest.mark.parametrize(("mode", "writes"), WRITES.items())
def test_every_write_is_stopped_at(mode: str, writes: int) -> None:
    story = Story(mode)
    story.play(Stop(99, False, Crash()), nothing)
    assert len(story.cluster.writes) == writes, story.cluster.writes
