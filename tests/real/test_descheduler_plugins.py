"""The other plugins beside those of the original on a real API server: the same pods leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.descheduling.cluster import NodeCase, PodCase
from tests.real.descheduling.running import configuration, run_both
from tests.real.programs import RealPrograms

LAST = {"LowNodeLoad": {"paused": True}}
"""Comes after all others and does nothing: its line in the log says that the cycle is over."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONES = [NodeCase("a", labels={"zone": "1"}), NodeCase("b", labels={"zone": "2"})]


def pod(name: str, node: str = "a", **fields: Any) -> PodCase:
    return PodCase(name, node, "", **fields)


def restarted(count: int) -> dict[str, Any]:
    status = {"name": "main", "restartCount": count, "ready": True, "image": "web", "imageID": "web"}
    return {"containerStatuses": [{**status, "state": {"running": {}}}]}


def affinity(kind: str, zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    terms = {"nodeSelectorTerms": [term]} if kind == REQUIRED else [{"weight": 1, "preference": term}]
    return {"affinity": {"nodeAffinity": {kind: terms}}}


def apart(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def spread(**fields: Any) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return {"topologySpreadConstraints": [{**constraint, **fields}]}


@dataclass(frozen=True, slots=True)
class Scenario:
    plugin: str
    point: str
    arguments: Mapping[str, Any]
    pods: Sequence[PodCase]
    leaving: frozenset[str]
    nodes: Sequence[NodeCase] = field(default_factory=lambda: ZONES)
    with_reasons: bool = False
    """Upstream's plugins of the original evict for no reason."""
    evictor: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.plugin


SCENARIOS = [
    Scenario(
        "RemovePodsHavingTooManyRestarts",
        "deschedule",
        {"podRestartThreshold": 3},
        [pod("few", status=restarted(2)), pod("some", status=restarted(3)), pod("many", status=restarted(9))],
        frozenset({"some", "many"}),
    ),
    Scenario(
        "PodLifeTime",
        "deschedule",
        {"states": ["Failed"]},
        [pod("running"), pod("failed", status={"phase": "Failed", "reason": "Evicted"})],
        frozenset({"failed"}),
    ),
    Scenario(
        "RemoveFailedPods",
        "deschedule",
        {"minPodLifetimeSeconds": 0, "reasons": ["OutOfcpu"]},
        [
            pod("running"),
            pod("other", status={"phase": "Failed", "reason": "Evicted"}),
            pod("failed", status={"phase": "Failed", "reason": "OutOfcpu"}),
        ],
        frozenset({"failed"}),
    ),
    Scenario(
        "RemovePodsViolatingNodeTaints",
        "deschedule",
        {"excludedTaints": ["known"]},
        [pod("plain"), pod("tolerant", spec={"tolerations": [{"key": "only", "value": "gpu"}]}), pod("away", "b")],
        frozenset({"plain"}),
        nodes=[
            NodeCase(
                "a",
                taints=[
                    {"key": "only", "value": "gpu", "effect": "NoSchedule"},
                    {"key": "known", "effect": "NoSchedule"},
                ],
            ),
            NodeCase("b"),
        ],
    ),
    Scenario(
        "RemovePodsViolatingNodeAffinity",
        "deschedule",
        {"nodeAffinityType": [REQUIRED, PREFERRED]},
        [
            pod("misplaced", spec=affinity(REQUIRED, "2")),
            pod("placed", spec=affinity(REQUIRED, "1")),
            pod("nowhere", spec=affinity(REQUIRED, "3")),
            pod("better", spec=affinity(PREFERRED, "2")),
            pod("best", spec=affinity(PREFERRED, "1")),
        ],
        frozenset({"misplaced", "better"}),
    ),
    Scenario(
        "RemovePodsViolatingInterPodAntiAffinity",
        "deschedule",
        {},
        [
            pod("lesser", spec=apart("db"), labels={"app": "db"}, priority=1),
            pod("greater", spec=apart("db"), labels={"app": "db"}, priority=2),
            pod("elsewhere", "b", spec=apart("db"), labels={"app": "db"}),
            pod("alone", spec=apart("nobody")),
        ],
        frozenset({"lesser"}),
    ),
    Scenario(
        "RemovePodsViolatingTopologySpreadConstraint",
        "balance",
        {},
        [pod(f"web-{n}", spec=spread(), priority=n) for n in range(1, 6)],
        frozenset({"web-4", "web-5"}),
    ),
    Scenario(
        "LowNodeUtilization",
        "balance",
        {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}},
        [
            *(pod(f"web-{n}", requests={"cpu": "1"}, priority=n) for n in range(1, 4)),
            pod("there", "b", requests={"cpu": "1"}),
        ],
        frozenset({"web-1"}),
    ),
    Scenario(
        "HighNodeUtilization",
        "balance",
        {"thresholds": {"cpu": 20}},
        [pod("last", requests={"cpu": "500m"}), pod("there", "b", requests={"cpu": "2", "memory": "1Gi"})],
        frozenset({"last"}),
    ),
    Scenario(
        "CustomPriority",
        "balance",
        {
            "evictionOrder": [
                {"name": "dear", "nodeSelector": {"matchLabels": {"zone": "1"}}},
                {"name": "cheap", "nodeSelector": {"matchLabels": {"zone": "2"}}},
            ]
        },
        [pod("small", requests={"cpu": "1"}), pod("large", requests={"cpu": "3"}), pod("huge", requests={"cpu": "5"})],
        frozenset({"small", "large"}),
        nodes=[NodeCase("a", cpu="16", labels={"zone": "1"}), NodeCase("b", labels={"zone": "2"})],
        with_reasons=True,
    ),
    Scenario(
        "FragmentationAware",
        "balance",
        {},
        [
            pod("cpu", requests={"cpu": "2"}),
            pod("more-cpu", requests={"cpu": "1500m", "memory": "1Gi"}),
            pod("memory", requests={"memory": "2Gi"}),
        ],
        frozenset({"cpu"}),
        with_reasons=True,
    ),
    Scenario(
        "PodLifeTime",
        "deschedule",
        {"states": ["Running"], "labelSelector": {"matchLabels": {"tier": "a"}}},
        [pod("chosen", labels={"tier": "a"}), pod("other"), pod("bare", labels={"tier": "a"}, owned=False)],
        frozenset({"chosen"}),
        evictor={"minReplicas": 2},
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_same_pods_leave(
    scenario: Scenario, real_programs: RealPrograms, real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    points = {"balance": ["LowNodeLoad"]}
    points[scenario.point] = [scenario.plugin, *points.get(scenario.point, ())]
    settings = configuration(points, {scenario.plugin: scenario.arguments, "DefaultEvictor": scenario.evictor, **LAST})
    ours, theirs = run_both(real_programs, real_control_plane, tmp_path, scenario.nodes, scenario.pods, settings)
    assert ours.left == theirs.left == scenario.leaving
    if scenario.with_reasons:
        assert dict(ours.evicted) == dict(theirs.evicted)
    assert {plugin for plugin, _ in ours.evicted.values()} == {scenario.plugin}


def test_pods_of_a_budget_that_allows_nothing_stay(
    real_programs: RealPrograms, real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    budget = {
        "metadata": {"name": "all"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"tier": "guarded"}}},
    }
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    pods = [pod("guarded", labels={"tier": "guarded"}), pod("free")]
    settings = configuration(
        {"deschedule": ["PodLifeTime"], "balance": ["LowNodeLoad"]},
        {"PodLifeTime": {"states": ["Running"]}, **LAST},
    )
    status = {"disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1}

    def guard() -> None:
        code, response = real_control_plane.request("POST", path, budget)
        assert code == 201, response.get("message")
        observed = {"observedGeneration": response["metadata"]["generation"], "conditions": []}
        answered = real_control_plane.request("PATCH", f"{path}/all/status", {"status": {**status, **observed}})
        assert answered[0] == 200, answered[1].get("message")

    ours, theirs = run_both(real_programs, real_control_plane, tmp_path, ZONES, pods, settings, prepare=guard)
    assert ours.left == theirs.left == {"free"}
    assert 'error when evicting pod (ignoring) "guarded"' in ours.log


def test_a_node_is_believed_to_be_hot_after_the_same_number_of_cycles(
    real_programs: RealPrograms, real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    nodes = [NodeCase("hot", system_cpu="200m"), NodeCase("cool", cpu="16")]
    pods = [PodCase(f"web-{n}", "hot", f"{300 + 100 * n}m") for n in range(5)]
    arguments = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 50}}
    settings = configuration({"balance": ["LowNodeLoad"]}, {"LowNodeLoad": arguments}, deschedulingInterval="1s")
    ours, theirs = run_both(real_programs, real_control_plane, tmp_path, nodes, pods, settings, quiet=8.0)
    assert list(ours.evicted.items()) == list(theirs.evicted.items())[:1]
    assert next(iter(ours.evicted)) == "web-4"
    # Nobody reports anew: with the original, from then on each cycle evicts one more.
    assert len(theirs.evicted) > 1
    cycles = ours.log[: ours.log.index("Evicted pod")].count("Descheduling cycle done")
    assert cycles == theirs.log[: theirs.log.index("Evicted pod")].count("Successfully processed nodePool") == 5
