"""GPU requests that no card can serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordinator.api.field_error import FieldError
from koordinator.api.pod import Pod, ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
)
from koordinator.manager.webhook.pod.checks import PodReview, new_problems

_REQUESTS: Final = "pod.spec.containers[*].resources.requests"
_WHOLE_CARD: Final = 100
_NOTHING: Final = Quantity(0)


class DeviceResourceRules:
    plugin = "DeviceResource"

    def problems(self, review: PodReview) -> list[str]:
        return new_problems(_problems(review.pod), _problems(review.old) if review.old is not None else ())


def _problems(pod: Pod) -> list[str]:
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
    """Every card of several gives the same share."""
    for name, what in ((GPU_CORE, "gpuCore"), (GPU_MEMORY_RATIO, "gpuMemoryRatio")):
        if _value(requests, name) % shared:
            yield _invalid(requests[name], f"the requested {what} must multiple of shared")


def _value(requests: ResourceList, name: str) -> int:
    return requests.get(name, _NOTHING).value


def _invalid(amount: Quantity, allowed: str) -> FieldError:
    return FieldError.invalid(_REQUESTS, str(amount), allowed)


def _forbidden(why: str) -> FieldError:
    return FieldError.forbidden(_REQUESTS, why)
