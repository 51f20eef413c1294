"""The order in which pods are taken from where they are: what is missed least goes first."""

from __future__ import annotations

import re
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import KubernetesQoS, QoSClass, kubernetes_qos, qos_class_with_default

_PRIORITY_CLASSES: Final = {
    PriorityClass.FREE: 1,
    PriorityClass.BATCH: 2,
    PriorityClass.MID: 3,
    PriorityClass.PROD: 4,
    PriorityClass.NONE: 5,
}
_KUBERNETES_CLASSES: Final = {
    KubernetesQoS.BEST_EFFORT.value: 1,
    KubernetesQoS.BURSTABLE.value: 2,
    KubernetesQoS.GUARANTEED.value: 3,
}
_CLASSES: Final = {
    QoSClass.BE: 1,
    QoSClass.LS: 2,
    QoSClass.LSR: 3,
    QoSClass.LSE: 4,
    QoSClass.SYSTEM: 4,
    QoSClass.NONE: 5,
}
_COST: Final = re.compile(r"-?[1-9][0-9]{0,9}")
_INT32: Final = range(-(2**31), 2**31)

NEVER: Final = 2**31 - 1
"""The eviction cost of a pod that must not be evicted."""


def cost_of(pod: Pod, annotation: str) -> int:
    """A cost that an annotation gives, such as that of the pod's eviction; 0 for what is no decimal int32."""
    text = pod.metadata.annotations.get(annotation, "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if cost in _INT32 else 0


def importance(pod: Pod) -> tuple[int, int, int, int, int, int]:
    """What comes before how much a pod uses: priorities, qualities of service and costs; the lowest go first."""
    return (
        _PRIORITY_CLASSES[priority_class_with_default(pod)],
        pod.spec.priority or 0,
        _KUBERNETES_CLASSES.get(kubernetes_qos(pod), 0),
        _CLASSES[qos_class_with_default(pod)],
        cost_of(pod, annotation_keys.POD_DELETION_COST),
        cost_of(pod, annotation_keys.EVICTION_COST),
    )


def age_order(pod: Pod) -> float:
    """What decides between pods that are alike: the newest goes first."""
    created = pod.metadata.creation_timestamp
    return -created.timestamp() if created is not None else 0.0
