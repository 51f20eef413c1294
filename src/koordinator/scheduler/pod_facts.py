"""What is derived from a pod, found as seldom as possible: once for all replicas of a workload, and again only when
something that it follows from has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.scheduler.engine.pod_info import PodInfo

MakePodInfo = Callable[[Pod], PodInfo]
_TOPOLOGY: Final = "topology.kubernetes.io/"
_TWINS_KEPT: Final = 4096
_TwinKey = tuple[object, ...]


class PodFacts:
    """``alike(scheduler_name)`` tells whether equal pods may share what plugins have derived from one of them."""

    def __init__(self, make_pod: MakePodInfo, alike: Callable[[str], bool]) -> None:
        self._make_pod = make_pod
        self._alike = alike
        self._twins: dict[_TwinKey, PodInfo] = {}
        """The last pod of each workload, and of each size where pods have no owner."""

    def of(self, pod: Pod, known: PodInfo | None) -> PodInfo:
        """The pod with its facts; ``known`` is how it was before."""
        if known is None or known.uid != pod.metadata.uid:
            return self._of_new(pod)
        same_spec = _same_but_for_node(known.pod.spec, pod.spec)
        if _granted(known.pod) != _granted(pod) or not (same_spec or _same_resources(known.pod.spec, pod.spec)):
            return self._make_pod(pod)
        memo = known.memo if same_spec and _same_metadata(known.pod.metadata, pod.metadata) else {}
        return PodInfo(pod, known.request, known.key, known.uid, known.priority, memo)

    def _of_new(self, pod: Pod) -> PodInfo:
        if pod.spec.node_name or not self._alike(pod.spec.scheduler_name):
            return self._make_pod(pod)
        metadata, spec = pod.metadata, pod.spec
        owner = metadata.owner_references[0].uid if metadata.owner_references else ""
        requests = tuple(spec.containers[0].resources.requests.items()) if spec.containers else ()
        key = metadata.namespace, spec.scheduler_name, owner, frozenset(metadata.labels.items()), requests
        twin = self._twins.get(key)
        if twin is not None and _are_twins(twin.pod, pod):
            return PodInfo(pod, twin.request, metadata.key, metadata.uid, twin.priority, twin.memo)
        if len(self._twins) >= _TWINS_KEPT:
            self._twins.clear()
        info = self._twins[key] = self._make_pod(pod)
        return info


def _are_twins(one: Pod, other: Pod) -> bool:
    """Equal in all that plugins read of a pending pod but its name and uid."""
    first, second = one.metadata, other.metadata
    return (
        one.spec == other.spec
        and first.labels == second.labels
        and first.annotations == second.annotations
        and first.owner_references == second.owner_references
        and one.status.qos_class == other.status.qos_class
        and not one.status.container_statuses
        and not other.status.container_statuses
    )


def _same_but_for_node(before: PodSpec, after: PodSpec) -> bool:
    """Binding a pod changes ``nodeName`` alone."""
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
    """As far as plugins read it."""
    return (
        before.annotations == after.annotations
        and before.owner_references == after.owner_references
        and _same_own_labels(before.labels, after.labels)
    )


def _same_own_labels(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """The API server adds the topology labels of its node to a pod that is being bound."""
    if before == after:
        return True
    return before == {key: value for key, value in after.items() if not key.startswith(_TOPOLOGY) or key in before}


def _granted(pod: Pod) -> tuple[object, object]:
    """What containers have been given, and what became of a wish to resize them."""
    status = pod.status
    containers = [
        (container.name, container.resources, container.allocated_resources)
        for container in (*status.container_statuses, *status.init_container_statuses)
    ]
    conditions = [
        (condition.type, condition.status, condition.reason)
        for condition in status.conditions
        if condition.type == "PodResizePending"
    ]
    return containers, conditions
