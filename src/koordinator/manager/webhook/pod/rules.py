"""The checks that a pod must pass: their interface, and the checks that need only the pod.

They are: which combinations of quality of service, priority and resources are valid, and that the first two are
immutable; GPU requests that no card can serve; annotations that only the scheduler sets, on the pods that stand for
Reservations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.api import labels
from koordinator.api.annotations import RESERVE_POD
from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.field_error import FieldError
from koordinator.api.pod import Pod, ResourceList
from koordinator.api.priority import PriorityClass, priority_class_raw
from koordinator.api.qos import QoSClass, qos_class_raw
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import (
    BEST_EFFORT,
    CPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
)
from koordinator.manager.webhook.admission import AdmissionRequest
from koordinator.model.pod_requests import pod_requests

_IMMUTABLE: Final = "field is immutable"
_REQUESTS: Final = "pod.spec.containers[*].resources.requests"
_WHOLE_CPU: Final = 10**9
_EXCLUDED: Final[Mapping[QoSClass, tuple[PriorityClass, ...]]] = {
    QoSClass.BE: (PriorityClass.NONE, PriorityClass.PROD),
    QoSClass.LSR: (PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE),
}
_WHOLE_CARD: Final = 100
_NOTHING: Final = Quantity(0)
_RESERVED: Final = (RESERVE_POD,)


@dataclass(frozen=True, slots=True)
class PodReview:
    """The request: a pod that is created, or a pod before and after an update."""

    pod: Pod
    old: Pod | None
    """None when the pod is created."""
    namespace: str
    dry_run: bool = False
    """The request will not be persisted, so no state may be kept either."""


class PodCheck(Protocol):
    """One rule that pods must obey."""

    plugin: str
    """Its name in metrics."""

    def problems(self, review: PodReview) -> Sequence[str]:
        """The error messages for the user; empty for a valid pod."""
        ...


def pod_review(request: AdmissionRequest) -> PodReview:
    """Decode the request. Raises DecodeError for an object that is no pod."""
    pod = convert(request.object, Pod)
    return PodReview(
        pod=pod,
        old=_old_pod(request.old_object),
        namespace=pod.metadata.namespace or request.namespace,
        dry_run=request.dry_run,
    )


def is_terminating(review: PodReview) -> bool:
    """Whether the update is for a pod that is being deleted, such as the removal of a finalizer."""
    return review.old is not None and review.old.metadata.deletion_timestamp is not None


def joined(problems: Sequence[str]) -> str:
    """Joined as Kubernetes joins errors: duplicates removed, in brackets when there are several."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def new_problems(found: Sequence[str], before: Sequence[str]) -> list[str]:
    """The problems that the update introduces. A problem that existed before and is unchanged is no reason to refuse
    it."""
    return [problem for problem in found if problem not in before]


def _old_pod(document: Document | None) -> Pod | None:
    return convert(document, Pod) if document is not None else None


"""Quality of service -> the priority classes that it cannot be combined with."""


class ColocationRules:
    """``fixed_sub_priority``: the label of the priority within the class is immutable as well."""

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
    if qos != QoSClass.BE and any(map(requests.get, BEST_EFFORT)):
        text = "must specify koordinator QoS BE with koordinator colocation resources"
        yield FieldError.required(f"labels.{labels.QOS_CLASS}", text)
    if priority in _EXCLUDED.get(qos, ()):
        text = f"{labels.QOS_CLASS}={qos} and priorityClass={priority} cannot be used in combination"
        yield FieldError.forbidden("Pod", text)
    if qos in (QoSClass.LSR, QoSClass.LSE):
        yield from _cpu_problems(requests.get(CPU, 0))


def _cpu_problems(nanos: int) -> Iterator[FieldError]:
    """LSE and LSR pods get exclusive CPUs, so they must request whole ones."""
    if not nanos:
        yield FieldError.required(_REQUESTS, "LSR Pod must declare the requested CPUs")
    elif nanos % _WHOLE_CPU:
        yield FieldError.invalid(_REQUESTS, str(Quantity(nanos)), "the requested CPUs of LSR Pod must be integer")


class DeviceResourceRules:
    plugin = "DeviceResource"

    def problems(self, review: PodReview) -> list[str]:
        return new_problems(
            _device_problems(review.pod), _device_problems(review.old) if review.old is not None else ()
        )


def _device_problems(pod: Pod) -> list[str]:
    return [str(problem) for each in pod.spec.containers for problem in _of_container(each.resources.requests)]


def _of_container(requests: ResourceList) -> Iterator[FieldError]:
    if GPU in requests and GPU_SHARED in requests:
        yield _forbidden("Forbidden declare GPU and GPU share at same time")
        return
    if GPU in requests:
        yield from _of_gpu(requests[GPU])
    if GPU_SHARED in requests:
        yield from _of_shared_gpu(requests)


def _of_gpu(amount: Quantity) -> Iterator[FieldError]:
    if amount.value == 0:
        yield _invalid(amount, "the requested GPU must be greater than zero")
    if amount.value > _WHOLE_CARD and amount.value % _WHOLE_CARD:
        yield _invalid(amount, "the requested GPU must be percentage of 100")


def _of_shared_gpu(requests: ResourceList) -> Iterator[FieldError]:
    shared = requests[GPU_SHARED]
    if shared.value == 0:
        yield _invalid(shared, "the requested GPU must be greater than zero")
    if _value(requests, HUAWEI_NPU_CORE):
        return
    memory, ratio = _value(requests, GPU_MEMORY), _value(requests, GPU_MEMORY_RATIO)
    if not memory and not ratio:
        yield _forbidden("GPU memory and GPU memory ratio all is zero")
    if memory and ratio:
        yield _forbidden("declare GPU memory and GPU memory ratio at same time")
    if shared.value:
        yield from _indivisible(requests, shared.value)


def _indivisible(requests: ResourceList, shared: int) -> Iterator[FieldError]:
    """A request for several cards must be divisible by their number."""
    for name, what in ((GPU_CORE, "gpuCore"), (GPU_MEMORY_RATIO, "gpuMemoryRatio")):
        if _value(requests, name) % shared:
            yield _invalid(requests[name], f"the requested {what} must multiple of shared")


def _value(requests: ResourceList, name: str) -> int:
    return requests.get(name, _NOTHING).value


def _invalid(amount: Quantity, allowed: str) -> FieldError:
    return FieldError.invalid(_REQUESTS, str(amount), allowed)


def _forbidden(why: str) -> FieldError:
    return FieldError.forbidden(_REQUESTS, why)


class ReservedAnnotations:
    plugin = "ClusterReservation"

    def problems(self, review: PodReview) -> list[str]:
        return new_problems(
            _reserved_problems(review.pod), _reserved_problems(review.old) if review.old is not None else ()
        )


def _reserved_problems(pod: Pod) -> list[str]:
    return [
        str(FieldError.forbidden(f"annotations.{name}", "cannot set in annotations"))
        for name in _RESERVED
        if name in pod.metadata.annotations
    ]
