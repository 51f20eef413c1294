"""The devices that a pod holds, and the annotation that records them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordinator.api.codec import encode
from koordinator.api.device_share import device_quantity, read_allocated_devices
from koordinator.api.resource_names import DEPRECATED_NAMES
from koordinator.api.usable_amounts import bounded

Minors = Mapping[int, Mapping[str, int]]
"""Minor number -> resource -> amount."""
ByType = Mapping[str, Minors]
"""Type of device -> amounts by minor number and resource."""


class HeldDevice(NamedTuple):
    """What a pod holds of one device."""

    minor: int
    resources: tuple[tuple[str, int], ...]
    """By name of the resource."""
    id: str = ""
    vfs: tuple[tuple[int, str], ...] = ()
    """Minor number and PCI address of each virtual function."""
    template: str = ""


DeviceAllocations = tuple[tuple[str, tuple[HeldDevice, ...]], ...]
"""(type, devices), by type."""


def allocations_of(found: Mapping[str, Iterable[HeldDevice]]) -> DeviceAllocations:
    """Sorted by type; types without a device are omitted."""
    pairs = [(device_type, tuple(devices)) for device_type, devices in sorted(found.items())]
    return tuple([pair for pair in pairs if pair[1]])


def amounts_held(allocations: DeviceAllocations) -> dict[str, dict[int, dict[str, int]]]:
    """The amounts alone; if the same device occurs twice, both count."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for device_type, devices in allocations:
        of_type = found.setdefault(device_type, {})
        for device in devices:
            amounts = of_type.setdefault(device.minor, {})
            for name, amount in device.resources:
                amounts[name] = amounts.get(name, 0) + amount
    return found


def allocation_annotation(allocations: DeviceAllocations) -> str:
    """The annotation ``device-allocated``, with the keys in the original's order."""
    return encode({device_type: [_document(each) for each in devices] for device_type, devices in allocations}).decode()


def _document(device: HeldDevice) -> dict[str, object]:
    document: dict[str, object] = {
        "minor": device.minor,
        "resources": {name: str(device_quantity(name, amount)) for name, amount in sorted(device.resources)},
    }
    if device.id:
        document["id"] = device.id
    extension: dict[str, object] = {}
    if device.vfs:
        extension["vfs"] = [_function(minor, bus_id) for minor, bus_id in device.vfs]
    if device.template:
        extension["gpuSharedResourceTemplate"] = device.template
    if extension:
        document["extension"] = extension
    return document


def _function(minor: int, bus_id: str) -> dict[str, object]:
    return {**({"minor": minor} if minor else {}), **({"busID": bus_id} if bus_id else {})}


def read_allocations(text: str) -> DeviceAllocations:
    """Decode the annotation ``device-allocated``; deprecated resource names are replaced. Raises DecodeError."""
    found: dict[str, list[HeldDevice]] = {}
    for device_type, devices in read_allocated_devices(text).items():
        for device in devices:
            amounts = {DEPRECATED_NAMES.get(name, name): bounded(each.value) for name, each in device.resources.items()}
            extension = device.extension
            functions = extension.virtual_functions if extension is not None else []
            held = HeldDevice(
                device.minor,
                tuple(sorted(amounts.items())),
                device.id,
                tuple([(each.minor, each.bus_id) for each in functions]),
                extension.gpu_shared_resource_template if extension is not None else "",
            )
            found.setdefault(device_type, []).append(held)
    return allocations_of(found)
