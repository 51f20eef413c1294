"""Which quality of service, priority and resources go together, and that a pod keeps the first two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordinator.api import labels
from koordinator.api.field_error import FieldError
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_raw
from koordinator.api.qos import QoSClass, qos_class_raw
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU
from koordinator.manager.webhook.pod.checks import PodReview, new_problems
from koordinator.model.pod_requests import pod_requests

_IMMUTABLE: Final = "field is immutable"
_REQUESTS: Final = "pod.spec.containers[*].resources.requests"
_WHOLE_CPU: Final = 10**9
_EXCLUDED: Final[Mapping[QoSClass, tuple[PriorityClass, ...]]] = {
    QoSClass.BE: (PriorityClass.NONE, PriorityClass.PROD),
    QoSClass.LSR: (PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE),
}
"""Quality of service -> the priority classes that it cannot have."""


class ColocationRules:
    """``fixed_sub_priority``: the label of the priority within the class cannot change either."""

    plugin = "ClusterColocationProfile"

    def __init__(self, *, fixed_sub_priority: bool = True) -> None:
        self._fixed_sub_priority = fixed_sub_priority

    def problems(self, review: PodReview) -> list[str]:
        found = list(map(str, _combination_problems(review.pod)))
        if review.old is None:
            return found
        before = list(map(str, _combination_problems(review.old)))
        changes = map(str, self._changes(review.pod, review.old))
        return [*changes, *new_problems(found, before)]

    def _changes(self, pod: Pod, old: Pod) -> Iterator[FieldError]:
        if qos_class_raw(pod) != qos_class_raw(old):
            yield FieldError.invalid(f"labels.{labels.QOS_CLASS}", qos_class_raw(pod).value, _IMMUTABLE)
        if priority_class_raw(pod) != priority_class_raw(old):
            yield FieldError.invalid("spec.priority", priority_class_raw(pod).value, _IMMUTABLE)
        sub_priority = pod.metadata.labels.get(labels.PRIORITY, "")
        if self._fixed_sub_priority and sub_priority != old.metadata.labels.get(labels.PRIORITY, ""):
            yield FieldError.invalid(f"labels.{labels.PRIORITY}", sub_priority, _IMMUTABLE)


def _combination_problems(pod: Pod) -> Iterator[FieldError]:
    qos, priority, requests = qos_class_raw(pod), priority_class_raw(pod), pod_requests(pod)
    if qos != QoSClass.BE and (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)):
        text = "must specify koordinator QoS BE with koordinator colocation resources"
        yield FieldError.required(f"labels.{labels.QOS_CLASS}", text)
    if priority in _EXCLUDED.get(qos, ()):
        text = f"{labels.QOS_CLASS}={qos} and priorityClass={priority} cannot be used in combination"
        yield FieldError.forbidden("Pod", text)
    if qos in (QoSClass.LSR, QoSClass.LSE):
        yield from _cpu_problems(requests.get(CPU, 0))


def _cpu_problems(nanos: int) -> Iterator[FieldError]:
    """Such a pod gets whole CPUs of its own."""
    if not nanos:
        yield FieldError.required(_REQUESTS, "LSR Pod must declare the requested CPUs")
    elif nanos % _WHOLE_CPU:
        yield FieldError.invalid(_REQUESTS, str(Quantity(nanos)), "the requested CPUs of LSR Pod must be integer")
