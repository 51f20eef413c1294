"""Generated fixtures on a real API server: our descheduler evicts the pods that the original does, for its reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.descheduling.cluster import Cluster
from tests.real.descheduling.fixtures import Fixture, generated
from tests.real.descheduling.running import Outcome, Trial, ends_of_jobs
from tests.real.programs import RealPrograms

TOGETHER = 50
"""Fixtures in one cluster, each with a profile of its own."""
WITH_JOBS = 20
"""Fixtures in one cluster, all of one profile: there is one MigrationController in a process."""
FURTHER_RUNS = 3
"""Of the original, where it gave something else than ours: what is scarce, it gives to whom it meets first."""
LEFT_TO_CHANCE = 0.05
"""The largest share of fixtures in which the original did otherwise in each of its runs, and not the same in all."""
WITH_REASONS = ("LowNodeLoad", "CustomPriority", "FragmentationAware")
"""Upstream's plugins of the original evict for no reason."""
Decision = Mapping[str, Any]

EVICTOR = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
LAST = {
    "name": "last",
    "plugins": {"evict": EVICTOR, "filter": EVICTOR, "balance": {"enabled": [{"name": "LowNodeLoad"}]}},
    "pluginConfig": [
        {
            "name": "LowNodeLoad",
            "args": {"apiVersion": "descheduler/v1alpha2", "kind": "LowNodeLoadArgs", "paused": True},
        }
    ],
}
"""Its line in the log says that the cycle is over."""


@dataclass(frozen=True, slots=True)
class Together:
    """Fixtures in one cluster."""

    cluster: Cluster
    fixtures: Sequence[Fixture]
    profiles: Callable[[Sequence[Fixture]], Sequence[Mapping[str, Any]]]

    def trial(self) -> Trial:
        (port,) = free_ports(1)
        settings = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "healthzBindAddress": f"127.0.0.1:{port}",
            "metricsBindAddress": f"127.0.0.1:{port}",
            "profiles": [*self.profiles(self.fixtures), LAST],
        }
        return Trial(
            self.cluster,
            [node for fixture in self.fixtures for node in fixture.nodes],
            [pod for fixture in self.fixtures for pod in fixture.pods],
            settings,
            self._guard,
            workloads={name: replicas for fixture in self.fixtures for name, replicas in fixture.workloads().items()},
        )

    def _guard(self) -> None:
        for fixture in self.fixtures:
            for budget in fixture.budgets:
                self.cluster.guard(budget)


@pytest.fixture
def cluster(real_control_plane: ControlPlane) -> Cluster:
    made = Cluster(real_control_plane)
    made.install()
    return made


@pytest.mark.parametrize("first", range(0, 100, TOGETHER))
def test_the_same_pods_for_the_same_reasons(
    first: int, real_programs: RealPrograms, cluster: Cluster, tmp_path: Path
) -> None:
    fixtures = [generated(seed) for seed in range(first, first + TOGETHER)]
    together = Together(cluster, fixtures, lambda some: [fixture.profile() for fixture in some])
    ours = together.trial().ours(tmp_path / "ours")
    assert {(event[0], event[3].removeprefix("pod evicted by ")) for event in ours.events} == {
        (pod, reason) for pod, (_, reason) in ours.evicted.items()
    }
    assert len(ours.left) > TOGETHER
    _hold_against_the_original(together, ours, real_programs, tmp_path, _evictions)


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        (200, {"evictLocalStoragePods": True, "skipCheckExpectedReplicas": True}),
        (300, {"maxMigratingPerNode": 1, "maxUnavailablePerWorkload": "50%", "priorityThreshold": {"value": 9000}}),
    ],
    ids=["few limits", "limits"],
)
def test_the_same_jobs_come_to_the_same_end(
    first: int, settings: Mapping[str, Any], real_programs: RealPrograms, cluster: Cluster, tmp_path: Path
) -> None:
    fixtures = [generated(seed) for seed in range(first, first + 2 * WITH_JOBS, 2)]
    together = Together(cluster, fixtures, lambda some: [_migrating(some, settings)])
    ours = together.trial().ours(tmp_path / "ours")
    assert len(ours.jobs) > WITH_JOBS / 2
    _hold_against_the_original(together, ours, real_programs, tmp_path, _jobs)


def _migrating(fixtures: Sequence[Fixture], settings: Mapping[str, Any]) -> dict[str, Any]:
    """LowNodeLoad over all fixtures, which asks MigrationController for jobs."""
    controller = {"enabled": [{"name": "MigrationController"}], "disabled": [{"name": "*"}]}
    pools = [fixture.node_pool() for fixture in fixtures]
    arguments = {
        "LowNodeLoad": {"nodePools": pools},
        "MigrationController": {"defaultJobMode": "EvictDirectly", "evictQPS": "100", "evictBurst": 100, **settings},
    }
    return {
        "name": "koord-descheduler",
        "plugins": {"evict": controller, "filter": controller, "balance": {"enabled": [{"name": "LowNodeLoad"}]}},
        "pluginConfig": [
            {"name": name, "args": {"apiVersion": "descheduler/v1alpha2", "kind": f"{name}Args", **given}}
            for name, given in arguments.items()
        ],
    }


def _hold_against_the_original(
    together: Together,
    ours: Outcome,
    programs: RealPrograms,
    folder: Path,
    decision: Callable[[Fixture, Outcome], Decision],
) -> None:
    """In each fixture the same; where the original once does this and once that, at most as different as these are."""
    runs: list[Outcome] = []
    differing = together.fixtures
    while differing and len(runs) <= FURTHER_RUNS:
        trial = replace(together, fixtures=differing).trial()
        runs.append(trial.original(programs, folder / f"original-{len(runs)}"))
        differing = [fixture for fixture in differing if decision(fixture, ours) != decision(fixture, runs[-1])]
    for fixture in differing:
        theirs = [decision(fixture, run) for run in runs]
        differences = f"{fixture.plugin} {fixture.arguments}\nours: {decision(fixture, ours)}\ntheirs: {theirs}"
        assert any(each != theirs[0] for each in theirs), f"the original always does otherwise in {differences}"
        assert decision(fixture, ours) or not all(theirs), f"the original always does something in {differences}"
        assert not decision(fixture, ours) or any(theirs), f"the original never does anything in {differences}"
    assert len(differing) <= len(together.fixtures) * LEFT_TO_CHANCE
    for fixture in together.fixtures:
        for budget in fixture.budgets:
            guarded = {pod.name for pod in fixture.pods if budget.matching.items() <= pod.labels.items()}
            assert len(guarded & ours.left) <= budget.allowed, f"{fixture.name}: {guarded & ours.left}"


def _evictions(fixture: Fixture, outcome: Outcome) -> Decision:
    """By pod: the plugin, and the reason if both have one."""
    names = fixture.names()
    assert outcome.left & names == outcome.evicted.keys() & names
    return {
        name: (plugin, reason if plugin in WITH_REASONS else "")
        for name, (plugin, reason) in outcome.evicted.items()
        if name in names
    }


def _jobs(fixture: Fixture, outcome: Outcome) -> Decision:
    """By pod: what its job says, and whether the pod is there."""
    return ends_of_jobs(outcome, fixture.names())
