"""Scores by what is allocated on the NUMA nodes that a pod would use; figures of the original's own tests."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pytest

from koordinator.api import annotations as annotation_keys
from koordinator.api.cpu_list import format_cpu_list
from koordinator.scheduler.configuration.koordinator_arguments import AllocationStrategy, NodeNUMAResourceArgs
from koordinator.scheduler.configuration.upstream_arguments import ResourceSpec
from koordinator.scheduler.engine.framework import SkipScore
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer
from tests.scheduler.fakes import describe, make_node
from tests.scheduler.ground.clusters import Cluster
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, pod, topology

_BOTH: Final = [ResourceSpec(name="cpu"), ResourceSpec(name="memory")]
_POLICY: Final = "node.koordinator.sh/numa-topology-policy"


class Packing(NUMA):
    """Prefers nodes of which more is allocated, and NUMA nodes of which less is."""

    def __init__(self, args: Any, view: ClusterView) -> None:
        most = AllocationStrategy(type="MostAllocated", resources=_BOTH)
        super().__init__(NodeNUMAResourceArgs(scoring_strategy=most), view)


def scores(incoming: Any, nodes: dict[str, tuple[int, int, int]], held: dict[str, list[Any]], policy: str) -> list[int]:
    """The scores of ``nodes``: CPUs, GiB and NUMA nodes of each; ``held`` are pods there."""
    labels = {_POLICY: policy}
    made = [
        make_node(name, cpu=str(cpus), memory=f"{size}Gi", labels=labels) for name, (cpus, size, _) in nodes.items()
    ]
    cluster = Cluster(made, Packing)
    for name, (cpus, size, count) in nodes.items():
        reported = topology(name, numa_nodes=count, cores=cpus // count // 2, memory=f"{size // count}Gi")
        cluster.state.set_node_object("NodeResourceTopology", name, reported)
        for each in held.get(name, []):
            cluster.bound(each, name)
    plugin = cluster.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    info, rows = describe(incoming), cluster.view.columns.alive_rows
    state = plugin.pre_score(info)
    found = plugin.score(info, state, rows).tolist()
    assert found == [plugin.score_one(info, state, row) for row in rows.tolist()]
    kernel = plugin.batch_score()
    kernel.put(0, info, state)
    together = kernel.evaluate(rows)
    assert together is not None
    assert np.array_equal(together[:, 0], found)
    return [int(each) for each in found]


def holding(name: str, cpu: int, memory: str, *, bound: bool = False) -> Any:
    """A pod with this of the first NUMA node, and as many CPUs if it is bound."""
    amounts = {"cpu": str(cpu), "memory": memory}
    status: dict[str, Any] = {"numaNodeResources": [{"node": 0, "resources": amounts}]}
    if bound:
        status["cpuset"] = format_cpu_list(range(cpu))
    annotations = {annotation_keys.RESOURCE_STATUS: json.dumps(status)}
    return pod(name, str(cpu), memory, qos="LSR" if bound else "LS", annotations=annotations)


_LARGE: Final = (104, 256, 2)
_THREE: Final = dict.fromkeys("abc", _LARGE)
_HELD: Final = {"a": (4, "8Gi"), "b": (8, "32Gi"), "c": (16, "40Gi")}


@pytest.mark.parametrize(
    ("policy", "cpu", "expected"), [("SingleNUMANode", "21", [35, 31]), ("Restricted", "50", [63, 54])]
)
def test_the_numa_node_that_the_pod_gets_is_scored(policy: str, cpu: str, expected: list[int]) -> None:
    incoming = pod("p", cpu, "40Gi", qos="LS")

    assert scores(incoming, {"a": _LARGE, "b": (64, 128, 1)}, {}, policy) == expected


def test_what_others_hold_of_another_numa_node_does_not_matter() -> None:
    held = {"a": [holding("x", 4, "8Gi")], "b": [holding("y", 8, "32Gi")], "c": [holding("z", 32, "40Gi")]}

    assert scores(pod("p", "4", "40Gi", qos="LS"), _THREE, held, "SingleNUMANode") == [19, 19, 19]


def test_all_bound_cpus_of_the_node_count_for_a_pod_that_is_bound() -> None:
    held = {
        name: [holding(f"u{name}", *amounts), holding(f"b{name}", *amounts, bound=True)]
        for name, amounts in _HELD.items()
    }

    assert scores(pod("p", "4", "40Gi"), _THREE, held, "SingleNUMANode") == [23, 27, 34]


def test_a_bound_pod_scores_nothing_where_it_cannot_be_bound() -> None:
    cluster = Cluster([make_node("a")], Packing)
    plugin = cluster.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    info = describe(pod("p"))

    assert plugin.score_one(info, plugin.pre_score(info), 0) == 0


def test_a_pod_without_requests_is_not_scored() -> None:
    cluster = Cluster([make_node("a")], Packing)
    plugin = cluster.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)

    assert isinstance(plugin.pre_score(describe(pod("p", "0", "0"))), SkipScore)


@pytest.mark.parametrize(
    ("most", "requested", "expected"),
    [
        (False, {"cpu": 2000, "memory": 0}, 62),
        (True, {"cpu": 2000, "memory": 0}, 37),
        (False, {"cpu": 9000, "memory": 0}, 50),
        (True, {"cpu": 9000, "memory": 0}, 50),
        (False, {}, 87),
    ],
)
def test_resources_are_weighed(most: bool, requested: dict[str, int], expected: int) -> None:
    resources = [*_BOTH, ResourceSpec(name="example.com/card"), ResourceSpec(name="pods")]
    scorer = NUMAScorer(resources, most=most)

    found = scorer.score(requested, {"cpu": 4000, "memory": 100, "example.com/card": 1, "pods": 9}, {"cpu": 1000})

    assert found == expected
