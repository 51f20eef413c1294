"""What is derived from a pod, found as seldom as possible: once for all replicas of a workload, and again only when
something that it follows from has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.pod_info import PodInfo

MakePodInfo = Callable[[Pod], PodInfo]
_TOPOLOGY: Final = "topology.kubernetes.io/"
_TWINS_KEPT: Final = 4096
_TwinKey = tuple[str, str, str]


class PodFacts:
    """``alike(scheduler_name)`` tells whether equal pods may share what plugins have derived from one of them."""

    def __init__(self, make_pod: MakePodInfo, alike: Callable[[str], bool]) -> None:
        self._make_pod = make_pod
        self._alike = alike
        self._twins: dict[_TwinKey, PodInfo] = {}
        """The last pod of each workload."""

    def of(self, pod: Pod, known: PodInfo | None) -> PodInfo:
        """The pod with its facts; ``known`` is how it was before."""
        if known is None or known.uid != pod.metadata.uid:
            return self._of_new(pod)
        if _resources_differ(known.pod, pod):
            return self._make_pod(pod)
        return PodInfo(
            pod=pod,
            request=known.request,
            key=known.key,
            uid=known.uid,
            priority=known.priority,
            memo=known.memo if _same_to_plugins(known.pod, pod) else {},
        )

    def _of_new(self, pod: Pod) -> PodInfo:
        if pod.spec.node_name or not self._alike(pod.spec.scheduler_name):
            return self._make_pod(pod)
        metadata = pod.metadata
        owner = metadata.owner_references[0].uid if metadata.owner_references else ""
        key = metadata.namespace, pod.spec.scheduler_name, owner
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


def _resources_differ(old: Pod, new: Pod) -> bool:
    """Binding a pod changes ``nodeName`` alone; what the kubelet has granted to it counts in a resize."""
    before, after = old.spec, new.spec
    if before is not after and (
        before.containers != after.containers
        or before.init_containers != after.init_containers
        or before.resources != after.resources
        or before.overhead != after.overhead
        or before.priority != after.priority
    ):
        return True
    return _granted(old) != _granted(new)


def _same_to_plugins(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    if before.annotations != after.annotations or not _same_own_labels(before.labels, after.labels):
        return False
    if old.spec.node_name == new.spec.node_name:
        return old.spec == new.spec
    return msgspec.structs.replace(old.spec, node_name=new.spec.node_name) == new.spec


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
