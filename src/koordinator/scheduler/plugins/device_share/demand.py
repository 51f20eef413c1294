"""A pod's demand for devices: which resources may be requested together, the amounts for each device, and the memory of
a GPU, of which a pod requests bytes or percent and takes both; hints, joint allocation, partitions.

Amounts are whole numbers: percent of a GPU, an RDMA card or an FPGA, bytes of memory. Everything here follows from the
pod alone; how many devices of a type it takes on a node is in ``instances``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.device import FPGA, GPU, RDMA
from koordinator.api.device_share import (
    APPLY_FOR_ALL,
    DEVICE_SCOPE,
    NODE_SCOPE,
    NUMA_NODE_SCOPE,
    PCIE_SCOPE,
    RESTRICTED,
    SAME_PCIE,
    DeviceHint,
    DeviceJointAllocate,
    GPUPartitionSpec,
)
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
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
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.device_share.allocation import DeviceAllocations, read_allocations

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


SCOPE_LEVELS: Final[Mapping[str, int]] = {"": 0, NODE_SCOPE: 1, NUMA_NODE_SCOPE: 2, PCIE_SCOPE: 3}
"""The larger the level, the nearer GPUs are to each other."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hint:
    """The requirements on the devices of one type."""

    selector: CompiledSelector | None = None
    vf_selector: CompiledSelector | None = None
    """If set, each device comes with one of the virtual functions that match."""
    strategy: str = ""
    exclusive_policy: str = ""


NO_HINT: Final = Hint()


@dataclass(frozen=True, slots=True)
class GPUDemand:
    """The requirements on GPUs beyond amounts."""

    per_gpu: PerGPU
    is_partition: bool = False
    """Whether the GPUs have to be a partition of the node."""
    best_partition_only: bool = False
    bandwidth: int | None = None
    """The least bandwidth of the partition, in units of 10**-9."""
    scope: str = ""
    """The topology scope that has to contain all GPUs."""

    @property
    def amounts(self) -> dict[str, int]:
        """The amounts for each GPU, by resource."""
        return dict(self.per_gpu.amounts)


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """A pod's demand for devices. ``requests``: type -> normalised request."""

    requests: Mapping[str, Amounts]
    gpu: GPUDemand | None = None
    hints: Mapping[str, Hint] = field(default_factory=dict)
    joint: tuple[str, ...] = ()
    """Types that are allocated together, the primary one first."""
    same_pcie: bool = False
    """Whether these have to be on the same PCIe switches."""
    isolation: str = ""
    """The required provider of isolation for shares of a GPU on the node."""
    designated: DeviceAllocations = ()
    """The devices that another scheduler has designated; no others may be used."""

    @property
    def shares_gpu(self) -> bool:
        """Whether less than a GPU is requested."""
        return self.gpu is not None and self.gpu.per_gpu.is_shared

    def hint(self, device_type: str) -> Hint:
        return self.hints.get(device_type, NO_HINT)


def read_demand(pod: Pod, requested: Amounts, *, is_designated: bool) -> DeviceDemand | None:
    """The demand of a pod that requests these amounts, by resource; None if no device is among them. ``is_designated``:
    the pod has to get the devices in its annotation ``device-allocated``.

    Raises RequestError with a text for the pod's owner.
    """
    requests = device_requests(requested)
    if not requests:
        return None
    annotations = pod.metadata.annotations
    hints = _read(annotations, annotation_keys.DEVICE_ALLOCATE_HINT, dict[str, DeviceHint], "DeviceAllocateHint") or {}
    joint = _read(annotations, annotation_keys.DEVICE_JOINT_ALLOCATE, DeviceJointAllocate, "DeviceJointAllocate")
    together = joint.device_types if joint is not None else []
    compiled = {device_type: _compiled(device_type, hint) for device_type, hint in hints.items()}
    gpu = _gpu(annotations, requests[GPU], hints.get(GPU)) if GPU in requests else None
    isolation = pod.metadata.labels.get(label_keys.GPU_ISOLATION_PROVIDER, "")
    return DeviceDemand(
        requests,
        gpu,
        compiled,
        joint=tuple(
            dict.fromkeys(
                each for each in together if each in requests and compiled.get(each, NO_HINT).strategy != APPLY_FOR_ALL
            )
        ),
        same_pcie=joint is not None and joint.required_scope == SAME_PCIE,
        isolation=isolation if gpu is not None and gpu.per_gpu.is_shared else "",
        designated=_designated(annotations) if is_designated else (),
    )


def demand_key(pod: Pod, requested: Collection[tuple[str, int]], *, is_designated: bool) -> tuple[object, ...]:
    """Equal for pods of equal demands."""
    annotations = pod.metadata.annotations
    names = (*_READ, annotation_keys.DEVICE_ALLOCATED) if is_designated else _READ
    isolation = pod.metadata.labels.get(label_keys.GPU_ISOLATION_PROVIDER, "")
    return tuple(requested), tuple([annotations.get(name, "") for name in names]), isolation


_READ: Final = (
    annotation_keys.DEVICE_ALLOCATE_HINT,
    annotation_keys.DEVICE_JOINT_ALLOCATE,
    annotation_keys.GPU_PARTITION_SPEC,
)


def _read(annotations: Mapping[str, str], key: str, kind: type[T], name: str) -> T | None:
    text = annotations.get(key)
    if text is None or (not text and key == annotation_keys.DEVICE_ALLOCATE_HINT):
        return None
    try:
        return decode(text, kind)
    except DecodeError as error:
        raise RequestError(f"invalid {name} annotation, err: {error}") from error


def _compiled(device_type: str, hint: DeviceHint) -> Hint:
    return Hint(
        _selector(device_type, "Selector", hint.selector),
        _selector(device_type, "VFSelector", hint.vf_selector),
        hint.allocate_strategy,
        hint.exclusive_policy,
    )


def _selector(device_type: str, name: str, selector: LabelSelector | None) -> CompiledSelector | None:
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except SelectorError as error:
        raise RequestError(f"invalid {name} of DeviceHint, deviceType: {device_type}, err: {error}") from error


def _gpu(annotations: Mapping[str, str], request: Amounts, hint: DeviceHint | None) -> GPUDemand:
    spec = _read(annotations, annotation_keys.GPU_PARTITION_SPEC, GPUPartitionSpec, "GPUPartitionSpec")
    scope = hint.required_topology_scope if hint is not None else ""
    if scope == DEVICE_SCOPE:
        raise RequestError(
            "invalid DeviceAllocateHint annotation, err: requiredTopologyScope: no GPUs are in the scope Device; "
            f"use {PCIE_SCOPE}, {NUMA_NODE_SCOPE} or {NODE_SCOPE}"
        )
    bandwidth = spec.ring_bus_bandwidth if spec is not None else None
    return GPUDemand(
        per_gpu(request),
        is_partition=spec is not None,
        best_partition_only=spec is not None and spec.allocate_policy == RESTRICTED,
        bandwidth=bandwidth.nanos if bandwidth is not None else None,
        scope=scope,
    )


def _designated(annotations: Mapping[str, str]) -> DeviceAllocations:
    text = annotations.get(annotation_keys.DEVICE_ALLOCATED)
    if text is None:
        return ()
    try:
        return read_allocations(text)
    except DecodeError as error:
        raise RequestError(str(error)) from error
