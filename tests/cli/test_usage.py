"""What classes of pods have been given, use and could use."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.cli.usage import Amounts, reading_of, usage_of_cluster, usage_of_nodes, usage_of_pods

MI = 1 << 20


def pod(name: str, priority: int, requests: dict[str, str], node: str = "n1", phase: str = "Running") -> Pod:
    container = {"name": "main", "resources": {"requests": requests}}
    document = {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": node, "priority": priority, "containers": [container]},
        "status": {"phase": phase},
    }
    return convert(document, Pod)


def measured(name: str, cpu: str, memory: str, **extensions: Any) -> dict[str, Any]:
    usage = {"resources": {"cpu": cpu, "memory": memory}}
    return {"name": name, "namespace": "shop", "podUsage": usage, "extensions": {"Object": extensions}}


NODE = convert(
    {
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "64Mi", "kubernetes.io/batch-cpu": "5000"}},
    },
    Node,
)
WEB = pod("web", 9500, {"cpu": "2", "memory": "32Mi"})
SPARK = pod("spark", 5500, {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "8388608"})
DOWN = {"suppression": {"cpus": 1.5, "since": "then", "why": "busy"}}
METRIC = convert(
    {
        "metadata": {"name": "n1"},
        "status": {
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "3", "memory": "40Mi"}}},
            "podsMetric": [measured("web", "500m", "16Mi"), measured("spark", "1500m", "4Mi", **DOWN)],
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "1200m"}}},
        },
    },
    NodeMetric,
)
READINGS = {"n1": reading_of(METRIC)}


def test_each_class_of_a_node_has_its_sums() -> None:
    (node,) = usage_of_nodes([NODE], usage_of_pods([WEB, SPARK], READINGS), READINGS)
    prod, batch = node.classes["koord-prod"], node.classes["koord-batch"]
    assert (node.allocatable, node.measured) == (Amounts(8000, 64 * MI), Amounts(3000, 40 * MI))
    assert (prod.allocated, prod.measured, prod.reclaimable.cpu) == (
        Amounts(2000, 32 * MI),
        Amounts(500, 16 * MI),
        1200,
    )
    assert (batch.allocated, batch.measured.cpu, batch.reclaimable.cpu) == (Amounts(3000, 8 * MI), 1500, 5000)


def test_what_a_node_leaves_to_free_pods_is_theirs() -> None:
    left = {"kubernetes.io/free-cpu": "1500", "kubernetes.io/free-memory": "1Mi"}
    node = convert({"metadata": {"name": "n1"}, "status": {"allocatable": left}}, Node)
    scan = pod("scan", 3500, {"kubernetes.io/free-cpu": "500", "kubernetes.io/free-memory": "524288"})
    (found,) = usage_of_nodes([node], usage_of_pods([scan], {}), {})
    free = found.classes["koord-free"]
    assert (free.reclaimable, free.allocated) == (Amounts(1500, MI), Amounts(500, MI // 2))


def test_suppression_takes_what_the_pods_lack_of_their_requests() -> None:
    (node,) = usage_of_nodes([NODE], usage_of_pods([WEB, SPARK], READINGS), READINGS)
    assert {name: usage.suppressed for name, usage in node.classes.items()} == {"koord-prod": 0, "koord-batch": 1500}


def test_the_cluster_is_the_sum_of_its_nodes_the_most_important_class_first() -> None:
    other = convert({"metadata": {"name": "n2"}}, Node)
    pods = usage_of_pods([SPARK, WEB, pod("more", 9500, {"cpu": "1"}, "n2")], READINGS)
    found = usage_of_cluster(usage_of_nodes([NODE, other], pods, READINGS))
    assert [(each.name, each.pods, each.allocated.cpu) for each in found] == [
        ("koord-prod", 2, 3000),
        ("koord-batch", 1, 3000),
    ]


def test_a_pod_that_has_ended_or_has_no_node_counts_nowhere() -> None:
    assert usage_of_pods([pod("done", 0, {}, phase="Succeeded"), pod("new", 0, {}, node="")], {}) == []


def test_what_has_not_been_reported_is_unknown_and_not_zero() -> None:
    (web,) = usage_of_pods([WEB], {})
    assert (web.key, web.class_name, web.measured) == ("shop/web", "koord-prod", None)
