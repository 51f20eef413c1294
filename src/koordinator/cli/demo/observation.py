"""What was seen of the day: measured usage over time and where each pod went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from koordinator.api.codec import convert, decode_any
from koordinator.api.explanations import PodExplanation
from koordinator.api.kinds import PODS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, ResourceMap
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.resource_names import BATCH_CPU
from koordinator.cli.demo import rush
from koordinator.cli.demo.day import FAULTY
from koordinator.cli.demo.hot_node import RESPONSE_SECONDS, HotNode
from koordinator.cli.demo.rush import Rush
from koordinator.cli.demo.workloads import Workloads
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.session import open_session
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import Client
from koordinator.model.overcommit.abnormality import CONDITION_TYPE

KEPT_OFF: Final = "scheduler_pods_kept_off_nodes_total"
"""What koord-scheduler counts of its own work, read from its /metrics."""

# What is recorded of the pod that no node can take: the scheduler's explanation, the pod's conditions and its events.


@dataclass(frozen=True, slots=True)
class Explained:
    """A pod that is pending; ``notes`` are those of its events, ``condition`` is the message of PodScheduled."""

    name: str
    message: str
    advice: tuple[str, ...]
    closest: str
    """The node that comes closest and what it lacks; empty when no node was filtered."""
    condition: str
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether everybody says the same."""
        return bool(self.message) and self.message == self.condition and self.message in self.notes


async def explain(client: Client, scheduler_port: int, namespace: str, name: str) -> Explained:
    """Query the scheduler as ``koord explain pod`` does, and read the pod and its events."""
    url = f"http://127.0.0.1:{scheduler_port}"
    endpoint = ProgramEndpoint(url, None, ("", ""), 0, Path(), seconds=RESPONSE_SECONDS)
    async with open_session() as session:
        found = convert(await fetch(session, endpoint, f"/debug/explain/{namespace}/{name}"), PodExplanation)
    pod = await client.get(PODS, name, namespace)
    events = decode_any(await client.raw("GET", EVENTS_V1.path(namespace)))["items"]
    return Explained(
        name=name,
        message=found.message or "",
        advice=tuple(found.advice or ()),
        closest=_closest(found),
        condition=next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), ""),
        notes=tuple(event["note"] for event in events if event["regarding"]["name"] == name),
    )


def _closest(found: PodExplanation) -> str:
    for node in found.closest_nodes or ():
        lacks = [text for lack in node.lacks for text in lack.details or lack.reasons]
        return f"{node.node}: {'; '.join(lacks)}"
    return ""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One report of one node, CPU in milli-CPU."""

    used: int
    online: int
    batch: int


@dataclass(frozen=True, slots=True)
class Moment:
    """All nodes at one hour of the day."""

    hour: float
    nodes: Mapping[str, NodeUsage]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod and where it went; ``node`` is empty while it is pending."""

    name: str
    priority_class: PriorityClass
    node: str
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchCapacity:
    """Batch CPU at one hour of the day, in milli-CPU: of all nodes but the faulty one, which lends nothing for another
    reason than online load."""

    hour: float
    batch_cpu: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A node that has been marked as abnormal, at one hour of the day."""

    hour: float
    reason: str
    """Empty once it is normal again."""
    batch_cpu: int


@dataclass(slots=True)
class Day:
    """Everything that the report and its claims are made of."""

    capacity: dict[str, int] = field(default_factory=dict)
    """Node -> CPU capacity in milli-CPU."""
    allocatable: dict[str, dict[str, int]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    batch_capacity: list[BatchCapacity] = field(default_factory=list)
    """What koord-manager offered to batch pods, over time."""
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    """Of nodes that were abnormal at some time, from then on."""
    pods: dict[str, PlacedPod] = field(default_factory=dict)
    most_requested: dict[tuple[str, str], int] = field(default_factory=dict)
    """(node, resource) -> the largest sum of requests that was seen on it."""
    explained: Explained | None = None
    """What is said of the pod that no node can take."""
    workloads: Workloads = field(default_factory=Workloads)
    """What is seen of the gang, the quotas and the Reservation."""
    hot_node: HotNode = field(default_factory=HotNode)
    rush: Rush = field(default_factory=Rush)
    """What is seen of the node on which online load rises."""
    placed_by_hand: set[str] = field(default_factory=set)
    """Pods whose creator named the node."""
    kept_off_hot_nodes: int = 0
    """Pods that were placed while the load-aware filter kept them off at least one node."""

    def see_nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.capacity[node.metadata.name] = node.status.capacity["cpu"].milli
            self.allocatable[node.metadata.name] = {
                name: amount.milli if name == "cpu" else amount.value
                for name, amount in node.status.allocatable.items()
            }

    def observe_batch_capacity(self, hour: float, nodes: Sequence[Node]) -> None:
        amounts = [node.status.allocatable.get(BATCH_CPU) for node in nodes if node.metadata.name != FAULTY]
        self.batch_capacity.append(BatchCapacity(hour, sum(amount.value for amount in amounts if amount is not None)))

    def see_marks(self, hour: float, nodes: Sequence[Node]) -> None:
        for node in nodes:
            for condition in node.status.conditions:
                if condition.type == CONDITION_TYPE:
                    amount = node.status.allocatable.get(BATCH_CPU)
                    reason = condition.reason if condition.status == "True" else ""
                    mark = Mark(hour, reason, 0 if amount is None else amount.value)
                    self.marks.setdefault(node.metadata.name, []).append(mark)

    def see_metrics(self, hour: float, metrics: Sequence[NodeMetric]) -> None:
        nodes = {metric.metadata.name: usage for metric in metrics if (usage := node_usage(metric)) is not None}
        self.moments.append(Moment(hour, nodes))
        for metric in metrics:
            if metric.metadata.name == rush.NODE:
                self.rush.see(hour, metric)

    def see_pods(self, pods: Sequence[Pod]) -> None:
        on_node: dict[tuple[str, str], int] = {}
        for pod in pods:
            seen = placed_pod(pod)
            self.pods[seen.name] = seen
            if seen.node and pod.status.phase not in ("Succeeded", "Failed"):
                for resource, amount in seen.requested.items():
                    key = (seen.node, resource)
                    on_node[key] = on_node.get(key, 0) + amount
        for key, amount in on_node.items():
            self.most_requested[key] = max(amount, self.most_requested.get(key, 0))


def node_usage(metric: NodeMetric) -> NodeUsage | None:
    """The CPU part of a report; None while the node has none."""
    status = metric.status
    if status.update_time is None or status.node_metric is None:
        return None
    online = batch = 0
    for pod in status.pods_metric:
        if pod.priority == PriorityClass.PROD.value:
            online += _cpu(pod.pod_usage)
        else:
            batch += _cpu(pod.pod_usage)
    return NodeUsage(_cpu(status.node_metric.node_usage), online, batch)


def placed_pod(pod: Pod) -> PlacedPod:
    """The facts of a pod that the report needs."""
    requested: dict[str, int] = {"pods": 1}
    for container in pod.spec.containers:
        for name, amount in container.resources.requests.items():
            requested[name] = requested.get(name, 0) + (amount.milli if name == "cpu" else amount.value)
    return PlacedPod(
        name=pod.metadata.name,
        priority_class=priority_class_with_default(pod),
        node=pod.spec.node_name,
        requested=requested,
    )


def _cpu(usage: ResourceMap) -> int:
    amount = usage.resources.get("cpu")
    return 0 if amount is None else amount.milli
