"""What overcommitment needs to know of a pod, worked out once for each version of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import QoSClass, qos_class_with_default
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.model.overcommit.amounts import NOTHING, Amounts
from koordinator.model.pod_requests import canonical, pod_requests

_COUNTED_PHASES: Final = frozenset({"Running", "Pending"})
LOW_PRIORITIES: Final = frozenset({PriorityClass.BATCH, PriorityClass.FREE})
"""Those who live off what others leave idle."""


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
    """Whether nobody else may use CPU that the pod leaves idle: quality of service LSE."""
    requests: Amounts
    numa_nodes: tuple[int, ...]
    """The NUMA nodes that the pod is bound to; empty: all."""


def pod_facts(pod: Pod) -> PodFacts:
    priority = priority_class_with_default(pod)
    is_high = priority not in LOW_PRIORITIES
    return PodFacts(
        key=(pod.metadata.namespace, pod.metadata.name),
        is_counted=pod.status.phase in _COUNTED_PHASES,
        is_high=is_high,
        is_prod=is_high and priority is not PriorityClass.MID,
        keeps_cpu=qos_class_with_default(pod) is QoSClass.LSE,
        requests=_requests(pod) if is_high else NOTHING,
        numa_nodes=_numa_nodes(pod) if is_high else (),
    )


def _requests(pod: Pod) -> Amounts:
    """Nobody asks for less than nothing: a negative request cannot make room for others."""
    nanos = pod_requests(pod, resized=False)
    return Amounts(canonical(CPU, nanos.get(CPU, 0)), canonical(MEMORY, nanos.get(MEMORY, 0))).at_least(NOTHING)


def _numa_nodes(pod: Pod) -> tuple[int, ...]:
    """Unreadable annotations bind to nothing."""
    text = pod.metadata.annotations.get(annotation_keys.RESOURCE_STATUS)
    if not text:
        return ()
    try:
        status = decode(text, ResourceStatus)
    except DecodeError:
        return ()
    return tuple(sorted({each.node for each in status.numa_node_resources if each.node >= 0}))
