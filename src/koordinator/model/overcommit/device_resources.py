"""The device resources of a node, from the Device object of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api import device as device_api
from koordinator.api import labels as label_keys
from koordinator.api import resource_names
from koordinator.api.device import Device, DeviceInfo
from koordinator.api.quantity import Quantity

GPU_RESOURCES: Final[tuple[str, ...]] = (
    resource_names.GPU,
    resource_names.GPU_CORE,
    resource_names.HUAWEI_NPU_CORE,
    resource_names.HUAWEI_NPU_CPU,
    resource_names.HUAWEI_NPU_DVPP,
    resource_names.GPU_MEMORY,
    resource_names.GPU_MEMORY_RATIO,
    resource_names.GPU_SHARED,
)
RDMA_RESOURCES: Final = (resource_names.RDMA,)
GPU_LABELS: Final = (label_keys.GPU_VENDOR, label_keys.GPU_MODEL, label_keys.GPU_DRIVER_VERSION)
_WRAPPED_VENDORS: Final = ("", "nvidia")
"""Vendors for whose cards koordinator.sh/gpu counts percents."""
_SHARES_OF_A_CARD: Final = 100


@dataclass(frozen=True, slots=True)
class DeviceResources:
    """The resources of devices of one type: amounts to write, names to remove; all others stay as they are."""

    amounts: Mapping[str, Quantity] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The resources of a Device object, computed once for each version of it."""

    gpu: DeviceResources
    rdma: DeviceResources


def device_facts(device: Device | None, sync_shared: bool = False) -> DeviceFacts:
    """The resources of a Device; a node without one has no devices."""
    return DeviceFacts(gpu_resources(device, sync_shared), rdma_resources(device))


def gpu_resources(device: Device | None, sync_shared: bool) -> DeviceResources:
    """Sums over the healthy cards. ``sync_shared``: set koordinator.sh/gpu.shared too; it is not changed otherwise."""
    cards = _healthy(device, device_api.GPU)
    if device is None or not cards:
        return DeviceResources(removed=GPU_RESOURCES)
    sums = _sums(cards)
    if device.metadata.labels.get(label_keys.GPU_VENDOR, "") in _WRAPPED_VENDORS:
        sums[resource_names.GPU] = sums.get(resource_names.GPU_CORE, Quantity(0))
    shared = (resource_names.GPU_SHARED,)
    if sync_shared:
        sums[resource_names.GPU_SHARED] = Quantity.from_value(_SHARES_OF_A_CARD * len(cards))
    amounts = {name: sums[name] for name in GPU_RESOURCES if name in sums}
    return DeviceResources(
        amounts=amounts,
        removed=tuple(name for name in GPU_RESOURCES if name not in amounts and name not in shared),
        labels={key: device.metadata.labels[key] for key in GPU_LABELS if key in device.metadata.labels},
    )


def rdma_resources(device: Device | None) -> DeviceResources:
    """A hundred shares for each healthy network card."""
    cards = _healthy(device, device_api.RDMA)
    if not cards:
        return DeviceResources(removed=RDMA_RESOURCES)
    return DeviceResources(amounts={resource_names.RDMA: Quantity.from_value(_SHARES_OF_A_CARD * len(cards))})


def _healthy(device: Device | None, kind: str) -> list[DeviceInfo]:
    return [] if device is None else [each for each in device.spec.devices if each.type == kind and each.health]


def _sums(cards: list[DeviceInfo]) -> dict[str, Quantity]:
    sums: dict[str, Quantity] = {}
    for card in cards:
        for name, amount in card.resources.items():
            before = sums.get(name)
            sums[name] = amount if before is None else Quantity(before.nanos + amount.nanos, before.format)
    return sums


NO_DEVICES: Final = device_facts(None)
