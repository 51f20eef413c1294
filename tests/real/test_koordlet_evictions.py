"""Ours and the Go original, at the same time, evict the same pods for memory and for what pods request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.evicting_nodes import Evictions, PodCase, Scenario, evictions
from tests.real.programs import RealPrograms
from tests.real.side_by_side import in_parts

GATES = ("BEMemoryEvict", "CPUAllocatableEvict", "MemoryAllocatableEvict")


def be(name: str, used: float, priority: int | None = 5500, **fields: Any) -> PodCase:
    return PodCase(name, used, priority=priority, **fields)


def requesting(name: str, cpu: int, memory: str, **fields: Any) -> PodCase:
    """A batch pod that may be evicted for what it requests."""
    labels = {"koordinator.sh/eviction-enabled": "true", **fields.pop("labels", {})}
    requests = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": memory}
    return PodCase(name, 0.1, requests=requests, labels=labels, **fields)


SEVENTY = {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 60}
BY_MEMORY_REQUESTS = {
    "memoryAllocatableEvictThresholdPercent": 100,
    "memoryAllocatableEvictLowerPercent": 80,
    "allocatableEvictPriorityThreshold": 5999,
}
BY_CPU_REQUESTS = {
    "cpuAllocatableEvictThresholdPercent": 100,
    "cpuAllocatableEvictLowerPercent": 75,
    "allocatableEvictPriorityThreshold": 5999,
}
LS = PodCase("ls", 3, "LS", 9500)

SCENARIOS = [
    Scenario("below the threshold", [be("a", 3), be("b", 3)], SEVENTY, frozenset(), 5),
    Scenario("not enabled", [be("a", 4), be("b", 3)], {**SEVENTY, "enable": False}, frozenset(), 8),
    Scenario("the default threshold", [be("a", 4), be("b", 3)], {}, frozenset({"a"}), 8),
    Scenario(
        "a lower percentage above the threshold",
        [be("a", 4), be("b", 3)],
        {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 80},
        frozenset(),
        8,
    ),
    Scenario("the largest first", [be("a", 1), be("b", 3), be("c", 2), LS], SEVENTY, frozenset({"b"}), 3.4),
    Scenario(
        "a low priority before a large one",
        [be("a", 1, 5100), be("b", 3, 5900), be("c", 2, 5500), LS],
        SEVENTY,
        frozenset({"a", "c"}),
        3.4,
    ),
    Scenario("all of them are not enough", [be("a", 1), be("b", 1), LS], SEVENTY, frozenset({"a", "b"}), 9),
    Scenario(
        "the threshold less two percent",
        [be("a", 0.2), be("b", 0.3), LS],
        {"memoryEvictThresholdPercent": 70},
        frozenset({"b", "a"}),
        8,
    ),
    Scenario(
        "a policy that leaves it out",
        [
            be("a", 1),
            be("b", 3, annotations={"koordinator.sh/eviction-policy": '["CPUAllocatableEvict"]'}),
            be("c", 2, annotations={"koordinator.sh/eviction-policy": '["BEMemoryEvict"]'}),
            LS,
        ],
        SEVENTY,
        frozenset({"c", "a"}),
        3.4,
    ),
    Scenario(
        "a policy that cannot be read",
        [be("a", 2), be("b", 3, annotations={"koordinator.sh/eviction-policy": "BEMemoryEvict"}), LS],
        SEVENTY,
        frozenset({"a"}),
        4.4,
    ),
    Scenario(
        "memory that is requested",
        [requesting("a", 100, "4Gi"), requesting("b", 100, "3Gi"), requesting("c", 100, "2Gi")],
        BY_MEMORY_REQUESTS,
        frozenset({"a"}),
    ),
    Scenario(
        "memory that is requested, within the threshold",
        [requesting("a", 100, "4Gi"), requesting("b", 100, "3Gi"), requesting("c", 100, "1Gi")],
        BY_MEMORY_REQUESTS,
        frozenset(),
    ),
    Scenario(
        "CPUs that are requested",
        [requesting("a", 1500, "1Gi"), requesting("b", 2000, "1Gi"), requesting("c", 1000, "1Gi")],
        BY_CPU_REQUESTS,
        frozenset({"b"}),
    ),
    Scenario(
        "by eviction priority",
        [
            requesting("a", 2500, "1Gi", annotations={"koordinator.sh/eviction-priority": "10"}),
            requesting("b", 1500, "1Gi"),
            requesting("c", 1000, "1Gi", annotations={"koordinator.sh/eviction-priority": "-10"}),
        ],
        BY_CPU_REQUESTS,
        frozenset({"c", "b"}),
    ),
    Scenario(
        "by priority",
        [
            requesting("a", 1500, "1Gi", priority=5900),
            requesting("b", 2000, "1Gi", priority=5800),
            requesting("c", 1600, "1Gi", priority=5100),
        ],
        BY_CPU_REQUESTS,
        frozenset({"c", "b"}),
    ),
    Scenario(
        "by the label for the order within a class",
        [
            requesting("a", 1500, "1Gi", labels={"koordinator.sh/priority": "1"}),
            requesting("b", 2000, "1Gi", labels={"koordinator.sh/priority": "30"}),
            requesting("c", 1600, "1Gi", labels={"koordinator.sh/priority": "20"}),
        ],
        BY_CPU_REQUESTS,
        frozenset({"a", "c"}),
    ),
    Scenario(
        "those above the priority stay",
        [requesting("a", 3000, "1Gi", priority=5900), requesting("b", 2500, "1Gi", priority=5100)],
        {**BY_CPU_REQUESTS, "allocatableEvictPriorityThreshold": 5500},
        frozenset(),
    ),
    Scenario(
        "those that nobody declared evictable stay",
        [
            requesting("a", 3000, "1Gi", labels={"koordinator.sh/eviction-enabled": "false"}),
            requesting("b", 2500, "1Gi"),
        ],
        BY_CPU_REQUESTS,
        frozenset({"b"}),
    ),
    Scenario(
        "production pods are never looked at",
        [requesting("a", 3000, "1Gi"), requesting("b", 2500, "1Gi")],
        {**BY_CPU_REQUESTS, "allocatableEvictPriorityThreshold": 9000},
        frozenset(),
    ),
]


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evictions]:
    with evictions(real_programs, tmp_path_factory.mktemp("evictions"), GATES, 2, 5.0) as made:
        yield made


@pytest.mark.parametrize("scenario", in_parts(SCENARIOS, 2))
def test_the_same_pods_are_evicted(scenario: Scenario, programs: Evictions) -> None:
    programs.check(scenario)
