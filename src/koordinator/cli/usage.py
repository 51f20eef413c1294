"""What each class of pods on each node has been given, uses, and could use. Decided on what the API has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, PodMetricInfo
from koordinator.api.pod import FINISHED_PHASES, Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import qos_class_with_default
from koordinator.api.quantity import Quantity
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

    def add(self, other: Amounts) -> None:
        self.cpu += other.cpu
        self.memory += other.memory


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

    def add(self, other: ClassUsage) -> None:
        self.pods += other.pods
        self.suppressed += other.suppressed
        for mine, its in (
            (self.allocated, other.allocated),
            (self.measured, other.measured),
            (self.reclaimable, other.reclaimable),
        ):
            mine.add(its)


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


def usage_of_pods(pods: Iterable[Pod], metrics: Mapping[str, NodeMetric]) -> list[PodUsage]:
    """Those that are on a node and have not ended, by name."""
    reported = {
        (each.namespace, each.name): each for metric in metrics.values() for each in metric.status.pods_metric or ()
    }
    found = [
        _usage_of(pod, reported.get((pod.metadata.namespace, pod.metadata.name)))
        for pod in pods
        if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES
    ]
    return sorted(found, key=lambda each: each.key)


def usage_of_nodes(
    nodes: Iterable[Node], pods: Sequence[PodUsage], metrics: Mapping[str, NodeMetric]
) -> list[NodeUsage]:
    """Each node with its classes, by name."""
    by_node: dict[str, list[PodUsage]] = defaultdict(list)
    for pod in pods:
        by_node[pod.node].append(pod)
    ordered = sorted(nodes, key=lambda each: each.metadata.name)
    return [_usage_of_node(node, by_node[node.metadata.name], metrics.get(node.metadata.name)) for node in ordered]


def usage_of_cluster(nodes: Iterable[NodeUsage]) -> list[ClassUsage]:
    """The classes of all nodes together, the most important first."""
    total: dict[str, ClassUsage] = {}
    for node in nodes:
        for name, usage in node.classes.items():
            total.setdefault(name, ClassUsage(name)).add(usage)
    return [total[name] for name in _ordered(total)]


def _ordered(names: Iterable[str]) -> list[str]:
    order = [*(each.value for each in PriorityClass if each), NO_CLASS]
    return sorted(names, key=order.index)


def _usage_of(pod: Pod, metric: PodMetricInfo | None) -> PodUsage:
    requests = pod_requests(pod)
    extensions = ((metric.extensions or {}) if metric is not None else {}).get(EXTENSIONS_MEMBER) or {}
    return PodUsage(
        key=pod.metadata.key,
        node=pod.spec.node_name,
        class_name=str(priority_class_with_default(pod)) or NO_CLASS,
        qos=str(qos_class_with_default(pod)),
        allocated=Amounts(
            *(sum(canonical(name, requests.get(name, 0)) for name in names) for names in (CPUS, MEMORIES))
        ),
        measured=_amounts(metric.pod_usage.resources) if metric is not None else None,
        is_suppressed="suppression" in extensions,
    )


def _usage_of_node(node: Node, pods: Sequence[PodUsage], metric: NodeMetric | None) -> NodeUsage:
    classes: dict[str, ClassUsage] = {}
    for pod in pods:
        usage = ClassUsage(pod.class_name, 1, pod.allocated, pod.measured or Amounts())
        classes.setdefault(pod.class_name, ClassUsage(pod.class_name)).add(usage)
    allocatable = node.status.allocatable
    for each in _OFFERED:
        offered = _amounts(allocatable, extended_name(CPU, each), extended_name(MEMORY, each))
        if offered.cpu or offered.memory:
            classes.setdefault(each.value, ClassUsage(each.value)).reclaimable.add(offered)
    status = metric.status if metric is not None else None
    if status is not None and status.prod_reclaimable_metric is not None:
        prod = PriorityClass.PROD.value
        predicted = _amounts(status.prod_reclaimable_metric.resource.resources)
        if prod in classes:
            classes[prod].reclaimable.add(predicted)
    _suppress(classes, pods, metric)
    measured = status.node_metric.node_usage if status is not None and status.node_metric is not None else None
    used = _amounts(measured.resources) if measured is not None else None
    return NodeUsage(
        node.metadata.name, _amounts(allocatable), used, {name: classes[name] for name in _ordered(classes)}
    )


def _suppress(classes: Mapping[str, ClassUsage], pods: Sequence[PodUsage], metric: NodeMetric | None) -> None:
    """Of the best-effort pods of a node that are held down together, what they lack of their requests, by class."""
    held = [pod for pod in pods if pod.is_suppressed]
    limit = next(filter(None, map(_limit, metric.status.pods_metric if metric is not None else ())), None)
    requested = sum(pod.allocated.cpu for pod in held)
    if limit is None or requested <= limit:
        return
    for pod in held:
        classes[pod.class_name].suppressed += (requested - limit) * pod.allocated.cpu // requested


def _limit(metric: PodMetricInfo) -> int | None:
    """The milli-CPU that suppression leaves to the best-effort pods of the node together."""
    said = ((metric.extensions or {}).get(EXTENSIONS_MEMBER) or {}).get("suppression") or {}
    cpus = said.get("cpus")
    return round(cpus * 1000) if isinstance(cpus, int | float) else None


def _amounts(resources: Mapping[str, Quantity], cpu: str = CPU, memory: str = MEMORY) -> Amounts:
    found = [canonical(name, resources[name].nanos) if name in resources else 0 for name in (cpu, memory)]
    return Amounts(*found)
