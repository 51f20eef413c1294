"""Random small clusters: nodes, pods and reports, and the events that change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, PodMetricInfo, ResourceMap
from koordinator.api.pod import (
    Affinity,
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import EventHandler, Plugin
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.scheduler.plugins.placement_rules import node_affinities, ports, taints, tolerations
from tests.scheduler.plugins.reference import Machine

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EXTENDED = "example.com/widget"
_ARGUMENTS = default_configuration().profiles[0].arguments

small = st.integers(min_value=0, max_value=4)
labels = st.dictionaries(st.sampled_from(["zone", "size"]), st.sampled_from(["a", "b", "1", "2"]))


OF_WHOLE_PODS = ("cpu", "memory", "hugepages-2Mi")
OF_NODES = {
    "ephemeral-storage": Quantity.from_value(2**30),
    "hugepages-2Mi": Quantity.from_value(2**22),
    "kubernetes.io/batch-cpu": Quantity.from_value(2000),
    "other.org/gadget": Quantity.from_value(2),
    EXTENDED: Quantity.from_value(3),
}
"""What only some nodes have, and how much."""


def some_of_nodes(number: int) -> dict[str, Quantity]:
    """Those that ``number`` has a bit for."""
    return {name: amount for index, (name, amount) in enumerate(OF_NODES.items()) if number >> index & 1}


UNITS: Mapping[str, Quantity] = {
    "cpu": Quantity.from_milli(500),
    "memory": Quantity.from_value(2**28),
    "ephemeral-storage": Quantity.from_value(2**28),
    "hugepages-2Mi": Quantity.from_value(2**20),
    "kubernetes.io/batch-cpu": Quantity.from_value(500),
    "other.org/gadget": Quantity.from_value(1),
    EXTENDED: Quantity.from_value(1),
}


def resource_lists(names: Sequence[str] = tuple(UNITS)) -> st.SearchStrategy[dict[str, Quantity]]:
    """Up to four units of each. One number holds the whole list, a digit for each resource: that is quick to draw."""

    def decode(number: int) -> dict[str, Quantity]:
        digits = {name: number // 8**index % 8 for index, name in enumerate(names)}
        return {name: Quantity(UNITS[name].nanos * (digit - 3)) for name, digit in digits.items() if digit >= 3}

    return st.integers(0, 8 ** len(names) - 1).map(decode)


@st.composite
def requirements_of_container(draw: st.DrawFn, names: Sequence[str] = tuple(UNITS)) -> ResourceRequirements:
    requests = draw(resource_lists(names))
    return ResourceRequirements(
        requests=requests,
        limits={key: amount for key, amount in draw(resource_lists(names)).items() if key in requests},
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    allocatable = {
        "cpu": Quantity.from_milli(draw(small) * 1000),
        "memory": Quantity.from_value(draw(small) * 2**29),
        "pods": Quantity.from_value(draw(st.integers(0, 4))),
        **draw(st.integers(0, 2 ** len(OF_NODES) - 1).map(some_of_nodes)),
    }
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=draw(labels)),
        spec=NodeSpec(unschedulable=draw(st.booleans()), taints=draw(st.lists(taints, max_size=2))),
        status=NodeStatus(allocatable=allocatable),
    )


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    containers = [
        Container(
            name=f"c{index}", resources=draw(requirements_of_container()), ports=draw(st.lists(ports, max_size=1))
        )
        for index in range(draw(st.integers(1, 2)))
    ]
    initial = [
        Container(
            name=f"i{index}",
            resources=draw(requirements_of_container()),
            ports=draw(st.lists(ports, max_size=1)),
            restart_policy=draw(st.sampled_from([None, "Always"])),
        )
        for index in range(draw(st.sampled_from([0, 0, 0, 1, 2])))
    ]
    # Whole seconds, as the API has them; on both sides of the reports' times.
    scheduled = NOW - timedelta(seconds=draw(st.integers(0, 240)))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        spec=PodSpec(
            containers=containers,
            init_containers=initial,
            overhead=draw(st.just({}) | resource_lists()),
            resources=draw(st.none() | requirements_of_container(OF_WHOLE_PODS)),
            priority=draw(st.sampled_from([None, 0, 5500, 9500])),
            tolerations=draw(st.lists(tolerations, max_size=2)),
            node_selector=draw(st.sampled_from([{}, {"zone": "a"}])),
            affinity=draw(st.none() | st.builds(Affinity, node_affinity=node_affinities)),
        ),
        status=PodStatus(conditions=[PodCondition(type="PodScheduled", status="True", last_transition_time=scheduled)]),
    )


@st.composite
def resizes(draw: st.DrawFn, pod: Pod) -> Pod:
    """How a pod looks that has been resized, is being so, or cannot be."""
    granted = st.builds(ResourceRequirements, requests=resource_lists())

    def status(container: Container) -> ContainerStatus:
        allocated = draw(st.just({}) | resource_lists())
        return ContainerStatus(name=container.name, resources=draw(st.none() | granted), allocated_resources=allocated)

    reason = draw(st.sampled_from(["", "Deferred", "Infeasible"]))
    pending = [PodCondition(type="PodResizePending", status="True", reason=reason)] if reason else []
    return msgspec.structs.replace(
        pod,
        status=msgspec.structs.replace(
            pod.status,
            conditions=[*pod.status.conditions, *pending],
            container_statuses=[status(each) for each in pod.spec.containers],
            init_container_statuses=[status(each) for each in pod.spec.init_containers],
        ),
    )


@st.composite
def metrics(draw: st.DrawFn, name: str, pod_names: list[str]) -> NodeMetric:
    def usage() -> ResourceMap:
        return ResourceMap(
            resources={
                "cpu": Quantity.from_milli(draw(st.integers(0, 4000))),
                "memory": Quantity.from_value(draw(st.integers(0, 2**31))),
            }
        )

    reported = [each for each in pod_names if draw(st.booleans())]
    info = NodeMetricInfo(node_usage=usage(), system_usage=usage()) if draw(st.integers(0, 9)) else None
    return NodeMetric(
        metadata=ObjectMeta(name=name),
        status=NodeMetricStatus(
            update_time=NOW - timedelta(seconds=draw(st.integers(0, 300))) if draw(st.integers(0, 9)) else None,
            node_metric=info,
            pods_metric=[
                PodMetricInfo(
                    name=each,
                    namespace="default",
                    pod_usage=usage(),
                    priority=draw(st.sampled_from(["koord-prod", "koord-batch"])),
                )
                for each in reported
            ],
        ),
    )


Variants = Mapping[str, tuple[str, Any]]
"""Name -> the plugin that it is, and its arguments."""


class ClusterFixture:
    """A cluster state with plugins on it, and beside it the plain picture that the reference reads.

    ``variants`` are plugins with other arguments, under names of their own: drawing a cluster costs more than to ask a
    dozen plugins about it.
    """

    def __init__(self, arguments: Mapping[str, Any] | None = None, variants: Variants | None = None) -> None:
        self.view = ClusterView(NodeColumns(), now=NOW)
        self.state = ClusterState(self.view)
        given = {**_ARGUMENTS, **(arguments or {})}
        self.plugins: dict[str, Plugin] = {name: kind(given.get(name), self.view) for name, kind in BUILT_IN.items()}
        self.plugins |= {name: BUILT_IN[kind](args, self.view) for name, (kind, args) in (variants or {}).items()}
        self.state.add_event_handlers(plugin for plugin in self.plugins.values() if isinstance(plugin, EventHandler))
        self.machines: dict[str, Machine] = {}

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def set_node(self, node: Node) -> None:
        self.state.set_node(node)
        name = node.metadata.name
        self.machines[name] = replace(self.machines[name], node=node) if name in self.machines else Machine(node)

    def remove_node(self, name: str) -> None:
        """With its pods, as the API would have it in the end."""
        for pod in self.machines.pop(name).pods:
            self.state.remove_pod(pod.metadata.uid)
        self.state.set_node_object("NodeMetric", name, None)
        self.state.remove_node(name)

    def place(self, pod: Pod, name: str) -> None:
        placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))
        self.take(pod.metadata.name)
        self.state.set_pod(self.info(placed), name)
        self.machines[name].pods.append(placed)

    def take(self, pod_name: str) -> None:
        self.state.remove_pod(pod_name)
        for machine in self.machines.values():
            machine.pods = [pod for pod in machine.pods if pod.metadata.name != pod_name]

    def report(self, metric: NodeMetric | None, name: str) -> None:
        self.state.set_node_object("NodeMetric", name, metric)
        machine = self.machines[name]
        machine.metric = metric
        if metric is None:
            machine.updated = 0.0
        elif metric.status.update_time is not None:
            machine.updated = metric.status.update_time.timestamp()


NODE_NAMES = ["n0", "n1", "n2"]
POD_NAMES = ["p0", "p1", "p2", "p3"]


@st.composite
def fixtures(
    draw: st.DrawFn, arguments: Mapping[str, Any] | None = None, variants: Variants | None = None
) -> ClusterFixture:
    """Up to ten events, rows being freed and used again among them."""
    fixture = ClusterFixture(arguments, variants)
    for name in NODE_NAMES:
        fixture.set_node(draw(nodes(name)))
    for _ in range(draw(st.integers(0, 10))):
        name = draw(st.sampled_from(NODE_NAMES))
        known = name in fixture.machines
        event = draw(st.sampled_from(["node", "place", "place", "take", "report", "report", "forget", "remove"]))
        if event == "node" or not known:
            fixture.set_node(draw(nodes(name)))
        elif event == "place":
            pod = draw(pods(draw(st.sampled_from(POD_NAMES))))
            fixture.place(draw(resizes(pod)) if draw(st.integers(0, 2)) == 2 else pod, name)
        elif event == "take":
            fixture.take(draw(st.sampled_from(POD_NAMES)))
        elif event == "report":
            fixture.report(draw(metrics(name, POD_NAMES)), name)
        elif event == "forget":
            fixture.report(None, name)
        else:
            fixture.remove_node(name)
    return fixture
