"""A pod as the scheduler sees it, with what is derived from it: once for all replicas of a workload, and again only
when something that it follows from has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from koordinator.api.annotations import BIND_GANG_KEYS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus, ResourceList, ResourceRequirements, Volume
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.model import transformers
from koordinator.model.pod_requests import canonical, is_resize_infeasible, non_zero_requests, pod_requests
from koordinator.model.transformers import PodStep

_TOPOLOGY: Final = "topology.kubernetes.io/"
_SPECS_KEPT: Final = 4096
_VARIANTS_KEPT: Final = 8
"""The number of kept pods that differ in what the key leaves out, such as their affinity."""
_SpecKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The requested resources of a pod, by name: it may name any, whether a node offers it or not."""

    amounts: Mapping[str, int]
    """In the units of columns, without zeros, without the pod itself."""
    non_zero: tuple[int, int]
    """CPU and memory with the upstream defaults (100 milli-CPU, 200 MiB per container) where nothing is requested."""
    counted: Mapping[str, int] = field(init=False)
    """The same with the pod itself as one of ``pods``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", {**self.amounts, PODS: 1})


class PodInfo(msgspec.Struct):
    """A pod with all that is derived from it once."""

    pod: Pod
    request: PodRequest
    key: str
    """``namespace/name``."""
    uid: str
    priority: int
    memo: dict[str, Any] = msgspec.field(default_factory=dict)
    """What plugins have derived from the pod, by keys that they choose. It is kept as long as spec (but for the node's
    name), labels, annotations and owners stay the same, so through assuming and binding."""


class PlacedPod(msgspec.Struct):
    """A pod that occupies a node; ``row`` is negative while that node is unknown."""

    pod: PodInfo
    node_name: str
    row: int
    assumed: bool


def make_pod_info(pod: Pod) -> PodInfo:
    """Compute a pod's PodInfo."""
    amounts = {name: canonical(name, nanos) for name, nanos in pod_requests(pod).items() if nanos}
    if _names_cpu_and_memory(pod):
        non_zero = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    else:
        counted = non_zero_requests(pod)
        non_zero = canonical(CPU, counted.get(CPU, 0)), canonical(MEMORY, counted.get(MEMORY, 0))
    metadata = pod.metadata
    return PodInfo(
        pod=pod,
        request=PodRequest(amounts, non_zero),
        key=metadata.key,
        uid=metadata.uid,
        priority=pod.spec.priority or 0,
    )


def _names_cpu_and_memory(pod: Pod) -> bool:
    """Whether every container requests both, so that no default counts; true for most pods. False for a pod whose
    resize is infeasible: there, what its node has granted counts instead, which may leave something out."""
    if is_resize_infeasible(pod):
        return False
    spec = pod.spec
    for container in (*spec.containers, *spec.init_containers) if spec.init_containers else spec.containers:
        requests = container.resources.requests
        if CPU not in requests or MEMORY not in requests:
            return False
    return True


class PodFacts:
    """``alike(scheduler_name)`` returns whether equal pods may share what plugins have derived from one of them."""

    def __init__(self, make_pod: Callable[[Pod], PodInfo], alike: Callable[[str], bool]) -> None:
        self._make_pod = make_pod
        self._alike = alike
        self._by_identical_spec: dict[_SpecKey, deque[PodInfo]] = {}
        """The last pods of each workload, and of each size where pods have no owner; no two of them have an identical
        spec."""
        self._last: PodInfo | None = None
        """The one that the last pod was like: mostly, pods of one workload come one after the other."""

    def of(self, pod: Pod, known: PodInfo | None) -> PodInfo:
        """The PodInfo of ``pod``; ``known`` is that of its previous state."""
        if known is None or known.uid != pod.metadata.uid:
            return self._of_new(pod)
        before = known.pod
        same_spec = _same_but_for_node(before.spec, pod.spec)
        if not _same_grants(before.status, pod.status) or not (same_spec or _same_resources(before.spec, pod.spec)):
            return self._make_pod(pod)
        memo = known.memo if same_spec and _same_metadata(before.metadata, pod.metadata) else {}
        return PodInfo(pod, known.request, known.key, known.uid, known.priority, memo)

    def _of_new(self, pod: Pod) -> PodInfo:
        if pod.spec.node_name or not self._alike(pod.spec.scheduler_name):
            return self._make_pod(pod)
        last, metadata = self._last, pod.metadata
        if last is None or not _have_identical_spec(last.pod, pod):
            last = self._last = self._identical(pod)
        return PodInfo(pod, last.request, metadata.key, metadata.uid, last.priority, last.memo)

    def _identical(self, pod: Pod) -> PodInfo:
        """A pod of an identical spec: this one if there is no other."""
        kept = self._by_identical_spec.get(key := _spec_key(pod))
        for identical in kept or ():
            if _have_identical_spec(identical.pod, pod):
                return identical
        if len(self._by_identical_spec) >= _SPECS_KEPT:
            self._by_identical_spec.clear()
        info = self._make_pod(pod)
        self._by_identical_spec.setdefault(key, deque(maxlen=_VARIANTS_KEPT)).append(info)
        return info


def _spec_key(pod: Pod) -> _SpecKey:
    """Equal for pods of an identical spec, and for few others."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.owner_references:
        return metadata.namespace, metadata.owner_references[0].uid
    # In the order of the document, which is the API server's and so the same for identical pods.
    requests = spec.containers[0].resources.requests.values() if spec.containers else ()
    return metadata.namespace, *metadata.labels.values(), *[quantity.nanos for quantity in requests]


def _have_identical_spec(one: Pod, other: Pod) -> bool:
    """Whether the pods are equal in everything that plugins read of a pending pod but its name and uid."""
    first, second = one.metadata, other.metadata
    return (
        one.spec == other.spec
        and first.namespace == second.namespace
        and first.labels == second.labels
        and first.annotations == second.annotations
        and first.owner_references == second.owner_references
        and one.status.qos_class == other.status.qos_class
        and not one.status.container_statuses
        and not other.status.container_statuses
    )


def _same_but_for_node(before: PodSpec, after: PodSpec) -> bool:
    """Whether the specs are equal except for ``nodeName``, which binding a pod changes."""
    if before.node_name != after.node_name:
        before = msgspec.structs.replace(before, node_name=after.node_name)
    return before == after


def _same_resources(before: PodSpec, after: PodSpec) -> bool:
    return (
        before.containers == after.containers
        and before.init_containers == after.init_containers
        and before.resources == after.resources
        and before.overhead == after.overhead
        and before.priority == after.priority
    )


def _same_metadata(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Whether the metadata are equal as far as plugins read them."""
    return (
        (before.annotations == after.annotations or _without_gang(before) == _without_gang(after))
        and before.owner_references == after.owner_references
        and (before.labels == after.labels or _same_own_labels(before.labels, after.labels))
    )


def _without_gang(metadata: ObjectMeta) -> Mapping[str, str]:
    """The annotations without the number of gang members, which is added when these are bound, and from which no plugin
    derives anything."""
    return {key: value for key, value in metadata.annotations.items() if key not in BIND_GANG_KEYS}


def _same_own_labels(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether the labels are equal except for the topology labels of its node that the API server adds to a pod when it
    is bound."""
    return before == {key: value for key, value in after.items() if not key.startswith(_TOPOLOGY) or key in before}


def _same_grants(before: PodStatus, after: PodStatus) -> bool:
    """Whether containers have the same allocated resources, and their resize has the same state."""
    if _pending_resize(before) != _pending_resize(after):
        return False
    return (
        before.container_statuses == after.container_statuses
        and before.init_container_statuses == after.init_container_statuses
    ) or _granted(before) == _granted(after)


def _granted(status: PodStatus) -> list[object]:
    return [
        (container.name, container.resources, container.allocated_resources)
        for container in (*status.container_statuses, *status.init_container_statuses)
    ]


def _pending_resize(status: PodStatus) -> tuple[str, str] | None:
    for condition in status.conditions:
        if condition.type == "PodResizePending":
            return condition.status, condition.reason
    return None


def pod_as_seen(pod: Pod, steps: Sequence[PodStep] = ()) -> Pod:
    """The pod without volumes that exist with their pod: they do not affect scheduling, and one of them has another
    name in each replica."""
    pod = transformers.pod_as_seen(pod, steps)
    volumes = [volume for volume in pod.spec.volumes if not _is_plain(volume)]
    if len(volumes) == len(pod.spec.volumes):
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=volumes))


def finished_pod_as_seen(pod: Pod, is_read: Callable[[Pod], bool]) -> Pod:
    """What plugins may read of a pod that has finished; if no plugin reads it, only what identifies it."""
    metadata = pod.metadata
    if not is_read(pod):
        return Pod(
            metadata=ObjectMeta(
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        )
    return Pod(metadata=metadata, spec=PodSpec(node_name=pod.spec.node_name), status=PodStatus(phase=pod.status.phase))


def _is_plain(volume: Volume) -> bool:
    return volume == Volume(name=volume.name, empty_dir=volume.empty_dir, host_path=volume.host_path)


_RESOURCES_MEMO: Final = "resources_key"


def resources_key(pod: PodInfo) -> Hashable:
    """Equal for pods with equal requests and limits container by container. Several plugins use it; computed once for
    each pod."""
    key = pod.memo.get(_RESOURCES_MEMO)
    if key is None:
        key = pod.memo[_RESOURCES_MEMO] = _resources_key(pod.pod)
    return key


def _resources_key(pod: Pod) -> tuple[Hashable, ...]:
    spec = pod.spec
    return (
        tuple([_requirements_key(container.resources) for container in spec.containers]),
        tuple([_container_key(container) for container in spec.init_containers]),
        _amounts_key(spec.overhead),
        _requirements_key(spec.resources) if spec.resources is not None else None,
    )


def _container_key(container: Container) -> Hashable:
    return container.restart_policy, _requirements_key(container.resources)


def _requirements_key(resources: ResourceRequirements) -> Hashable:
    return _amounts_key(resources.requests), _amounts_key(resources.limits)


def _amounts_key(amounts: ResourceList) -> Hashable:
    # In the order of the document, which is the API server's and so the same for identical pods.
    return tuple([(name, quantity.nanos) for name, quantity in amounts.items()])
