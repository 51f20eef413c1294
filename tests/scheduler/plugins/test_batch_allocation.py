"""Kinds of pods that are scored together get what each gets by itself, whichever resources are scored for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration.upstream_arguments import ResourceSpec
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PodRequest
from koordinator.scheduler.plugins.node_resources.allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    AllocationScorer,
    BatchAllocation,
    Scorer,
)
from koordinator.scheduler.plugins.node_resources.balanced_allocation import BALANCED
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod

SCORERS: dict[str, Scorer] = {"least": LEAST_ALLOCATED, "most": MOST_ALLOCATED, "balanced": BALANCED}
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
KINDS = st.tuples(st.integers(0, 9000), st.integers(0, 1 << 34), st.booleans(), st.booleans())
NODES = st.tuples(st.integers(0, 16), st.sampled_from([0, 1 << 30, 1 << 34, 1 << 50]), st.sampled_from([0, 8000]))


@pytest.mark.parametrize("scorer", SCORERS)
@settings(max_examples=examples(60))
@given(st.lists(NODES, min_size=1, max_size=5), st.lists(KINDS, min_size=1, max_size=6), st.booleans())
def test_kinds_together_get_what_each_gets_by_itself(
    scorer: str, nodes: list[tuple[int, int, int]], kinds: list[tuple[int, int, bool, bool]], non_zero: bool
) -> None:
    columns = NodeColumns()
    for number, (cpu, memory, batch) in enumerate(nodes):
        node = make_node(f"n{number}", cpu=str(cpu), memory=str(memory))
        more = {name: Quantity.from_value(batch) for name in BATCH}
        columns.set_node(replace(node, status=replace(node.status, allocatable={**node.status.allocatable, **more})))
    weights = [
        ResourceSpec(name=name, weight=weight)
        for name, weight in (("cpu", 1), ("memory", 2), (BATCH[0], 3), (BATCH[1], 1))
    ]
    by_itself = AllocationScorer(columns, weights, SCORERS[scorer])
    together = BatchAllocation(by_itself)
    allocations = []
    for slot, (cpu, memory, is_batch, has_both) in enumerate(kinds):
        own = dict.fromkeys(BATCH[: 1 + has_both], cpu) if is_batch else {}
        pod = describe(make_pod(f"p{slot}", cpu=f"{cpu}m", memory=str(memory)))
        pod.request = PodRequest({**pod.request.amounts, **own}, pod.request.non_zero)
        columns.add_request(slot % columns.size, pod.request.counted, pod.request.non_zero)
        allocations.append(by_itself.prepare(pod, non_zero=non_zero))
        together.put(slot, pod, allocations[-1])
    rows = np.arange(columns.size, dtype=np.intp)
    expected = [[by_itself.score(allocation, row) for allocation in allocations] for row in rows.tolist()]
    assert together.evaluate(rows).tolist() == expected


def test_what_pods_request_of_a_resource_before_a_node_offers_it_counts_in_arrays_as_it_does_in_integers() -> None:
    columns = NodeColumns()
    columns.set_node(make_node("n", cpu="16", memory=str(1 << 34)))
    for _ in range(2):
        columns.add_request(0, {"cpu": 1000, BATCH[0]: 2000}, (1000, 200))
    node = make_node("n", cpu="16", memory=str(1 << 34))
    offered = {**node.status.allocatable, BATCH[0]: Quantity.from_value(8000)}
    columns.set_node(replace(node, status=replace(node.status, allocatable=offered)))
    scorer = AllocationScorer(columns, [ResourceSpec(name="cpu"), ResourceSpec(name=BATCH[0])], LEAST_ALLOCATED)
    pod = describe(make_pod("p", cpu="1", memory="1"))
    pod.request = PodRequest({**pod.request.amounts, BATCH[0]: 1000}, pod.request.non_zero)
    allocation = scorer.prepare(pod, non_zero=True)
    scores = scorer.score(allocation, np.arange(1, dtype=np.intp)).tolist()
    # 13 of 16 CPUs are free, and 3000 of 8000.
    assert scores == [scorer.score(allocation, 0)] == [(81 + 37) // 2]
