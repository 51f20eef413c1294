"""In which order pods are evicted: the least important first (the original's pkg/descheduler/utils/sorter).

Where the original leaves the order of equals to chance, namespace and name decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import KubernetesQoS, QoSClass, kubernetes_qos, qos_class_with_default
from koordinator.descheduler.pod_predicates import prefers_no_eviction

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
