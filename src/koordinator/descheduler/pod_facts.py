"""What kind of pod one is, as far as evictions care (upstream's pkg/utils/pod.go), and in which order pods are evicted
(the original's pkg/descheduler/utils/sorter)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import Pod, PodCondition, is_finished, is_mirror, is_static
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import KubernetesQoS, QoSClass, kubernetes_qos, qos_class_with_default

SYSTEM_CRITICAL_PRIORITY: Final = 2 * 10**9
_LATE: Final = timedelta(seconds=30)


def pod_condition(pod: Pod, type_: str) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions if condition.type == type_), None)


def is_ready(pod: Pod) -> bool:
    """Whether the pod's Ready condition is True."""
    condition = pod_condition(pod, "Ready")
    return condition is not None and condition.status == "True"


def disruption_of(pod: Pod) -> PodCondition | None:
    """The condition of a pod that ends because of a disruption: an eviction, a preemption, a taint of its node, or its
    kubelet."""
    condition = pod_condition(pod, "DisruptionTarget")
    ends = is_finished(pod) or is_terminating(pod)
    return condition if ends and condition is not None and condition.status == "True" else None


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_leaving(pod: Pod, now: datetime) -> bool:
    """Whether the pod is about to end. The deletion timestamp says when it should have: one that has not by then, such
    as on a node whose kubelet is gone, is not counted on."""
    end = pod.metadata.deletion_timestamp
    return end is not None and now - end <= _LATE


def is_system_critical(pod: Pod) -> bool:
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def is_of_daemon_set(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def has_local_storage(pod: Pod) -> bool:
    """Data that stays behind on the node."""
    return any(volume.empty_dir is not None or volume.host_path is not None for volume in pod.spec.volumes)


def has_claim(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)


_NEVER: Final = (
    (is_of_daemon_set, "pod is a DaemonSet pod"),
    (is_mirror, "pod is a mirror pod"),
    (is_static, "pod is a static pod"),
    (is_terminating, "pod is terminating"),
)


def never_evicted(pod: Pod, *, daemon_sets: bool) -> Iterator[str]:
    """Why no arguments let the pod be evicted; ``daemon_sets``: that it is of a DaemonSet is a reason, too."""
    for is_so, text in _NEVER[not daemon_sets :]:
        if is_so(pod):
            yield text


def is_evictable_by_annotation(pod: Pod) -> bool:
    """Its annotation makes it evictable, whatever else protects it."""
    return annotation_keys.EVICTABLE in pod.metadata.annotations


def prefers_no_eviction(pod: Pod) -> bool:
    return annotation_keys.PREFER_NO_EVICTION in pod.metadata.annotations


_PRIORITY_CLASSES: Final = {
    PriorityClass.FREE: 1,
    PriorityClass.BATCH: 2,
    PriorityClass.MID: 3,
    PriorityClass.PROD: 4,
    PriorityClass.NONE: 5,
}
_KUBERNETES_QOS: Final[Mapping[str, int]] = {
    KubernetesQoS.BEST_EFFORT: 1,
    KubernetesQoS.BURSTABLE: 2,
    KubernetesQoS.GUARANTEED: 3,
}
_QOS: Final = {
    QoSClass.BE: 1,
    QoSClass.LS: 2,
    QoSClass.LSR: 3,
    QoSClass.LSE: 4,
    QoSClass.SYSTEM: 4,
    QoSClass.NONE: 5,
}
_COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")
_INT32: Final = range(-(2**31), 2**31)
_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)


def eviction_order(pod: Pod, *usage: Any) -> tuple[Any, ...]:
    """A sort key: pods that sort first are evicted first.

    By Koordinator priority class, priority, Kubernetes and Koordinator quality of service, deletion cost and eviction
    cost, then by what the caller adds, then the youngest first.
    """
    return (
        _PRIORITY_CLASSES[priority_class_with_default(pod)],
        pod.spec.priority or 0,
        _KUBERNETES_QOS.get(kubernetes_qos(pod), 0),
        _QOS[qos_class_with_default(pod)],
        cost(pod, annotation_keys.POD_DELETION_COST),
        cost(pod, annotation_keys.EVICTION_COST),
        *usage,
        -(pod.metadata.creation_timestamp or _BEGINNING).timestamp(),
        pod.metadata.namespace,
        pod.metadata.name,
    )


def kubernetes_order(pod: Pod) -> tuple[Any, ...]:
    """A sort key for upstream's plugins: by priority (none first), then quality of service, then those that would
    rather stay last."""
    return (
        pod.spec.priority is not None,
        pod.spec.priority or 0,
        _KUBERNETES_QOS.get(kubernetes_qos(pod), 0),
        prefers_no_eviction(pod),
    )


def cost(pod: Pod, annotation: str) -> int:
    """An int32 in plain notation (no ``+``, no leading zeros); anything else counts as 0."""
    text = pod.metadata.annotations.get(annotation, "")
    value = int(text) if _COST.fullmatch(text) else 0
    return value if value in _INT32 else 0
