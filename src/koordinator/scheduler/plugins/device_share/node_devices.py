"""The devices of one node: total, used, and what of that may be allocated to a pod; and their documents for services
and ``koord explain``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import labels as label_keys
from koordinator.api.annotations import DEVICE_ALLOCATED, GPU_PARTITIONS
from koordinator.api.codec import DecodeError, encode, to_document
from koordinator.api.device import GPU, Device, DeviceInfo
from koordinator.api.device_share import PCIE_LEVEL, device_quantity, read_partition_table
from koordinator.api.resource_names import with_current_names
from koordinator.api.usable_amounts import bounded
from koordinator.scheduler.engine.allocations import NodeAllocations, closed_by
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.device_share.allocation import (
    WHATEVER_IS_FREE,
    ByType,
    DeviceAllocations,
    Minors,
    Share,
    amounts_held,
    summed,
)
from koordinator.scheduler.plugins.device_share.demand import NO_HINT, Hint, requested_types
from koordinator.scheduler.plugins.device_share.gpu_partitions import (
    GPUScope,
    PartitionTable,
    gpu_scopes,
    partition_table,
)

_LABELS: Final = (label_keys.SECONDARY_DEVICE_WELL_PLANNED, label_keys.GPU_PARTITION_POLICY)
_NOTHING: Final[Mapping[int, Mapping[str, int]]] = {}
_UNUSED: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The devices of one type that a pod may use."""

    total: Minors
    """Of healthy ones only."""
    free: Minors
    used: frozenset[int]
    """The minors of which pods hold something, whether they are candidates or not."""


class NodeDevices(NodeAllocations[DeviceAllocations]):
    """Counted by type, minor number and resource. A device that is not healthy, or that pods hold although the Device
    object does not name it any more, has a total of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: dict[str, list[DeviceInfo]] = {}
        self.total: dict[str, dict[int, dict[str, int]]] = {}
        self.used: dict[str, dict[int, Counter[str]]] = {}
        self.functions_used: dict[str, dict[int, Counter[str]]] = {}
        """PCI addresses of virtual functions by type and minor."""
        self.scopes: GPUScope | None = None
        self.partitions: PartitionTable | None = None
        """From the Device object; None if that has none."""
        self.fault = ""
        """The error in the Device object, if it cannot be decoded."""
        self.device: Device | None = None
        """None before there is one, and when it is deleted."""
        self._shape = b""
        """An encoding of all of the Device object that allocation depends on."""
        self._likeness: Hashable = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known. A Device object without devices says that there are none."""
        return self.device is None and not self.infos and not self.held and not self.closed

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the Device object."""
        return self.device.metadata.labels if self.device is not None else {}

    @property
    def planned(self) -> str:
        """Whether secondary devices fit wherever the primary one does: "true", "false" or empty, unknown."""
        return self.labels.get(label_keys.SECONDARY_DEVICE_WELL_PLANNED, "")

    @property
    def likeness(self) -> Hashable:
        """Equal for nodes on which pods of equal requests get equal devices. Most nodes of a cluster are alike."""
        if self._likeness is None:
            used, functions = str(sorted(self.used.items())), str(sorted(self.functions_used.items()))
            self._likeness = self._shape, used, functions, *sorted(self.closed)
        return self._likeness

    # Totals.

    def set_device(self, device: Device | None) -> None:
        """Apply a new or changed Device object; None if it is deleted: then its devices count as unhealthy, and pods
        keep what they hold."""
        self.device, self._likeness = device, None
        if device is None:
            self._shape += b"gone"
            self.total = {device_type: {minor: {} for minor in minors} for device_type, minors in self.total.items()}
        else:
            self._read(device)
        self.check()

    def _read(self, device: Device) -> None:
        self._shape = _shape(device)
        self.infos, self.total = {}, {}
        for info in device.spec.devices:
            if info.minor is None:
                continue
            self.infos.setdefault(info.type, []).append(info)
            amounts = with_current_names(info.resources) if info.health else {}
            self.total.setdefault(info.type, {})[info.minor] = {
                name: bounded(each.value) for name, each in amounts.items() if each.value > 0
            }
        self.scopes = gpu_scopes(self.infos.get(GPU, ()))
        self.partitions, self.fault = _partitions(device)

    def has(self, device_type: str) -> bool:
        """Whether there is any device of the type, healthy or not."""
        return bool(self.infos.get(device_type) or self.used.get(device_type))

    def healthy(self, device_type: str, hint: Hint = NO_HINT) -> list[int]:
        """The minors of the healthy devices that the hint selects."""
        total = self.total.get(device_type, _NOTHING)
        return [
            each.minor for each in self._selected(device_type, hint) if each.minor is not None and total[each.minor]
        ]

    def with_ids(self, allocations: DeviceAllocations) -> DeviceAllocations:
        """The allocations with the IDs of the devices."""
        ids = {(each.type, each.minor): each.id for infos in self.infos.values() for each in reversed(infos)}
        return tuple(
            [
                (device_type, tuple([each._replace(id=ids.get((device_type, each.minor), "")) for each in devices]))
                for device_type, devices in allocations
            ]
        )

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """Those that have devices, ascending."""
        found = {each.topology.node_id for infos in self.infos.values() for each in infos if each.topology is not None}
        return tuple(sorted(each for each in found if each >= 0))

    def numa_node_of(self, device_type: str, minor: int) -> int | None:
        """None if unknown."""
        for each in self.infos.get(device_type, ()):
            if each.minor == minor and each.topology is not None and each.topology.node_id >= 0:
                return each.topology.node_id
        return None

    def count_in(self, device_type: str, numa_nodes: Collection[int]) -> int:
        """How many devices of the type these NUMA nodes have."""
        infos = self.infos.get(device_type, ())
        return sum(1 for each in infos if each.topology is not None and each.topology.node_id in numa_nodes)

    def switches(self, device_type: str, minors: Collection[int]) -> frozenset[str]:
        """The PCIe switches of the devices, as far as known."""
        return frozenset(
            each.topology.pcie_id
            for each in self.infos.get(device_type, ())
            if each.minor in minors and each.topology is not None
        )

    # Usage.

    def subjects(self, pod: PodInfo) -> Collection[str]:
        """The types of devices that the pod requests: of others it holds none, whatever its record says."""
        return requested_types(pod)

    def missing(self, pod: PodInfo, allocation: DeviceAllocations) -> Sequence[tuple[str, str]]:
        """The types of which the pod holds a device, by its record, that the node does not have."""
        gone = [
            (device_type, device.minor)
            for device_type, devices in (allocation if self.device is not None else ())
            for device in devices
            if device.minor not in self.total.get(device_type, _NOTHING)
        ]
        types = self.subjects(pod) if gone else ()
        return [(each, _missing(each, minor, self.total.get(each, _NOTHING))) for each, minor in gone if each in types]

    def release(self, uid: str) -> None:
        # What the pod has closed is part of the likeness, too.
        self._likeness = None
        super().release(uid)

    def count(self, allocation: DeviceAllocations, sign: int) -> None:
        self._likeness = None
        for device_type, minors in amounts_held(allocation).items():
            used = self.used.setdefault(device_type, {})
            for minor, amounts in minors.items():
                _add(used, minor, amounts, sign)
            if not used:
                del self.used[device_type]
        for device_type, devices in allocation:
            functions = self.functions_used.setdefault(device_type, {})
            for device in devices:
                _add(functions, device.minor, Counter(bus_id for _, bus_id in device.vfs), sign)
            if not functions:
                del self.functions_used[device_type]

    # What may be allocated.

    def candidates(self, device_type: str, hint: Hint, share: Share) -> Candidates:
        """The devices that the hint selects, with the amounts that the pod may use."""
        total, used = self.total.get(device_type, _NOTHING), self.used.get(device_type, {})
        returned, kept = share.returned.get(device_type, _NOTHING), share.kept.get(device_type, _NOTHING)
        required = share.required.get(device_type)
        taken = {
            minor: _taken(used.get(minor, _UNUSED), kept.get(minor, _UNUSED), returned.get(minor, _UNUSED))
            for minor in {*used, *kept}
        }
        free: dict[int, Mapping[str, int]] = {}
        for info in self._selected(device_type, hint, share.numa_nodes):
            minor = info.minor
            if minor is None or not total[minor] or (required is not None and minor not in required):
                continue
            of_minor = taken.get(minor, _UNUSED)
            left = {name: max(0, amount - of_minor.get(name, 0)) for name, amount in total[minor].items()}
            if required is not None:
                left = {name: min(amount, required[minor].get(name, 0)) for name, amount in left.items()}
            free[minor] = left
        if hint.exclusive_policy == PCIE_LEVEL:
            shared = self.switches(device_type, [minor for minor, amounts in taken.items() if any(amounts.values())])
            free = {minor: left for minor, left in free.items() if not shared & self.switches(device_type, (minor,))}
        whole = {minor: total[minor] for minor in free}
        busy = {minor for minor, amounts in taken.items() if any(amounts.values())}
        return Candidates(whole, free, frozenset(busy | {minor for minor in free if free[minor] != whole[minor]}))

    def _selected(self, device_type: str, hint: Hint, numa_nodes: Collection[int] | None = None) -> list[DeviceInfo]:
        found = self.infos.get(device_type, [])
        if numa_nodes is not None:
            found = [each for each in found if each.topology and each.topology.node_id in (-1, *numa_nodes)]
        if hint.selector is not None:
            found = [each for each in found if hint.selector.matches(each.labels)]
        return found

    def free_function(
        self, device_type: str, minor: int, hint: Hint, designated: Collection[str] | None
    ) -> tuple[int, str] | None:
        """Minor number and PCI address of the next virtual function of a device; None if none is left that the hint
        selects. ``designated``: only these addresses."""
        used = self.functions_used.get(device_type, {}).get(minor, _UNUSED)
        found = [
            (function.bus_id, function.minor)
            for info in self.infos.get(device_type, ())
            if info.minor == minor
            for group in info.vf_groups
            if hint.vf_selector is None or hint.vf_selector.matches(group.labels)
            for function in group.vfs
            if not used.get(function.bus_id) and (designated is None or function.bus_id in designated)
        ]
        return min(found)[::-1] if found else None

    def has_functions(self, device_type: str) -> bool:
        """Whether any device of the type has virtual functions."""
        return any(info.vf_groups for info in self.infos.get(device_type, ()))


def _missing(device_type: str, minor: int, there: Collection[int]) -> str:
    field = f"metadata.annotations[{DEVICE_ALLOCATED}].{device_type}.minor"
    return f"{field}: {minor} is not usable: the node has no such device; allowed are {sorted(there)}"


def _add(found: dict[int, Counter[str]], minor: int, amounts: Mapping[str, int], sign: int) -> None:
    counted = found.setdefault(minor, Counter())
    for name, amount in amounts.items():
        counted[name] += sign * amount
        if not counted[name]:
            del counted[name]
    if not counted:
        del found[minor]


def _taken(used: Mapping[str, int], kept: Mapping[str, int], returned: Mapping[str, int]) -> dict[str, int]:
    return {name: max(0, used.get(name, 0) + kept.get(name, 0) - returned.get(name, 0)) for name in {**used, **kept}}


def _shape(device: Device) -> bytes:
    metadata = device.metadata
    infos = [replace(each, id="", module_id=None, conditions=[]) for each in device.spec.devices]
    labels = [metadata.labels.get(key, "") for key in _LABELS]
    return encode([to_document(each) for each in infos] + [labels, metadata.annotations.get(GPU_PARTITIONS, "")])


def _partitions(device: Device) -> tuple[PartitionTable | None, str]:
    """The table of the annotation, or the error in it."""
    text = device.metadata.annotations.get(GPU_PARTITIONS)
    if not text:
        return None, ""
    try:
        return partition_table(read_partition_table(text)), ""
    except DecodeError as error:
        return None, f"annotation {GPU_PARTITIONS}: {error}"


def node_device_summary(node: NodeDevices) -> dict[str, Any]:
    """The original's document: sums by resource, amounts by device, and the pods that hold them."""
    used = {
        device_type: {minor: dict(amounts) for minor, amounts in minors.items()}
        for device_type, minors in node.used.items()
    }
    total = {
        device_type: {**{minor: {} for minor in used.get(device_type, {})}, **node.total.get(device_type, {})}
        for device_type in {**node.total, **used}
    }
    free = {
        device_type: {
            minor: _left(amounts, used.get(device_type, {}).get(minor, {})) for minor, amounts in minors.items()
        }
        for device_type, minors in total.items()
    }
    holders: dict[str, dict[str, Any]] = {device_type: {} for device_type in used}
    for uid, allocations in node.held.items():
        for device_type, minors in amounts_held(allocations).items():
            holders.setdefault(device_type, {})[node.holders[uid].key] = _texts(minors)
    return {
        "deviceTotal": _sums(total),
        "deviceFree": _sums(free),
        "deviceUsed": _sums(used),
        "deviceTotalDetail": _details(total),
        "deviceFreeDetail": _details(free),
        "deviceUsedDetail": _details(used),
        "allocateSet": holders,
    }


def explained_devices(node: NodeDevices) -> dict[str, Any]:
    """The document of ``koord explain node``: of each device the total and the free amounts."""
    return {
        "devices": [
            {
                "type": device_type,
                "minor": minor,
                "total": _amounts(total),
                "free": _amounts(candidates.free[minor]),
            }
            for device_type in sorted(node.total)
            for candidates in (node.candidates(device_type, NO_HINT, WHATEVER_IS_FREE),)
            for minor, total in sorted(candidates.total.items())
        ],
        **({"fault": node.fault} if node.fault else {}),
        **closed_by(node.closed.of_holders),
    }


def _left(total: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """By resource, 0 where more is used than there is."""
    return {name: max(0, total.get(name, 0) - used.get(name, 0)) for name in {**total, **used}}


def _sums(amounts: ByType) -> dict[str, str]:
    return _amounts(summed(each for minors in amounts.values() for each in minors.values()))


def _details(amounts: ByType) -> dict[str, Any]:
    return {device_type: _texts(minors) for device_type, minors in sorted(amounts.items())}


def _texts(minors: Mapping[int, Mapping[str, int]]) -> dict[str, dict[str, str]]:
    return {str(minor): _amounts(amounts) for minor, amounts in sorted(minors.items())}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(device_quantity(name, amount)) for name, amount in sorted(amounts.items())}
