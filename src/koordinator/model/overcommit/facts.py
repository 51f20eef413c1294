"""The inputs of the plan for a node, extracted from its Node, pods, NodeMetric and NodeResourceTopology.

They are computed once for each version of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Final, NamedTuple

from msgspec import Struct

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, count_cpus
from koordinator.api.node_resource_topology import NODE_ZONE_PREFIX, NodeResourceTopology, Zone
from koordinator.api.pod import Pod
from koordinator.api.priority import (
    DEFAULT_PRIORITIES,
    PriorityClass,
    priority_class_of_name,
    priority_class_with_default,
)
from koordinator.api.qos import QoSClass, qos_class_with_default
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, FREE_CPU, MEMORY
from koordinator.model.huge_pages import huge_page_bytes, huge_page_pool, without_pool
from koordinator.model.overcommit.amounts import NOTHING, Amounts, cpu_and_memory, total
from koordinator.model.overcommit.node_report import NodeReport, ReportedNode, ReportedPod
from koordinator.model.pod_requests import canonical, pod_requests
from koordinator.model.raw_allocatable import raw_allocatable
from koordinator.model.slo_adaptation import suffering
from koordinator.model.slo_configuration.documents import read_given, read_object

_COUNTED_PHASES: Final = frozenset({"Running", "Pending"})
LOW_PRIORITIES: Final = frozenset({PriorityClass.BATCH, PriorityClass.FREE})
"""The classes that use what others leave idle."""
_REQUESTED: Final = {PriorityClass.BATCH: (BATCH_CPU, BATCH_MEMORY)}
_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_NO_HOSTS: Final = dict.fromkeys((PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE), NOTHING)
_LOW_NAMES: Final = frozenset(each.value for each in LOW_PRIORITIES)
_FREE_NAME: Final = PriorityClass.FREE.value
_Key = tuple[str, str]
"""Of a pod: namespace and name."""
_NUMBERED: Final = re.compile(re.escape(NODE_ZONE_PREFIX) + r"(0|[1-9][0-9]{0,5})")


class NodeFacts(Struct, frozen=True):
    name: str
    capacity: Amounts
    reserved: Amounts
    """Kept for programs outside Kubernetes: the larger of the kubelet's reservation and the annotation's."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    huge_pages: int = 0
    """Bytes of the pool of huge pages, which ``capacity`` and ``reserved`` contain."""
    annotated: Amounts = NOTHING
    """The annotation's reservation."""
    has_status: bool = True
    """Whether a kubelet has reported the node's resources; before that there is nothing to add to."""
    has_free: bool = False
    """Whether the node has free capacity from before."""
    is_ready: bool = True
    """Whether the node is Ready, or has no such condition."""
    ready_since: datetime | None = None
    """Since when ``is_ready`` has its value."""
    problem: str = ""
    """The error in the reservation annotation, which then reserves nothing."""

    @property
    def reserved_beside_huge_pages(self) -> Amounts:
        """The same of what is not in the pool. The annotation's reservation does not contain it."""
        kept = without_pool(self.reserved.memory, self.huge_pages)
        return Amounts(self.reserved.cpu, max(kept, self.annotated.memory))


def node_facts(node: Node) -> NodeFacts:
    capacity = cpu_and_memory(node.status.capacity)
    amplified, raw = cpu_and_memory(node.status.allocatable), cpu_and_memory(raw_allocatable(node))
    # A raw amount above what the status says is from before the kubelet's last report.
    cpu, memory = min(amplified.cpu, raw.cpu), min(amplified.memory, raw.memory)
    kept = Amounts(capacity.cpu - cpu, capacity.memory - memory)
    annotated, problem = NOTHING, ""
    text = node.metadata.annotations.get(annotation_keys.NODE_RESERVATION)
    if text is not None:
        try:
            annotated = reservation_amounts(text)
        except (DecodeError, ValueError) as error:
            problem = f"metadata.annotations[{annotation_keys.NODE_RESERVATION}] reserves nothing: {error}"
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    return NodeFacts(
        name=node.metadata.name,
        capacity=capacity,
        reserved=kept.at_least(NOTHING).at_least(annotated),
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        huge_pages=huge_page_pool(node),
        annotated=annotated,
        has_status=bool(node.status.allocatable) and bool(node.status.capacity),
        has_free=FREE_CPU in node.status.allocatable,
        is_ready=ready is None or ready.status == "True",
        ready_since=None if ready is None else ready.last_transition_time,
        problem=problem,
    )


def reservation_amounts(text: str) -> Amounts:
    """The reservation of the annotation: a list of CPUs takes precedence over an amount of CPU. Raises DecodeError and
    ValueError.

    It is written by users, so it is read as all configuration is: names match in any case.
    """
    reservation = read_given(read_object(text), NodeReservation).values
    amounts = cpu_and_memory(reservation.resources)
    if not reservation.reserved_cpus:
        return amounts
    return Amounts(1000 * count_cpus(reservation.reserved_cpus), amounts.memory)


class NUMANodeResource(WireStruct):
    node: int = 0


class ResourceStatus(WireStruct):
    """The part of the annotation scheduling.koordinator.sh/resource-status that is read here."""

    numa_node_resources: list[NUMANodeResource] = []


class PodFacts(NamedTuple):
    """A tuple, since there are thirty of them for each node of thousands."""

    key: tuple[str, str]
    """Namespace and name."""
    is_counted: bool
    """Whether the pod runs or is about to."""
    is_high: bool
    """Whether batch capacity excludes what the pod uses: all classes but batch and free."""
    is_prod: bool
    """Whether mid capacity excludes what the pod requests: all classes but mid, batch and free."""
    keeps_cpu: bool
    """Whether CPU that the pod leaves idle is not for others: quality of service LSE."""
    requests: Amounts
    """Of native resources; for batch pods, of batch resources, and nothing for free pods."""
    numa_nodes: tuple[int, ...]
    """The NUMA nodes that the pod is bound to; empty: all."""
    is_free: bool = False
    """Whether the pod gets what all others leave: class free."""


def pod_facts(pod: Pod) -> PodFacts:
    priority = priority_class_with_default(pod)
    is_high, is_free = priority not in LOW_PRIORITIES, priority is PriorityClass.FREE
    return PodFacts(
        key=(pod.metadata.namespace, pod.metadata.name),
        is_counted=pod.status.phase in _COUNTED_PHASES,
        is_high=is_high,
        is_prod=is_high and priority is not PriorityClass.MID,
        keeps_cpu=qos_class_with_default(pod) is QoSClass.LSE,
        requests=_requests(pod, *_REQUESTED.get(priority, (CPU, MEMORY))) if not is_free else NOTHING,
        numa_nodes=_numa_nodes(pod) if is_high else (),
        is_free=is_free,
    )


def _requests(pod: Pod, cpu: str, memory: str) -> Amounts:
    """A negative request counts as zero, so that it adds no capacity for others."""
    nanos = pod_requests(pod, resized=False)
    return Amounts(canonical(cpu, nanos.get(cpu, 0)), canonical(memory, nanos.get(memory, 0))).at_least(NOTHING)


def _numa_nodes(pod: Pod) -> tuple[int, ...]:
    """Unreadable annotations count as not bound."""
    text = pod.metadata.annotations.get(annotation_keys.RESOURCE_STATUS)
    if not text:
        return ()
    try:
        status = decode(text, ResourceStatus)
    except DecodeError:
        return ()
    return tuple(sorted({each.node for each in status.numa_node_resources if each.node >= 0}))


class NodePods:
    """The pods that are bound to a node, and what of them is the same for each report of the node."""

    __slots__ = ("high_keys", "high_requests", "keep_cpu", "listed", "pods", "prod_requests", "requests")

    def __init__(self, pods: Iterable[PodFacts] = ()) -> None:
        self.pods = tuple(pods)
        counted = [pod for pod in self.pods if pod.is_counted]
        high = [pod for pod in counted if pod.is_high]
        self.listed = frozenset([pod.key for pod in counted])
        """The keys of those that are counted."""
        self.high_keys = tuple([pod.key for pod in high])
        """The keys of those whose needs take precedence over those of batch pods."""
        self.high_requests = tuple([pod.requests for pod in high])
        """What each of them requests."""
        self.keep_cpu = tuple([pod for pod in high if pod.keeps_cpu])
        self.requests = total(self.high_requests)
        self.prod_requests = total([pod.requests for pod in counted if pod.is_prod])


NO_PODS: Final = NodePods()


class MetricFacts(Struct, frozen=True):
    """One report of a node's agent."""

    update_time: datetime | None = None
    has_usage: bool = False
    """Whether the report has readings of the node at all."""
    node_usage: Amounts | None = None
    """None when CPU or memory is missing."""
    system_usage: Amounts = NOTHING
    """Of what runs beside pods and host applications."""
    hosts_above_batch: Amounts = NOTHING
    """Usage of the host applications of a class above batch."""
    hosts_above_mid: Amounts = NOTHING
    hosts_above_free: Amounts = NOTHING
    pods: Mapping[tuple[str, str], Amounts] = {}
    """Namespace and name -> usage."""
    high_pods: tuple[tuple[str, str], ...] = ()
    """The pods that have no low class in the report itself."""
    free_pods: tuple[tuple[str, str], ...] = ()
    """The pods that are of class free in the report itself."""
    half_told: frozenset[tuple[str, str]] = frozenset()
    """The pods of which the report lacks CPU or memory: zero among ``pods``."""
    prod_reclaimable: Amounts = NOTHING
    has_negative: bool = False
    """Whether some reading is below zero."""
    suffering: tuple[str, ...] = ()
    """How online pods suffer from best-effort pods, in sentences."""
    unreadable: str = ""
    """The part of the report that cannot be read and does not count, as a sentence; empty when all of it can be."""
    fingerprint: int = 0
    """Equal for reports with equal readings; within one process only."""


def metric_facts(report: NodeReport) -> MetricFacts:
    """A negative usage counts as zero, so that it adds no capacity for others."""
    status = report.status
    info = status.node_metric or ReportedNode()
    node, system = info.node_usage.resources, info.system_usage.resources
    hosts = [(host.priority, host.usage.resources.amounts) for host in status.host_application_metric]
    percentiles = [each.resources.amounts for window in info.aggregated_node_usages for each in window.usage.values()]
    pods, high_pods, free_pods, half_told, extended = _pod_usages(status.pods_metric)
    suffers, unreadable = _interference(extended) if extended else ((), "")
    reclaimable = status.prod_reclaimable_metric
    above = _above(hosts) if hosts else _NO_HOSTS
    others = node.amounts, system.amounts, *[usage for _, usage in hosts]
    # If the percentiles of all windows are equal as well, nothing has been measured.
    fingerprint = hash((node.amounts, system.amounts, tuple(pods.items()), tuple(percentiles)))
    has_negative = min(map(min, others)) < 0
    if pods and min(map(min, pods.values())) < 0:
        has_negative, pods = True, {key: usage.at_least(NOTHING) for key, usage in pods.items()}
    return MetricFacts(
        update_time=_in_calendar(status.update_time),
        has_usage=status.node_metric is not None,
        node_usage=node.amounts.at_least(NOTHING) if node.is_complete else None,
        system_usage=system.amounts.at_least(NOTHING),
        hosts_above_batch=above[PriorityClass.BATCH],
        hosts_above_mid=above[PriorityClass.MID],
        hosts_above_free=above[PriorityClass.FREE],
        pods=pods,
        high_pods=high_pods,
        free_pods=free_pods,
        prod_reclaimable=NOTHING if reclaimable is None else reclaimable.resource.resources.amounts,
        half_told=half_told,
        suffering=suffers,
        unreadable=unreadable,
        has_negative=has_negative,
        fingerprint=fingerprint,
    )


def _in_calendar(time: datetime | None) -> datetime | None:
    """In UTC, and so far from the ends of the calendar that a century can be added to it, whatever the report
    contains."""
    return None if time is None else min(max(time, _FIRST), _LAST).astimezone(UTC)


def _above(hosts: Iterable[tuple[str, Amounts]]) -> Mapping[PriorityClass, Amounts]:
    """For each tier the usage of the host applications whose class is above it."""
    ranked = [(DEFAULT_PRIORITIES[priority_class_of_name(name)], usage.at_least(NOTHING)) for name, usage in hosts]
    return {
        tier: total(usage for priority, usage in ranked if priority > DEFAULT_PRIORITIES[tier]) for tier in _NO_HOSTS
    }


def _pod_usages(
    reported: Iterable[ReportedPod],
) -> tuple[dict[_Key, Amounts], tuple[_Key, ...], tuple[_Key, ...], frozenset[_Key], list[ReportedPod]]:
    """The usage of each pod, the pods of no low class, those of class free, those that lack a reading, and those with
    extensions: one pass, since nothing else of a report has so many parts."""
    usages: dict[_Key, Amounts] = {}
    high: dict[_Key, None] = {}
    free: dict[_Key, None] = {}
    half_told: frozenset[_Key] = frozenset()
    extended: list[ReportedPod] = []
    for each in reported:
        key = intern(each.namespace), each.name
        usages[key] = usage = each.pod_usage.resources.amounts
        if 0 in usage and not each.pod_usage.resources.is_complete:
            half_told |= {key}
        if each.priority in _LOW_NAMES:
            high.pop(key, None)
        else:
            high[key] = None
        if each.priority == _FREE_NAME:
            free[key] = None
        elif free:
            free.pop(key, None)
        if each.extensions is not None:
            extended.append(each)
    return usages, tuple(high), tuple(free), half_told, extended


def _interference(reported: Iterable[ReportedPod]) -> tuple[tuple[str, ...], str]:
    """How pods suffer, and what is said of it that cannot be read; one such pod is named."""
    found: tuple[str, ...] = ()
    unreadable: list[str] = []
    for each in reported:
        pod = f"{each.namespace}/{each.name}"
        try:
            found += suffering(pod, each.extensions or {})
        except DecodeError as error:
            unreadable.append(f"NodeMetric: the interference of pod {pod} cannot be read: {error}")
    more = f"; and that of {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
    return found, f"{unreadable[0]}{more}" if unreadable else ""


class CPUBasicInfo(WireStruct):
    """The part of the annotation node.koordinator.sh/cpu-basic-info that normalization reads."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


class ZoneFacts(NamedTuple):
    name: str
    numa_node: int
    """From the zone's name; its index in the list if the name has no number."""
    allocatable: Amounts
    huge_pages: int = 0
    """Bytes of huge pages that the zone tells; its memory does not contain them."""


class TopologyFacts(Struct, frozen=True):
    zones: tuple[ZoneFacts, ...] = ()
    """Empty unless some zone has CPU or memory."""
    cpu_info: CPUBasicInfo | None = None
    cpu_info_problem: str = ""
    """Why there is no ``cpu_info``."""


def topology_facts(topology: NodeResourceTopology) -> TopologyFacts:
    zones = tuple(_zone(zone, place) for place, zone in enumerate(topology.zones))
    if len({zone.numa_node for zone in zones}) < len(zones):
        zones = tuple(zone._replace(numa_node=place) for place, zone in enumerate(zones))
    is_filled = any(info.name in (CPU, MEMORY) for zone in topology.zones for info in zone.resources)
    info, problem = _cpu_info(topology)
    return TopologyFacts(zones if is_filled else (), info, problem)


def _zone(zone: Zone, place: int) -> ZoneFacts:
    matched = _NUMBERED.fullmatch(zone.name)
    amounts = {info.name: info.allocatable for info in zone.resources}
    cpu, memory = amounts.get(CPU), amounts.get(MEMORY)
    allocatable = Amounts(cpu.milli if cpu is not None else 0, memory.value if memory is not None else 0)
    return ZoneFacts(zone.name, int(matched[1]) if matched else place, allocatable, huge_page_bytes(amounts))


def _cpu_info(topology: NodeResourceTopology) -> tuple[CPUBasicInfo | None, str]:
    where = f"metadata.annotations[{annotation_keys.CPU_BASIC_INFO}] of the NodeResourceTopology"
    text = topology.metadata.annotations.get(annotation_keys.CPU_BASIC_INFO)
    if text is None:
        return None, f"{where} is missing"
    try:
        return read_given(read_object(text), CPUBasicInfo).values, ""
    except DecodeError as error:
        return None, f"{where} cannot be read: {error}"
