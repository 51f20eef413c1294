"""How long LowNodeLoad plans one cycle, and in how much memory: ``python -m benchmarks.descheduler_cycle``.

The snapshot is made of decoded objects, as informers keep them, before the clock starts. A tenth of the nodes is hot.
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

from koordinator.api.codec import decode, encode
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    Eviction,
    Evictor,
    Handle,
    Plan,
    Refusals,
    Snapshot,
)
from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition, LowNodeLoadArgs
from koordinator.descheduler.plugins.low_node_load.plugin import LowNodeLoad

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_CPU_OF_NODE = 32_000


class Permissive(Evictor):
    """Lets every pod be evicted; what filters cost is their own matter."""

    def filter(self, pod: Pod) -> Refusals:
        return NOTHING_REFUSED

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        return NOTHING_REFUSED


def make_snapshot(nodes: int, pods: int, hot: float, random: Random) -> Snapshot:
    """``hot`` is the share of nodes whose pods use more than half of them."""
    per_node = pods // nodes
    made: list[Node] = []
    by_node: dict[str, Sequence[Pod]] = {}
    metrics: dict[str, NodeMetric] = {}
    for index in range(nodes):
        node, usages = describe_node(index), usages_of(index, per_node, hot, random)
        name = node["metadata"]["name"]
        made.append(_decoded(Node, node))
        by_node[name] = [_decoded(Pod, describe_pod(pod, name, random)) for pod in usages]
        metrics[name] = _decoded(NodeMetric, describe_report(name, usages))
    return Snapshot(nodes=made, pods_by_node=by_node, now=_NOW, node_metrics=metrics)


def _decoded(kind: type[Any], document: Mapping[str, Any]) -> Any:
    return decode(encode(document), kind)


def usages_of(index: int, pods: int, hot: float, random: Random) -> dict[str, int]:
    """The milli-CPU that each pod of a node uses, by name."""
    mean = (0.8 if random.random() < hot else 0.2) * _CPU_OF_NODE / pods
    return {f"pod-{index:05}-{number}": int(mean * random.uniform(0.5, 1.5)) for number in range(pods)}


def describe_node(index: int) -> dict[str, Any]:
    name = f"node-{index:05}"
    amounts = {"cpu": str(_CPU_OF_NODE // 1000), "memory": "128Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": {"allocatable": amounts}}


def describe_pod(name: str, node: str, random: Random) -> dict[str, Any]:
    requests = {"cpu": f"{random.choice((100, 250, 500))}m", "memory": "1Gi"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0123", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"app": "web", "koordinator.sh/qosClass": random.choice(("LS", "BE"))},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "priority": random.choice((5500, 9500)),
            "containers": [{"name": "main", "image": "web", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def describe_report(name: str, usages: Mapping[str, int]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {"systemUsage": {"resources": {"cpu": "500m", "memory": "2Gi"}}},
            "podsMetric": [
                {"name": pod, "namespace": "default", "podUsage": {"resources": {"cpu": f"{usage}m", "memory": "1Gi"}}}
                for pod, usage in usages.items()
            ],
        },
    }


def carried_out(plan: Plan) -> list[Eviction]:
    """All evictions of a plan that succeed."""
    evictions = []
    try:
        step = next(plan)
        while True:
            if isinstance(step, Eviction):
                evictions.append(step)
            step = plan.send(True)
    except StopIteration:
        return evictions


def measure(nodes: int, pods: int, hot: float) -> dict[str, Any]:
    snapshot = make_snapshot(nodes, pods, hot, Random(1))
    args = LowNodeLoadArgs(
        low_thresholds={"cpu": 30, "memory": 60},
        high_thresholds={"cpu": 50, "memory": 80},
        anomaly_condition=AnomalyCondition(consecutive_abnormalities=1),
    )
    # A plugin that decides has no use for the rest of a handle.
    nothing = cast("Any", None)
    handle = Handle("bench", nothing, nothing, Permissive(), nothing, nothing, nothing, nothing)
    plugin = LowNodeLoad(args.completed("args"), handle)
    begun, cpu = time.perf_counter(), time.process_time()
    evictions = carried_out(plugin.balance(snapshot))
    seconds = time.perf_counter() - begun
    return {
        "benchmark": "descheduler_cycle",
        "nodes": nodes,
        "pods": pods,
        "hot_nodes": len({each.pod.spec.node_name for each in evictions}),
        "evictions": len(evictions),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--hot", type=float, default=0.1)
    options = parser.parse_args()
    print(json.dumps(measure(options.nodes, options.pods, options.hot)))


if __name__ == "__main__":
    main()
