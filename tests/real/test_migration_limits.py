"""What MigrationController lets go, and what it holds back, beside the original on a real API server: the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.descheduling.cluster import JOBS, Budget, Cluster, NodeCase, PodCase
from tests.real.descheduling.running import Trial, ends_of_jobs
from tests.real.programs import RealPrograms

HOT: Final = [NodeCase("hot", system_cpu="1200m"), NodeCase("cool", cpu="16")]
"""With two pods of 1200m, both of which would have to leave."""
_RUNS: Final = 4
"""Of the original at most: whether it counts a job that it has made a moment ago is left to its caches."""
_LOAD: Final = {
    "lowThresholds": {"cpu": 30},
    "highThresholds": {"cpu": 50},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
}


def pods(count: int, usage: str = "1200m", **fields: Any) -> list[PodCase]:
    return [PodCase(f"web-{number}", "hot", usage, priority=100 + number, **fields) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    pods: Sequence[PodCase]
    workloads: Mapping[str, int]
    """Replicas, by the name of the ReplicaSet."""
    jobs: int
    """How many are made."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    waiting: int = 0
    """How many of the jobs have not evicted their pods."""

    def __str__(self) -> str:
        return self.name


SCENARIOS: Final = [
    Scenario("one of two replicas at a time", pods(2), {"web": 2}, 1),
    Scenario("two of four replicas at a time", pods(4, "800m"), {"web": 4}, 2),
    Scenario(
        "one eviction of a workload in five minutes",
        pods(4, "800m"),
        {"web": 4},
        2,
        {"objectLimiters": {"workload": {"duration": "5m"}}},
        waiting=1,
    ),
    Scenario("a quarter of them at a time", pods(4, "800m"), {"web": 4}, 1, {"maxMigratingPerWorkload": "25%"}),
    Scenario("not the only replica", pods(1, "2"), {"web": 1}, 0),
    Scenario("the only replica, unchecked", pods(1, "2"), {"web": 1}, 1, {"skipCheckExpectedReplicas": True}),
    Scenario(
        "the only replica, by gates",
        pods(1, "2"),
        {"web": 1},
        1,
        {"skipEvictionGates": ["ExpectedReplicas", "MaxUnavailablePerWorkload"]},
    ),
    Scenario("not of a workload that is gone", pods(2), {}, 0),
    Scenario(
        "three in a cycle",
        pods(12, "200m"),
        {"web": 100},
        3,
        {"maxMigratingPerNode": 0},
        settings={"maxNoOfPodsToEvictTotal": 3},
    ),
    Scenario("one of a node at a time", pods(4, "800m"), {"web": 4}, 1, {"maxMigratingPerNode": 1}),
    Scenario("none of a namespace", pods(2), {"web": 4}, 0, {"namespaces": {"exclude": ["default"]}}),
    Scenario("no pod with local data", pods(2, spec={"volumes": [{"name": "v", "emptyDir": {}}]}), {"web": 4}, 0),
    Scenario(
        "pods with local data, by a gate",
        pods(2, spec={"volumes": [{"name": "v", "emptyDir": {}}]}),
        {"web": 4},
        2,
        {"skipEvictionGates": ["LocalStorage"]},
    ),
]


def _settings(arguments: Mapping[str, Any], load: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    (port,) = free_ports(1)
    enabled = {"enabled": [{"name": "MigrationController"}]}
    unlimited = {"evictQPS": "100", "evictBurst": 100, "objectLimiters": {"workload": {"duration": "0s"}}}
    given = {
        "LowNodeLoad": load,
        "MigrationController": {"defaultJobMode": "EvictDirectly", **unlimited, **arguments},
    }
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "healthzBindAddress": f"127.0.0.1:{port}",
        "metricsBindAddress": f"127.0.0.1:{port}",
        **settings,
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {"evict": enabled, "filter": enabled, "balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [
                    {"name": name, "args": {"apiVersion": "descheduler/v1alpha2", "kind": f"{name}Args", **args}}
                    for name, args in given.items()
                ],
            }
        ],
    }


@pytest.fixture
def cluster(real_control_plane: ControlPlane) -> Cluster:
    made = Cluster(real_control_plane)
    made.install()
    return made


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_same_jobs_come_to_the_same_end(
    scenario: Scenario, cluster: Cluster, real_programs: RealPrograms, tmp_path: Path
) -> None:
    settings = _settings(scenario.arguments, _LOAD, **scenario.settings)
    trial = Trial(cluster, HOT, scenario.pods, settings, workloads=scenario.workloads)
    ours, names = trial.ours(tmp_path / "ours"), {pod.name for pod in scenario.pods}
    theirs: list[Mapping[str, Any]] = []
    while len(theirs) < _RUNS and ends_of_jobs(ours, names) not in theirs:
        played = trial.original(real_programs, tmp_path / f"original-{len(theirs)}")
        theirs.append(ends_of_jobs(played, names))
    assert ends_of_jobs(ours, names) in theirs
    assert len(ours.jobs) == scenario.jobs
    assert len(ours.left) == scenario.jobs - scenario.waiting


@pytest.mark.parametrize(("arguments", "running"), [({}, 2), ({"maxMigratingPerNode": 0}, 3)], ids=["limit", "none"])
def test_jobs_of_a_node_beyond_its_limit_wait(
    arguments: Mapping[str, Any], running: int, cluster: Cluster, real_programs: RealPrograms, tmp_path: Path
) -> None:
    """Jobs that somebody else has made. A budget that allows nothing holds those that are let through."""
    names = ("a", "b", "c")
    cases = [PodCase(name, "hot", "100m", workload=name) for name in names]
    settings = _settings(arguments, {"paused": True})
    trial = Trial(cluster, HOT, cases, settings, _jobs_and_budget(cluster, names), workloads=dict.fromkeys(names, 3))
    for outcome in (trial.ours(tmp_path / "ours"), trial.original(real_programs, tmp_path / "original")):
        phases = sorted(job.get("status", {}).get("phase", "Pending") for job in outcome.jobs)
        assert phases == ["Pending"] * (3 - running) + ["Running"] * running
        assert not outcome.left


def _jobs_and_budget(cluster: Cluster, names: Sequence[str]) -> Callable[[], None]:
    def prepare() -> None:
        cluster.guard(Budget("none", {"app": "web"}, 0))
        for name in names:
            spec = {"podRef": {"namespace": "default", "name": name}, "mode": "EvictDirectly", "ttl": "5m0s"}
            kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
            document = {**kind, "metadata": {"name": name}, "spec": spec}
            code, response = cluster.plane.request("POST", JOBS, document)
            assert code == 201, response.get("message")

    return prepare
