"""The devices that a pod holds, the annotation that records them, and what it may have of a node's devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordinator.api.codec import encode
from koordinator.api.device_share import device_quantity, read_allocated_devices
from koordinator.api.reservation import RESTRICTED
from koordinator.api.resource_names import DEPRECATED_NAMES
from koordinator.api.usable_amounts import bounded
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.recorded_allocator import Restored

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


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod may have of the devices of a node, beside what is free, during one allocation.

    ``used`` includes what is returned twice, and excludes what is kept.
    """

    returned: ByType
    kept: ByType
    required: ByType
    """If a type is in it, only these devices may be used, up to these amounts."""
    preferred: Mapping[str, Collection[int]]
    """Minor numbers that come first, by type."""
    numa_nodes: frozenset[int] | None = None
    """If set, only devices of these NUMA nodes."""
    leaves_secondary: bool = False
    """See ``instances``."""


WHATEVER_IS_FREE: Final = Share({}, {}, {}, {})


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


PREFIX = "Reservation(s) "
"""The prefix of reasons that concern a Reservation and not the node."""


@dataclass(frozen=True, slots=True)
class ReservedDevices:
    """The devices of one Reservation, or of a running pod that a Reservation may take over."""

    held: ByType
    left: ByType
    """What owners may still take."""
    policy: str
    """If Restricted, owners take no other devices of the types that it holds."""


Restorable = Restored[ReservedDevices, ByType]


def share_of_reserved(restored: Restorable, uids: Collection[str]) -> Share:
    """The share of a pod that takes from this Reservation, or of a Reservation that takes over these pods: what is left
    of these, and of the node."""
    kept = total([each.left for uid, each in restored.matched.items() if uid not in uids])
    chosen = [restored.matched[uid] for uid in uids]
    required = {
        device_type: {minor: own.left.get(device_type, {}).get(minor, {}) for minor in minors}
        for own in chosen
        if own.policy == RESTRICTED and not restored.takes_over
        for device_type, minors in own.held.items()
    }
    return Share(restored.counted_twice, kept, required, minors_of(total([each.held for each in chosen])))


def includes(found: DeviceAllocations, held: ByType) -> bool:
    """Whether all devices of ``held`` are among those of ``found``."""
    there = {(device_type, device.minor) for device_type, devices in found for device in devices}
    return all((device_type, minor) in there for device_type, minors in held.items() for minor in minors)


def of_reservation(reason: Reason) -> Reason:
    """The reason, as one that concerns a Reservation."""
    return Reason(PREFIX + reason.text)


def minors_of(amounts: ByType) -> dict[str, frozenset[int]]:
    """The minor numbers by type."""
    return {device_type: frozenset(minors) for device_type, minors in amounts.items()}


def total(parts: Sequence[ByType]) -> ByType:
    """The sum by type, minor and resource."""
    if len(parts) == 1:
        return parts[0]
    found: dict[str, dict[int, dict[str, int]]] = {}
    for part in parts:
        for device_type, minors in part.items():
            for minor, amounts in minors.items():
                counted = found.setdefault(device_type, {}).setdefault(minor, {})
                for name, amount in amounts.items():
                    counted[name] = counted.get(name, 0) + amount
    return found


def minus(amounts: ByType, taken: ByType) -> ByType:
    """What is left, never below 0; empty entries are omitted."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for device_type, minors in amounts.items():
        for minor, of_minor in minors.items():
            gone = taken.get(device_type, {}).get(minor, {})
            left = {name: amount - gone.get(name, 0) for name, amount in of_minor.items()}
            left = {name: amount for name, amount in left.items() if amount > 0}
            if left:
                found.setdefault(device_type, {})[minor] = left
    return found


def summed(devices: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The sums over all devices, by resource."""
    found: Counter[str] = Counter()
    for amounts in devices:
        found.update(amounts)
    return found
