"""The devices that a pod requests: which resources may be combined, the amounts for each device, and the memory of a
GPU, of which a pod requests bytes or percent and takes both.

Amounts are whole numbers: percent of a GPU, an RDMA card or an FPGA, bytes of memory. Everything here follows from the
pod alone; how many devices of a type it takes on a node is in ``instances``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from koordinator.api.device import FPGA, GPU, RDMA
from koordinator.api.resource_names import (
    AMD_GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
    HYGON_DCU,
    NVIDIA_GPU,
)
from koordinator.api.resource_names import FPGA as FPGA_RESOURCE
from koordinator.api.resource_names import GPU as GPU_PERCENT
from koordinator.api.resource_names import RDMA as RDMA_RESOURCE
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.pod_info import PodInfo

Amounts = Mapping[str, int]
"""Resource -> amount."""

WHOLE: Final = 100
"""Percent of a device."""
DEVICE_TYPES: Final = (GPU, RDMA, FPGA)
_CARDS: Final = (NVIDIA_GPU, AMD_GPU, HYGON_DCU)
_OF_GPU: Final = frozenset(
    {
        *_CARDS,
        *(GPU_PERCENT, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO),
        *(HUAWEI_NPU_CORE, HUAWEI_NPU_CPU, HUAWEI_NPU_DVPP),
    }
)
TYPE_OF: Final[Mapping[str, str]] = MappingProxyType(
    {**dict.fromkeys(_OF_GPU, GPU), RDMA_RESOURCE: RDMA, FPGA_RESOURCE: FPGA}
)
"""Resource -> type of the devices that have it."""
RESOURCE_OF: Final[Mapping[str, str]] = MappingProxyType({RDMA: RDMA_RESOURCE, FPGA: FPGA_RESOURCE})
_IN_PERCENT: Final = (GPU_PERCENT, FPGA_RESOURCE, RDMA_RESOURCE)


class RequestError(KoordinatorError, ValueError):
    """Device requests that cannot be met on any node; the text is shown to the pod's owner."""


def requested_devices(pod: PodInfo) -> tuple[tuple[str, int], ...]:
    """The device resources that the pod requests, by name."""
    # Few pods request any.
    if TYPE_OF.keys().isdisjoint(pod.request.amounts):
        return ()
    return tuple(sorted([(name, amount) for name, amount in pod.request.amounts.items() if name in TYPE_OF]))


def requested_types(pod: PodInfo) -> frozenset[str]:
    """The types of the devices that the pod requests."""
    return frozenset([TYPE_OF[name] for name, _ in requested_devices(pod)])


@dataclass(frozen=True, slots=True)
class PerGPU:
    """A request for GPUs, divided among the GPUs."""

    count: int
    amounts: tuple[tuple[str, int], ...]
    """For each GPU, by resource."""
    is_shared: bool
    """Whether less than a whole GPU is requested of each."""


def device_requests(requested: Amounts) -> dict[str, dict[str, int]]:
    """Type of device -> normalised request, for the sums of a pod's requests; types that it does not request are
    omitted. Raises RequestError."""
    found: dict[str, dict[str, int]] = {}
    for device_type in DEVICE_TYPES:
        amounts = {name: amount for name, amount in requested.items() if amount and TYPE_OF.get(name) == device_type}
        if amounts:
            found[device_type] = _normalised(amounts)
    return found


def _normalised(amounts: Amounts) -> dict[str, int]:
    for name in _IN_PERCENT:
        if name in amounts and not _is_percentage(amounts[name]):
            raise RequestError(f"invalid resource unit {name}: {amounts[name]}")
    check = _COMBINATIONS.get(frozenset(amounts))
    if check is None or not check(amounts):
        raise RequestError(f"invalid resource device requests: [{' '.join(sorted(amounts))}]")
    for name in _CARDS:
        if name in amounts:
            return dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), amounts[name] * WHOLE)
    if GPU_PERCENT in amounts:
        return dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), amounts[GPU_PERCENT])
    return dict(amounts)


def _is_percentage(amount: int) -> bool:
    """A share of one device, or whole devices."""
    return amount <= WHOLE or amount % WHOLE == 0


def _any(amounts: Amounts) -> bool:
    return True


def _percentages(amounts: Amounts) -> bool:
    return all(_is_percentage(amounts.get(name, 0)) for name in (GPU_CORE, GPU_MEMORY_RATIO))


def _even_shares(amounts: Amounts) -> bool:
    """Each of the ``gpu.shared`` GPUs gets the same, and at most all of it."""
    shares = amounts[GPU_SHARED]
    parts = [amounts.get(name, 0) for name in (GPU_CORE, GPU_MEMORY_RATIO)]
    return all(part % shares == 0 and part // shares <= WHOLE for part in parts)


def _one_npu(amounts: Amounts) -> bool:
    return amounts[GPU_SHARED] <= 1 and amounts.get(HUAWEI_NPU_DVPP, 0) <= WHOLE


_NPU_SHARE: Final = (GPU_SHARED, HUAWEI_NPU_CORE, HUAWEI_NPU_CPU, GPU_MEMORY)
_COMBINATIONS: Final[Mapping[frozenset[str], Callable[[Amounts], bool]]] = MappingProxyType(
    {
        **{frozenset({name}): _any for name in (*_CARDS, *_IN_PERCENT)},
        **{
            frozenset(names): _percentages
            for names in (
                (GPU_MEMORY,),
                (GPU_MEMORY_RATIO,),
                (GPU_CORE, GPU_MEMORY),
                (GPU_CORE, GPU_MEMORY_RATIO),
                (HUAWEI_NPU_CORE, GPU_MEMORY_RATIO),
            )
        },
        **{
            frozenset({GPU_SHARED, *names}): _even_shares
            for names in (
                (GPU_MEMORY,),
                (GPU_MEMORY_RATIO,),
                (GPU_CORE, GPU_MEMORY),
                (GPU_CORE, GPU_MEMORY_RATIO),
            )
        },
        frozenset(_NPU_SHARE): _one_npu,
        frozenset({*_NPU_SHARE, HUAWEI_NPU_DVPP}): _one_npu,
    }
)
"""The resources of GPUs, RDMA cards and FPGAs that may be requested together, with the condition for their amounts."""


def per_gpu(request: Amounts) -> PerGPU:
    """The number of GPUs of a normalised request for GPUs, and the amounts for each."""
    ratio = request.get(GPU_MEMORY_RATIO, 0)
    count = request.get(GPU_SHARED, 0) or (ratio // WHOLE if ratio > WHOLE and ratio % WHOLE == 0 else 1)
    left_out = {GPU_SHARED, GPU_MEMORY} if ratio else {GPU_SHARED}
    amounts = {name: amount // count for name, amount in request.items() if name not in left_out}
    is_shared = amounts[GPU_MEMORY_RATIO] < WHOLE if ratio else GPU_MEMORY in amounts
    return PerGPU(count, tuple(sorted(amounts.items())), is_shared)


def with_both_memories(request: Mapping[str, int], total: Mapping[str, int]) -> dict[str, int]:
    """The request to a GPU that has ``total``, with its memory in both units. A percentage is rounded down, so that
    shares that fill the memory together fit."""
    whole = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY_RATIO in request:
        return {GPU_MEMORY: request[GPU_MEMORY_RATIO] * whole // WHOLE, **request}
    if GPU_MEMORY in request:
        return {GPU_MEMORY_RATIO: request[GPU_MEMORY] * WHOLE // whole if whole else 0, **request}
    return dict(request)


def fits(request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int]) -> bool:
    """Whether a device with ``total`` has enough free of every requested resource. A resource that it does not name
    counts as 0, except for a unit of memory that is not requested."""
    amounts = with_both_memories(request, total)
    return all(amount <= free.get(name, 0 if name in request else amount) for name, amount in amounts.items())
