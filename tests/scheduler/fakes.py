"""Small plugins and objects for tests of the engine and the loop: what fits is a matter of cpu, memory and a label."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration.upstream_arguments import DefaultPreemptionArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    default_normalize,
)
from koordinator.scheduler.engine.pod_info import PodInfo, PodRequest
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_preemption import DefaultPreemption


def make_node(name: str, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **changes: Any) -> Node:
    """A node with allocatable resources; ``unschedulable``, ``labels`` and ``capacity`` as named."""
    resources = {"cpu": cpu, "memory": memory, "pods": pods}
    return Node(
        metadata=ObjectMeta(name=name, uid=f"node-{name}", labels=changes.get("labels", {})),
        spec=NodeSpec(unschedulable=changes.get("unschedulable", False)),
        status=NodeStatus(
            capacity={key: Quantity.parse(value) for key, value in changes.get("capacity", {}).items()},
            allocatable={key: Quantity.parse(value) for key, value in resources.items()},
        ),
    )


def make_pod(name: str, cpu: str = "1", memory: str = "1Gi", **changes: Any) -> Pod:
    """A pod of namespace ``default`` with one container; ``node``, ``priority``, ``labels``, ``scheduler`` as named."""
    requests = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(memory)}
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=changes.get("uid", f"uid-{name}"), labels=changes.get("labels", {})
        ),
        spec=PodSpec(
            node_name=changes.get("node", ""),
            scheduler_name=changes.get("scheduler", "koord-scheduler"),
            priority=changes.get("priority", 0),
            preemption_policy=changes.get("preemption_policy"),
            containers=[Container(name="main", resources=ResourceRequirements(requests=requests))],
        ),
    )


def describe(pod: Pod) -> PodInfo:
    """A PodInfo from the containers' requests of cpu and memory."""
    cpu = sum(c.resources.requests["cpu"].milli for c in pod.spec.containers if "cpu" in c.resources.requests)
    memory = sum(c.resources.requests["memory"].value for c in pod.spec.containers if "memory" in c.resources.requests)
    request = PodRequest({name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}, (cpu, memory))
    return PodInfo(pod, request, pod.metadata.key, pod.metadata.uid, pod.spec.priority or 0)


class Unschedulable(FilterPlugin):
    """Nodes that are cordoned."""

    name = "Unschedulable"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        codes: Ints = self.view.columns.unschedulable[rows].astype(np.int64)
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) were unschedulable", unresolvable=True),)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_TAINT})


class Fit(FilterPlugin, ScorePlugin):
    """Enough cpu, memory and room for one more pod; prefers the node with the most free cpu."""

    name = "Fit"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.filtered_rows = 0

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.request.non_zero

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        self.filtered_rows += rows.size
        columns = self.view.columns
        codes = np.zeros(rows.size, dtype=np.int64)
        for bit, name in enumerate(("cpu", "memory", "pods")):
            column = columns.resources.column_of[name]
            free = columns.allocatable[rows, column] - columns.requested[rows, column]
            codes |= (pod.request.counted.get(name, 0) > free).astype(np.int64) << bit
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        texts = ("Insufficient cpu", "Insufficient memory", "Too many pods")
        return tuple(Reason(text) for bit, text in enumerate(texts) if code >> bit & 1)

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        columns = self.view.columns
        free = columns.allocatable[rows, CPU] - columns.requested[rows, CPU]
        scores: Ints = np.maximum(free * 100 // np.maximum(columns.allocatable[rows, CPU], 1), 0)
        return scores

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_ALLOCATABLE, EventKind.POD_DELETE})


class Rank(ScorePlugin):
    """The node's label ``rank``, scaled by the largest feasible one: a score that depends on other nodes."""

    name = "Rank"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        nodes = [self.view.columns.nodes[row] for row in rows.tolist()]
        return np.array([int(node.metadata.labels.get("rank", "0")) if node else 0 for node in nodes], dtype=np.int64)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=False)


class OnlyNodes(PreFilterPlugin):
    """The pod's label ``only`` names the one node to look at; ``never`` rejects all."""

    name = "OnlyNodes"

    def class_key(self, pod: PodInfo) -> Hashable:
        labels = pod.pod.metadata.labels
        return labels.get("only"), labels.get("never")

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        labels = pod.pod.metadata.labels
        if "never" in labels:
            return PreFilterResult(rejection=Reason(labels["never"]))
        only = labels.get("only")
        return PreFilterResult(node_names=frozenset({only}) if only else None)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_UPDATE})


def make_profile(view: ClusterView, *, preempts: bool = False, name: str = "koord-scheduler") -> Profile:
    """A profile of the plugins above."""
    plugins: dict[str, Plugin] = {plugin.name: plugin(None, view) for plugin in (OnlyNodes, Unschedulable, Fit, Rank)}
    if preempts:
        plugins["DefaultPreemption"] = DefaultPreemption(DefaultPreemptionArgs(), view)
    order = PluginOrder(
        pre_filter=("OnlyNodes",),
        filter=("Unschedulable", "Fit"),
        post_filter=("DefaultPreemption",) if preempts else (),
        score=(("Fit", 1), ("Rank", 2)),
    )
    return Profile(name, plugins, order)


def make_state(nodes: Iterable[Node] = ()) -> ClusterState:
    """A cluster of these nodes, without event handlers."""
    state = ClusterState(ClusterView(NodeColumns()))
    for node in nodes:
        state.set_node(node)
    return state


class FirstChoice:
    """Randomness that always takes the first."""

    def randrange(self, stop: int, /) -> int:
        return 0
