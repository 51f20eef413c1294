"""What each class of pods on each node has been given, uses, and could use. Decided on what the API has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, PodMetricInfo
from koordinator.api.pod import FINISHED_PHASES, Pod, ResourceList
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import qos_class_with_default
from koordinator.api.resource_names import CPU, EXTENDED_CPUS, EXTENDED_MEMORIES, MEMORY, extended_name
from koordinator.model.pod_requests import canonical, pod_requests

CPUS = (CPU, *EXTENDED_CPUS)
MEMORIES = (MEMORY, *EXTENDED_MEMORIES)
NO_CLASS = "none"
_OFFERED = (PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE)


@dataclass(slots=True)
class Amounts:
    """Milli-CPU and bytes."""

    cpu: int = 0
    memory: int = 0

    def add(self, other: Amounts, times: int = 1) -> None:
        self.cpu += times * other.cpu
        self.memory += times * other.memory


@dataclass(slots=True)
class ClassUsage:
    """The pods of one class on one node, or everywhere."""

    name: str
    pods: int = 0
    allocated: Amounts = field(default_factory=Amounts)
    """What they request."""
    measured: Amounts = field(default_factory=Amounts)
    """What they use, by the last report of koordlet."""
    reclaimable: Amounts = field(default_factory=Amounts)
    """Of mid, batch and free: the capacity that the node offers to the class. Of prod: what koordlet predicts that its
    pods leave of their requests."""
    suppressed: int = 0
    """The milli-CPU by which suppression keeps them below their requests."""

    def add(self, other: ClassUsage, times: int = 1) -> None:
        """With -1 times: take it away again."""
        self.pods += times * other.pods
        self.suppressed += times * other.suppressed
        for mine, its in (
            (self.allocated, other.allocated),
            (self.measured, other.measured),
            (self.reclaimable, other.reclaimable),
        ):
            mine.add(its, times)


@dataclass(frozen=True, slots=True)
class PodUsage:
    """One pod on a node. ``measured`` is None where koordlet has not reported it."""

    key: str
    node: str
    class_name: str
    qos: str
    allocated: Amounts
    measured: Amounts | None
    is_suppressed: bool = False


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One node; ``measured`` is that of the whole machine, None where it has not reported."""

    name: str
    allocatable: Amounts
    measured: Amounts | None
    classes: Mapping[str, ClassUsage]


@dataclass(frozen=True, slots=True)
class NodeReading:
    """What koordlet has reported last of one node and its pods."""

    measured: Amounts | None = None
    """Of the whole machine; None where it has not been measured."""
    prod_reclaimable: Amounts | None = None
    """What its prod pods leave of their requests, as is predicted."""
    pods: Mapping[str, Amounts] = field(default_factory=dict)
    """By ``namespace/name``."""
    suppressed: frozenset[str] = frozenset()
    """The best-effort pods that are held down together, by ``namespace/name``."""
    suppressed_to: int | None = None
    """The milli-CPU that suppression leaves to them together."""


NO_READING = NodeReading()


def reading_of(metric: NodeMetric) -> NodeReading:
    """What its status says."""
    status = metric.status
    pods = status.pods_metric or ()
    measured, predicted = status.node_metric, status.prod_reclaimable_metric
    return NodeReading(
        _amounts(measured.node_usage.resources) if measured is not None else None,
        _amounts(predicted.resource.resources) if predicted is not None else None,
        {f"{pod.namespace}/{pod.name}": _amounts(pod.pod_usage.resources) for pod in pods},
        frozenset(f"{pod.namespace}/{pod.name}" for pod in pods if "suppression" in _extensions(pod)),
        next(filter(None, map(_limit, pods)), None),
    )


def usage_of_pod(pod: Pod, reading: NodeReading = NO_READING) -> PodUsage:
    """One pod, with what its node has reported of it."""
    requests, key = pod_requests(pod), pod.metadata.key
    return PodUsage(
        key=key,
        node=pod.spec.node_name,
        class_name=str(priority_class_with_default(pod)) or NO_CLASS,
        qos=str(qos_class_with_default(pod)),
        allocated=Amounts(
            *(sum(canonical(name, requests.get(name, 0)) for name in names) for names in (CPUS, MEMORIES))
        ),
        measured=reading.pods.get(key),
        is_suppressed=key in reading.suppressed,
    )


def is_on_node(pod: Pod) -> bool:
    """Whether it takes up room: it is on a node, and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED_PHASES


def usage_of_pods(pods: Iterable[Pod], readings: Mapping[str, NodeReading]) -> list[PodUsage]:
    """Those that are on a node and have not ended, by name. ``readings`` are by node."""
    found = [usage_of_pod(pod, readings.get(pod.spec.node_name, NO_READING)) for pod in pods if is_on_node(pod)]
    return sorted(found, key=lambda each: each.key)


def with_reading(pod: PodUsage, reading: NodeReading) -> PodUsage:
    """The same pod, with what its node has reported since."""
    return replace(pod, measured=reading.pods.get(pod.key), is_suppressed=pod.key in reading.suppressed)


def usage_of_nodes(
    nodes: Iterable[Node], pods: Sequence[PodUsage], readings: Mapping[str, NodeReading]
) -> list[NodeUsage]:
    """Each node with its classes, by name."""
    by_node: dict[str, list[PodUsage]] = defaultdict(list)
    for pod in pods:
        by_node[pod.node].append(pod)
    ordered = sorted((each.metadata.name, each.status.allocatable) for each in nodes)
    return [usage_of_node(name, given, by_node[name], readings.get(name, NO_READING)) for name, given in ordered]


class ClusterUsage:
    """The classes of all nodes together, current however often a node changes."""

    def __init__(self, nodes: Iterable[NodeUsage] = ()) -> None:
        self._nodes: dict[str, NodeUsage] = {}
        self._counts: Counter[str] = Counter()
        self._total: dict[str, ClassUsage] = {}
        for node in nodes:
            self.put(node)

    def put(self, node: NodeUsage) -> None:
        """Add a node, or replace what it was before."""
        self.remove(node.name)
        self._nodes[node.name] = node
        self._count(node, 1)

    def remove(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            self._count(node, -1)

    def classes(self) -> list[ClassUsage]:
        """The most important first."""
        return [self._total[name] for name in _ordered(self._total)]

    def _count(self, node: NodeUsage, times: int) -> None:
        for name, usage in node.classes.items():
            self._counts[name] += times
            if self._counts[name]:
                self._total.setdefault(name, ClassUsage(name)).add(usage, times)
            else:
                del self._total[name]


def usage_of_cluster(nodes: Iterable[NodeUsage]) -> list[ClassUsage]:
    """The classes of all nodes together, the most important first."""
    return ClusterUsage(nodes).classes()


def _ordered(names: Iterable[str]) -> list[str]:
    order = [*(each.value for each in PriorityClass if each), NO_CLASS]
    return sorted(names, key=order.index)


def usage_of_node(name: str, allocatable: ResourceList, pods: Iterable[PodUsage], reading: NodeReading) -> NodeUsage:
    """One node with the classes of its pods, and of what it offers."""
    classes: dict[str, ClassUsage] = {}
    held: list[PodUsage] = []
    for pod in pods:
        usage = ClassUsage(pod.class_name, 1, pod.allocated, pod.measured or Amounts())
        classes.setdefault(pod.class_name, ClassUsage(pod.class_name)).add(usage)
        if pod.is_suppressed:
            held.append(pod)
    for each in _OFFERED:
        offered = _amounts(allocatable, extended_name(CPU, each), extended_name(MEMORY, each))
        if offered.cpu or offered.memory:
            classes.setdefault(each.value, ClassUsage(each.value)).reclaimable.add(offered)
    prod = classes.get(PriorityClass.PROD.value)
    if prod is not None and reading.prod_reclaimable is not None:
        prod.reclaimable.add(reading.prod_reclaimable)
    _suppress(classes, held, reading.suppressed_to)
    return NodeUsage(name, _amounts(allocatable), reading.measured, {name: classes[name] for name in _ordered(classes)})


def _suppress(classes: Mapping[str, ClassUsage], held: Sequence[PodUsage], limit: int | None) -> None:
    """Of the best-effort pods of a node that are held down together, what they lack of their requests, by class."""
    requested = sum(pod.allocated.cpu for pod in held)
    if limit is None or requested <= limit:
        return
    for pod in held:
        classes[pod.class_name].suppressed += (requested - limit) * pod.allocated.cpu // requested


def _extensions(metric: PodMetricInfo) -> Mapping[str, Any]:
    return (metric.extensions or {}).get(EXTENSIONS_MEMBER) or {}


def _limit(metric: PodMetricInfo) -> int | None:
    cpus = (_extensions(metric).get("suppression") or {}).get("cpus")
    return round(cpus * 1000) if isinstance(cpus, int | float) else None


def _amounts(resources: ResourceList, cpu: str = CPU, memory: str = MEMORY) -> Amounts:
    found = [canonical(name, resources[name].nanos) if name in resources else 0 for name in (cpu, memory)]
    return Amounts(*found)
