"""Ours and the Go original, at the same time, evict the same pods for CPU.

They do so since best-effort pods get too little of what they request, and since the node is busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.real.evicting_nodes import BATCH_CPU, CPUS, NAMES, Evictions, Node, PodCase, Scenario, evictions
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.side_by_side import in_parts

GATES = ("BECPUSuppress", "BECPUEvict", "CPUEvict")
COOL_DOWN = 8
"""Seconds: more than the window, or pods that are gone would count after it."""
QUIET_SECONDS = 12.0
WINDOW = {"cpuEvictTimeWindowSeconds": 4}
SATISFIED = {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80, **WINDOW}
"""Of 8 CPUs that are requested and 4 that there are, 2.4 are to be released."""
BUSY = {
    "cpuEvictThresholdPercent": 70,
    "cpuEvictLowerPercent": 60,
    "evictEnabledPriorityThreshold": 5999,
    **WINDOW,
}
"""Of 10 CPUs, of which 8.5 are used, 2.5 are to be released: half a core more or less makes no difference below."""


def be(name: str, cpu: int, cores: float, **fields: Any) -> PodCase:
    """A batch pod that requests so much milli-CPU, and uses so many cores."""
    return PodCase(name, 0.1, requests={BATCH_CPU: str(cpu)}, cores=cores, **fields)


def evictable(name: str, cores: float, **fields: Any) -> PodCase:
    """A pod that may be evicted for what it uses."""
    labels = {"koordinator.sh/eviction-enabled": "true", **fields.pop("labels", {})}
    return PodCase(name, 0.1, cores=cores, labels=labels, **fields)


STARVED = [be("a", 4000, 2.0), be("b", 2000, 2.3), be("c", 2000, 0.2)]
CROWD = [evictable("a", 1.0), evictable("b", 4.0), evictable("c", 2.0)]
SCENARIOS = [
    Scenario("best-effort pods have enough", STARVED, SATISFIED, frozenset(), limit=6.0),
    Scenario("those that use the most of their request first", STARVED, SATISFIED, frozenset({"b", "a"}), limit=4.0),
    Scenario("not enabled", STARVED, {**SATISFIED, "enable": False}, frozenset(), limit=4.0),
    Scenario(
        "best-effort pods do not use what they have",
        [be("a", 4000, 1.0), be("b", 4000, 0.5)],
        SATISFIED,
        frozenset(),
        limit=4.0,
    ),
    Scenario(
        "a low threshold of usage",
        [be("a", 4000, 1.5), be("b", 4000, 0.5)],
        {**SATISFIED, "cpuEvictBEUsageThresholdPercent": 25},
        frozenset({"a"}),
        limit=4.0,
    ),
    Scenario(
        "less than a CPU is always used",
        [be("a", 800, 0.05), be("b", 1200, 0.4)],
        {**SATISFIED, "cpuEvictBESatisfactionUpperPercent": 65},
        frozenset({"b"}),
        limit=0.5,
    ),
    Scenario(
        "a low priority before what uses the most",
        [be("a", 4000, 2.0), be("b", 2000, 2.3, priority=5900), be("c", 2000, 0.2, priority=5100)],
        SATISFIED,
        frozenset({"c", "a"}),
        limit=4.0,
    ),
    Scenario(
        "what the node offers counts by policy",
        STARVED,
        {**SATISFIED, "cpuEvictPolicy": "evictByAllocatable"},
        frozenset({"b", "a"}),
        limit=CPUS,
    ),
    Scenario(
        "a pod that permits other features only",
        [be("a", 4000, 2.0), be("b", 2000, 2.3, annotations={"koordinator.sh/eviction-policy": '["CPUEvict"]'})],
        {**SATISFIED, "cpuEvictBESatisfactionLowerPercent": 60},
        frozenset({"a"}),
        limit=3.4,
    ),
    Scenario(
        "a lower percentage that is too high",
        STARVED,
        {**SATISFIED, "cpuEvictBESatisfactionLowerPercent": 70},
        frozenset(),
        limit=4.0,
    ),
    Scenario(
        "an upper percentage below the lower one",
        STARVED,
        {**SATISFIED, "cpuEvictBESatisfactionUpperPercent": 55},
        frozenset(),
        limit=4.0,
    ),
    Scenario("a disruption budget", STARVED, SATISFIED, frozenset({"a"}), limit=4.0, kept="b"),
    Scenario("the node is not busy", CROWD[:2], BUSY, frozenset()),
    Scenario("the largest first", CROWD, BUSY, frozenset({"b"}), system_cores=1.5),
    Scenario(
        "a low priority before a large one",
        [evictable("a", 1.0, priority=5100), evictable("b", 4.0, priority=5900), evictable("c", 2.0)],
        BUSY,
        frozenset({"a", "c"}),
        system_cores=1.2,
    ),
    Scenario(
        "a low eviction priority before a low priority",
        [
            evictable("a", 1.0, priority=5100),
            evictable("b", 4.0, priority=5900, annotations={"koordinator.sh/eviction-priority": "-1"}),
            evictable("c", 2.0),
        ],
        BUSY,
        frozenset({"b"}),
        system_cores=1.5,
    ),
    Scenario(
        "those above the priority stay",
        [evictable("a", 1.0, priority=5100), evictable("b", 4.0, priority=5900), evictable("c", 2.0)],
        {**BUSY, "evictEnabledPriorityThreshold": 5500},
        frozenset({"a", "c"}),
        system_cores=1.5,
    ),
    Scenario(
        "those that nobody declared evictable stay",
        [evictable("a", 1.0), PodCase("b", 0.1, cores=4.0), evictable("c", 2.0)],
        BUSY,
        frozenset({"a", "c"}),
        system_cores=2.0,
    ),
    Scenario(
        "the threshold less two percent",
        [evictable("a", 1.2), evictable("b", 2.3), evictable("c", 1.0)],
        {name: value for name, value in BUSY.items() if name != "cpuEvictLowerPercent"},
        frozenset({"b"}),
        system_cores=4.0,
    ),
    Scenario(
        "a lower percentage above the threshold",
        CROWD,
        {**BUSY, "cpuEvictLowerPercent": 80},
        frozenset(),
        system_cores=1.5,
    ),
    Scenario(
        "no priority up to which pods may be evicted",
        CROWD,
        {name: value for name, value in BUSY.items() if name != "evictEnabledPriorityThreshold"},
        frozenset(),
        system_cores=1.5,
    ),
    Scenario("a disruption budget on a busy node", CROWD, BUSY, frozenset({"c", "a"}), system_cores=2.0, kept="b"),
    Scenario(
        "latency-sensitive pods may be declared evictable, too",
        [evictable("a", 1.0, qos="LS", priority=5100), evictable("b", 4.0, qos="LS", priority=5900)],
        BUSY,
        frozenset({"a", "b"}),
        system_cores=3.5,
    ),
]


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evictions]:
    folder = tmp_path_factory.mktemp("evictions")
    with evictions(real_programs, folder, GATES, COOL_DOWN, QUIET_SECONDS) as made:
        yield made


@pytest.mark.parametrize("scenario", in_parts(SCENARIOS, 4))
def test_the_same_pods_are_evicted(scenario: Scenario, programs: Evictions) -> None:
    programs.check(scenario)


def test_nobody_is_evicted_while_the_node_cools_down(programs: Evictions) -> None:
    """The system takes over what the first pod has given back."""
    programs.begin(Scenario("two rounds", CROWD, BUSY, frozenset(), system_cores=1.5))
    for node in programs.nodes:
        until(partial(_has_evicted, node), 60)
        node.use(system_cores=6.5)
    programs.until_quiet(frozenset({"a", "b", "c"}))
    times = {node.name: sorted(node.gone_at.values()) for node in programs.nodes}
    assert {name: len(each) for name, each in times.items()} == dict.fromkeys(NAMES, 3)
    for name, (first, second, _) in times.items():
        # A round is a second, and the average follows within four.
        assert second - first > COOL_DOWN - 2, name


def _has_evicted(node: Node) -> bool:
    return bool(node.refresh())
