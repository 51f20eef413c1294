"""LowNodeLoad beside that of the original on a real API server: the same nodes, pods and reasons."""

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

RAW = "node.koordinator.sh/raw-allocatable"
AT_ONCE = {"consecutiveAbnormalities": 1}
THRESHOLDS = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 50}, "anomalyCondition": AT_ONCE}
COOL = NodeCase("cool", cpu="16", system_cpu="400m")
"""With room for every candidate: in which order the original books scarce room is left to chance."""
NODES = [NodeCase("hot", system_cpu="200m"), COOL, NodeCase("closed", unschedulable=True)]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    nodes: Sequence[NodeCase]
    pods: Sequence[PodCase]
    arguments: Mapping[str, Any]
    evicted: int
    """How many, so that a comparison of nothing with nothing is noticed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    evictor: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def distinct(count: int, node: str = "hot", **fields: Any) -> list[PodCase]:
    """Pods whose usage tells them apart."""
    return [PodCase(f"web-{number}", node, f"{150 + 100 * number}m", **fields) for number in range(count)]


SCENARIOS = [
    Scenario("until the node is below", NODES, distinct(6), THRESHOLDS, 1),
    Scenario(
        "a low priority leaves first",
        NODES,
        [
            PodCase("batch", "hot", "500m", priority=5500),
            PodCase("mid", "hot", "700m", priority=7500),
            PodCase("prod", "hot", "1600m", priority=9500),
        ],
        THRESHOLDS,
        2,
    ),
    Scenario(
        "by cost",
        NODES,
        [
            PodCase("dear", "hot", "900m", annotations={"scheduling.koordinator.sh/eviction-cost": "100"}),
            PodCase("cheap", "hot", "900m", annotations={"scheduling.koordinator.sh/eviction-cost": "-100"}),
            PodCase("normal", "hot", "900m"),
        ],
        THRESHOLDS,
        1,
    ),
    Scenario(
        "no room by requests",
        [NodeCase("hot", system_cpu="200m"), NodeCase("cool", cpu="4")],
        [*distinct(5, requests={"cpu": "2"}), PodCase("idle", "cool", "0", requests={"cpu": "3"})],
        THRESHOLDS,
        0,
    ),
    Scenario(
        "an old report counts for nothing",
        [NodeCase("hot", metric_age=200), NodeCase("warm", system_cpu="2500m"), NodeCase("cool", metric_age=200)],
        distinct(6),
        THRESHOLDS,
        0,
    ),
    Scenario(
        "no more than the targets can take",
        [NodeCase("hot", cpu="8"), NodeCase("cool", cpu="2", system_cpu="500m")],
        distinct(10),
        {**THRESHOLDS, "nodeFit": False},
        1,
    ),
    Scenario(
        "limits of a cycle",
        NODES,
        [PodCase(f"web-{number}", "hot", f"{90 + 10 * number}m", priority=100 + number) for number in range(25)],
        THRESHOLDS,
        2,
        settings={"maxNoOfPodsToEvictTotal": 2},
    ),
    Scenario(
        "pools",
        [
            NodeCase("hot", system_cpu="1", labels={"pool": "a"}),
            NodeCase("cool", cpu="16", labels={"pool": "a"}),
            NodeCase("other", labels={"pool": "b"}),
            NodeCase("another", system_cpu="3500m", labels={"pool": "b"}),
        ],
        distinct(5),
        {
            "nodePools": [
                {
                    "name": "a",
                    "nodeSelector": {"matchLabels": {"pool": "a"}},
                    "lowThresholds": {"cpu": 30, "memory": 30},
                    "highThresholds": {"cpu": 60, "memory": 60},
                    "anomalyCondition": {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1},
                }
            ]
        },
        1,
    ),
    Scenario(
        "deviation from the mean",
        [NodeCase("hot"), NodeCase("cool", cpu="32", system_cpu="1"), NodeCase("mean", system_cpu="1800m")],
        distinct(7),
        {
            "useDeviationThresholds": True,
            "lowThresholds": {"cpu": 10},
            "highThresholds": {"cpu": 10},
            "anomalyCondition": AT_ONCE,
        },
        2,
    ),
    Scenario(
        "pods of class prod",
        [NodeCase("hot"), NodeCase("cool", cpu="16"), NodeCase("mid", system_cpu="1600m")],
        [PodCase(f"prod-{number}", "hot", f"{300 + 50 * number}m", priority=9000 + number) for number in range(4)],
        {
            "lowThresholds": {"cpu": 35, "memory": 80},
            "highThresholds": {"cpu": 70, "memory": 90},
            "prodLowThresholds": {"cpu": 10},
            "prodHighThresholds": {"cpu": 25},
            "anomalyCondition": AT_ONCE,
        },
        2,
    ),
    Scenario(
        "raw allocatable before amplification",
        [
            NodeCase(
                "hot", cpu="8", annotations={"node.koordinator.sh/raw-allocatable": '{"cpu":"4","memory":"16Gi"}'}
            ),
            NodeCase("cool", cpu="8"),
        ],
        distinct(6),
        THRESHOLDS,
        1,
    ),
    Scenario(
        "selected pods only",
        NODES,
        [*distinct(5), PodCase("chosen", "hot", "100m", labels={"tier": "batch"})],
        {**THRESHOLDS, "podSelectors": [{"name": "batch", "selector": {"matchLabels": {"tier": "batch"}}}]},
        1,
    ),
    Scenario(
        "protected pods stay",
        NODES,
        [
            PodCase("bare", "hot", "900m", owned=False),
            PodCase("critical", "hot", "800m", priority=10**9),
            PodCase("local", "hot", "700m", spec={"volumes": [{"name": "scratch", "emptyDir": {}}]}),
            PodCase(
                "willing",
                "hot",
                "600m",
                owned=False,
                annotations={"descheduler.alpha.kubernetes.io/evict": "true"},
            ),
        ],
        THRESHOLDS,
        1,
        evictor={"priorityThreshold": {"value": 10**8}},
    ),
    Scenario(
        "taints and selectors of pods",
        [
            NodeCase("hot"),
            NodeCase("tainted", taints=[{"key": "only", "value": "gpu", "effect": "NoSchedule"}]),
            NodeCase("ssd", cpu="16", labels={"disk": "ssd"}, system_cpu="100m"),
        ],
        [
            PodCase("wants-hdd", "hot", "900m", spec={"nodeSelector": {"disk": "hdd"}}),
            PodCase("wants-ssd", "hot", "800m", spec={"nodeSelector": {"disk": "ssd"}}),
            PodCase("wants-nothing", "hot", "750m"),
        ],
        THRESHOLDS,
        1,
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_same_pods_for_the_same_reasons(
    scenario: Scenario, real_programs: RealPrograms, real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    settings = configuration(
        {"balance": ["LowNodeLoad"]},
        {"LowNodeLoad": scenario.arguments, "DefaultEvictor": scenario.evictor},
        **scenario.settings,
    )
    ours, theirs = run_both(real_programs, real_control_plane, tmp_path, scenario.nodes, scenario.pods, settings)
    assert dict(ours.evicted) == dict(theirs.evicted)
    assert ours.left == theirs.left == ours.evicted.keys()
    assert len(ours.evicted) == scenario.evicted


def test_pods_without_a_report_count_with_their_requests_here_and_with_nothing_there(
    real_programs: RealPrograms, real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """So the original goes on until none of them is left, however little the node is over its threshold."""
    nodes = [NodeCase("hot", system_cpu="2200m"), NodeCase("cool", cpu="16")]
    pods = [PodCase(f"new-{n}", "hot", "", requests={"cpu": "150m"}, priority=100 + n) for n in range(4)]
    settings = configuration({"balance": ["LowNodeLoad"]}, {"LowNodeLoad": {**THRESHOLDS, "nodeFit": False}})
    ours, theirs = run_both(real_programs, real_control_plane, tmp_path, nodes, pods, settings)
    assert sorted(ours.evicted) == ["new-0", "new-1"]
    assert sorted(theirs.evicted) == ["new-0", "new-1", "new-2", "new-3"]
