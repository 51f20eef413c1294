"""One object that nobody has thought of ends no cycle, and changes nothing for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.descheduler.framework import Plan
from koordinator.descheduler.plugins.table import DECIDING
from tests.descheduler.clusters import (
    NOW,
    PLUGIN_ARGS,
    evicted,
    make_metric,
    make_node,
    make_plugin,
    make_pod,
    make_snapshot,
)

_MOST: Final = str(2**63 - 1)
_ANNOTATIONS: Final = {
    "node.koordinator.sh/raw-allocatable": "soon",
    "scheduling.koordinator.sh/eviction-cost": "9" * 5000,
    "controller.kubernetes.io/pod-deletion-cost": "+1",
    "scheduling.koordinator.sh/soft-eviction": "[",
}
_TERM: Final = {"matchExpressions": [{"key": "", "operator": "Near", "values": ["x"]}]}
_SPREAD: Final = {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _TERM}
_AFFINITY: Final = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}},
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "", "labelSelector": _TERM}, {}]
    },
}
NODES: Final[Mapping[str, Node]] = {
    "that offers all there is": make_node("odd", cpu=_MOST, memory=_MOST, pods=_MOST),
    "that offers less than nothing": make_node("odd", cpu="-1", memory="-1Gi", pods="-1"),
    "that offers nothing": make_node("odd", cpu="0", memory="0", pods="0"),
    "with annotations that cannot be read": make_node("odd", annotations=_ANNOTATIONS),
    "with annotations beyond all amounts": make_node(
        "odd", annotations={"node.koordinator.sh/raw-allocatable": f'{{"cpu":"{_MOST}E","memory":"-1"}}'}
    ),
    "with a taint that says nothing": make_node("odd", taints=[{}, {"effect": "Never"}]),
}
PODS: Final[Mapping[str, Pod]] = {
    "that requests all there is": make_pod("odd", "odd", requests={"cpu": _MOST, "memory": _MOST, "pods": _MOST}),
    "that requests all there is twice": make_pod(
        "odd",
        "odd",
        spec={"containers": [{"name": name, "resources": {"requests": {"memory": "8Ei"}}} for name in "ab"]},
    ),
    "that requests less than nothing": make_pod("odd", "odd", requests={"cpu": "-1", "memory": _MOST}),
    "with annotations that cannot be read": make_pod("odd", "odd", annotations=_ANNOTATIONS),
    "with rules that cannot be read": make_pod(
        "odd", "odd", spec={"affinity": _AFFINITY, "topologySpreadConstraints": [_SPREAD, {}], "tolerations": [{}]}
    ),
    "from the beginning of time": make_pod("odd", "odd", creationTimestamp="0001-01-01T00:00:00Z"),
    "from the end of time": make_pod("odd", "odd", creationTimestamp="9999-12-31T23:59:59Z"),
    "with an owner that has no name": make_pod("odd", "odd", ownerReferences=[{"controller": True}]),
    "of which nothing is known": make_pod("odd", "odd", owner=None, creationTimestamp=None, status={"phase": ""}),
}
TWICE: Final = [
    {"namespace": "default", "name": "odd", "podUsage": {"resources": {"cpu": "1"}}},
    {"namespace": "default", "name": "odd", "podUsage": {"resources": {"cpu": "2"}}},
    {"namespace": "default", "name": "web-1", "podUsage": {"resources": {"cpu": "9"}}},
]
METRICS: Final[Mapping[str, NodeMetric]] = {
    "of more than there is": make_metric("odd", {"odd": f"{_MOST}E"}, system=_MOST, memory={"odd": _MOST}),
    "of less than nothing": make_metric("odd", {"odd": "-5"}, system=f"-{_MOST}", memory={"odd": f"-{_MOST}"}),
    "from the end of time": make_metric("odd", {"odd": "1"}, age=-200 * 365 * 86400),
    "from the beginning of time": make_metric("odd", {"odd": "1"}, age=2000 * 365 * 86400),
    "of pods twice, and of pods of others": convert(
        {
            "metadata": {"name": "odd"},
            "status": {"updateTime": format_time(NOW), "nodeMetric": {}, "podsMetric": TWICE},
        },
        NodeMetric,
    ),
}


def _plan(name: str, node: Node | None = None, pod: Pod | None = None, metric: NodeMetric | None = None) -> Plan:
    """What a plugin makes of two nodes, hot and cool, and of the odd objects beside them."""
    nodes = [make_node("hot", labels={"class": "dear"}), make_node("cool", labels={"class": "cheap"})]
    pods = [
        make_pod(f"web-{number}", "hot" if number else "cool", requests={"cpu": "500m", "memory": "1Gi"})
        for number in range(6)
    ]
    metrics = [make_metric("hot", {f"web-{number}": "500m" for number in range(1, 6)}), make_metric("cool", {})]
    odd = node is not None or pod is not None or metric is not None
    if odd:
        nodes.append(node or make_node("odd"))
        pods += [pod] if pod is not None else []
        metrics.append(metric or make_metric("odd", {"odd": "100m"}))
    plugin = make_plugin(name, PLUGIN_ARGS[name])
    snapshot = make_snapshot(nodes, pods, metrics)
    plan: Plan = (plugin.balance if hasattr(plugin, "balance") else plugin.deschedule)(snapshot)
    return plan


def test_every_plugin_is_tried() -> None:
    assert PLUGIN_ARGS.keys() == DECIDING.keys()


@pytest.mark.parametrize("plugin", sorted(PLUGIN_ARGS))
@pytest.mark.parametrize("what", NODES)
def test_a_node(plugin: str, what: str) -> None:
    evicted(_plan(plugin, node=NODES[what], pod=make_pod("odd", "odd", requests={"cpu": "100m"})))


@pytest.mark.parametrize("plugin", sorted(PLUGIN_ARGS))
@pytest.mark.parametrize("what", PODS)
def test_a_pod(plugin: str, what: str) -> None:
    evicted(_plan(plugin, pod=PODS[what]))


@pytest.mark.parametrize("what", METRICS)
def test_a_report_does_not_keep_a_hot_node_hot(what: str) -> None:
    names = evicted(_plan("LowNodeLoad", metric=METRICS[what]))
    assert [name for name in names if name.startswith("web")] == evicted(_plan("LowNodeLoad"))
