"""Scores and thresholds are exact, however large the amounts: floating point is used only where nobody can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, ResourceMap
from koordinator.api.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration.upstream_arguments import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from koordinator.scheduler.engine.columns import EXACT_BELOW
from tests.examples import examples
from tests.scheduler.plugins import reference, reference_load
from tests.scheduler.plugins.clusters import NOW, ClusterFixture
from tests.scheduler.plugins.test_against_reference import expected, filter_results, load_args, scores

LARGEST = 1 << 50
"""A hundred times this is still an int64, for the original as well."""
WEIGHTS = {"cpu": 1, "memory": 2}
SHAPE = [(0, 0), (33, 4), (100, 10)]
SETTINGS = settings(max_examples=examples(25))
seeds = st.integers(0, 2**32)
COPRIME = [percent for percent in range(1, 100) if percent % 2 and percent % 5]
"""Percentages with an inverse modulo 100: for these there are amounts whose share lacks as little as can be."""


@dataclass(frozen=True)
class Place:
    """A node: for CPU and memory, how much it has and how much of it is to be in use with the incoming pod on it."""

    cpu: tuple[int, int]
    memory: tuple[int, int]

    @property
    def wholes(self) -> list[int]:
        return [self.cpu[0], self.memory[0]]

    def used_by_others(self, wish: Sequence[int]) -> list[int]:
        """What must be in use already."""
        return [max(used - mine, 0) for (_, used), mine in zip((self.cpu, self.memory), wish, strict=True)]


class Dice:
    """Everything that a test leaves to chance, from one number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        # Floating point is used only as long as no node is larger than the bound, and all have both resources.
        self._below_the_bound = self._random.random() < 0.5
        self._something_lacks = self._random.random() < 0.3

    def wish(self) -> tuple[int, int]:
        """What the incoming pod requests: mostly little, sometimes far more than any node has."""
        pick = self._random.choice
        of_one = [0, 1, 3, 500, 10**9]
        if self._random.random() < 0.2:
            of_one = [EXACT_BELOW, LARGEST, LARGEST << 5]
        return pick(of_one), pick(of_one)

    def places(self) -> list[Place]:
        return [Place(self._amounts(), self._amounts()) for _ in range(self._random.randint(1, 12))]

    def _amounts(self) -> tuple[int, int]:
        if self._something_lacks and self._random.random() < 0.3:
            return 0, self._random.choice([0, 1, 1000])
        return self._near_a_percentage() if self._random.random() < 0.4 else self._just_below_a_percentage()

    def _near_a_percentage(self) -> tuple[int, int]:
        whole = self._whole()
        return whole, max(whole * self._random.randint(0, 101) // 100 + self._random.randint(-1, 1), 0)

    def _just_below_a_percentage(self) -> tuple[int, int]:
        """In use or free is an amount that is as near below a percentage of the whole as of no smaller whole."""
        percent = self._random.choice(COPRIME)
        whole = max(self._whole() // 100 - 1, 0) * 100 + pow(percent, -1, 100)
        part = (percent * whole - 1) // 100
        return whole, self._random.choice([part, whole - part])

    def _whole(self) -> int:
        random = self._random
        if random.random() < 0.3:
            return random.randint(1, 2 ** random.randint(1, 45))
        if self._below_the_bound:
            return EXACT_BELOW - random.choice([1, 2, random.randint(1, 1000), random.randint(1, EXACT_BELOW // 2)])
        larger = random.randint(EXACT_BELOW, EXACT_BELOW << random.randint(1, 4))
        return random.choice([EXACT_BELOW, EXACT_BELOW + 1, larger, larger])


def resources(amounts: Sequence[int]) -> dict[str, Quantity]:
    return {"cpu": Quantity.from_milli(amounts[0]), "memory": Quantity.from_value(amounts[1])}


def pod_of(name: str, amounts: Sequence[int], **changes: Any) -> Pod:
    scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=NOW - timedelta(hours=1))
    container = Container(name="main", resources=ResourceRequirements(requests=resources(amounts)))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        spec=PodSpec(containers=[container], **changes),
        status=PodStatus(conditions=[scheduled]),
    )


def fixture_of(given_places: Sequence[Place], arguments: Mapping[str, Any]) -> ClusterFixture:
    fixture = ClusterFixture(arguments)
    for number, place in enumerate(given_places):
        allocatable = {**resources(place.wholes), "pods": Quantity.from_value(110)}
        fixture.set_node(Node(metadata=ObjectMeta(name=f"n{number}"), status=NodeStatus(allocatable=allocatable)))
    return fixture


def occupied(seed: int, arguments: Mapping[str, Any]) -> tuple[ClusterFixture, Pod]:
    """Pods take what the others are to use."""
    dice = Dice(seed)
    wish, given_places = dice.wish(), dice.places()
    fixture = fixture_of(given_places, arguments)
    for number, place in enumerate(given_places):
        fixture.place(pod_of(f"p{number}", place.used_by_others(wish)), f"n{number}")
    return fixture, pod_of("incoming", wish)


def measured(seed: int, arguments: Mapping[str, Any]) -> tuple[ClusterFixture, Pod]:
    """Reports say that the others use it."""
    dice = Dice(seed)
    wish, given_places = dice.wish(), dice.places()
    fixture = fixture_of(given_places, arguments)
    # Of nothing requested, something is expected all the same.
    estimate = [*reference_load.estimate(pod_of("incoming", wish), {"cpu": 100, "memory": 100}).values()]
    for number, place in enumerate(given_places):
        usage = ResourceMap(resources=resources(place.used_by_others(estimate)))
        status = NodeMetricStatus(update_time=NOW, node_metric=NodeMetricInfo(node_usage=usage))
        fixture.report(NodeMetric(metadata=ObjectMeta(name=f"n{number}"), status=status), f"n{number}")
    return fixture, pod_of("incoming", wish)


def fit_by(strategy: str, shape: Sequence[tuple[int, int]] = ()) -> Mapping[str, Any]:
    """CPU and memory alone: only these are ever computed in floating point."""
    points = [UtilizationShapePoint(utilization=x, score=y) for x, y in shape]
    scoring = ScoringStrategy(
        type=strategy,
        resources=[ResourceSpec(name=name, weight=weight) for name, weight in WEIGHTS.items()],
        requested_to_capacity_ratio=RequestedToCapacityRatio(shape=points) if shape else None,
    )
    return {"NodeResourcesFit": NodeResourcesFitArgs(scoring_strategy=scoring)}


FIT_SCORES: dict[str, tuple[Mapping[str, Any], Any]] = {
    "least allocated": (fit_by("LeastAllocated"), reference.least_allocated),
    "most allocated": (fit_by("MostAllocated"), reference.most_allocated),
    "by a shape": (
        fit_by("RequestedToCapacityRatio", SHAPE),
        lambda machine, pod, weights: reference.requested_to_capacity_ratio(machine, pod, weights, SHAPE),
    ),
}


@pytest.mark.parametrize(("arguments", "plain"), FIT_SCORES.values(), ids=FIT_SCORES)
@SETTINGS
@given(seed=seeds)
def test_allocation_scores(arguments: Mapping[str, Any], plain: Any, seed: int) -> None:
    fixture, pod = occupied(seed, arguments)
    assert scores(fixture, "NodeResourcesFit", pod) == expected(fixture, lambda machine: plain(machine, pod, WEIGHTS))


@SETTINGS
@given(seed=seeds)
def test_balanced_allocation(seed: int) -> None:
    names = ["cpu", "memory"]
    args = NodeResourcesBalancedAllocationArgs(resources=[ResourceSpec(name=name) for name in names])
    fixture, pod = occupied(seed, {"NodeResourcesBalancedAllocation": args})
    wanted = expected(fixture, lambda machine: reference.balanced(machine, pod, names))
    found = scores(fixture, "NodeResourcesBalancedAllocation", pod)
    assert found == (None if None in wanted.values() else wanted)


LOAD = load_args(
    usage_thresholds={"cpu": 65, "memory": 95},
    resource_weights=WEIGHTS,
    estimated_scaling_factors={"cpu": 100, "memory": 100},
)


@SETTINGS
@given(seed=seeds)
def test_load_score(seed: int) -> None:
    fixture, pod = measured(seed, {"LoadAwareScheduling": LOAD})
    wanted = expected(fixture, lambda machine: reference_load.load_aware_score(machine, pod, LOAD, NOW))
    assert scores(fixture, "LoadAwareScheduling", pod) == wanted


@SETTINGS
@given(seed=seeds)
def test_load_thresholds(seed: int) -> None:
    fixture, pod = measured(seed, {"LoadAwareScheduling": LOAD})
    wanted = expected(fixture, lambda machine: reference_load.load_aware_filter(machine, pod, LOAD, NOW))
    assert filter_results(fixture, "LoadAwareScheduling", pod) == wanted


@SETTINGS
@given(seed=seeds)
def test_fit(seed: int) -> None:
    fixture, pod = occupied(seed, {})
    found = {node: sorted(reasons) for node, reasons in filter_results(fixture, "NodeResourcesFit", pod).items()}
    assert found == expected(fixture, lambda machine: sorted(reference.fit(machine, pod)))
