"""What the Device object of a node says of its accelerators and cards, and the patch that makes it say so; pure.

What files of other programs say of accelerators goes before what NVML says, since both would count the same cards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import device as device_types
from koordinator.api import labels as label_keys
from koordinator.api.codec import to_document
from koordinator.api.device import (
    HEALTHY_CONDITION,
    MEMORY_CONDITION,
    Device,
    DeviceInfo,
    DeviceTopology,
    VirtualFunction,
    VirtualFunctionGroup,
)
from koordinator.api.kinds import DEVICES
from koordinator.api.meta import Condition
from koordinator.api.node import Node
from koordinator.api.quantity import Format, Quantity, QuantityError, parse_quantity
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.api.resource_names import RDMA as RDMA_RESOURCE
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus, XPUTopology
from koordinator.koordlet.report.node_object import Document, differing, node_object
from koordinator.node.nvml import GPU, GPUFailure
from koordinator.node.pci import PciPlacement
from koordinator.node.rdma import RDMADevice

_WHOLE: Final = Quantity.from_value(100)
_LEAST, _MOST = Quantity.from_value(0), Quantity.from_value((1 << 63) - 1)
_SHOWN: Final = 60
_UNKNOWN_SOCKET: Final = -1
_NVIDIA: Final = "nvidia"
_OWN_DOMAIN: Final = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}
"""Resources that files name without the domain that they belong to."""
_MINOR: Final = re.compile(r"[0-9]{1,9}")
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NOT_IN_REASONS: Final = re.compile(r"[^A-Za-z0-9_,:]+")
_LONGEST_LABEL: Final = 63


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that was found. ``placements`` of GPUs are by PCI address, without those that sysfs does not have."""

    xpus: Sequence[XPUDeviceInfo] = ()
    gpus: Sequence[GPU] = ()
    failures: Mapping[GPU, GPUFailure] = field(default_factory=dict)
    placements: Mapping[str, PciPlacement] = field(default_factory=dict)
    driver_version: str = ""
    rdma: Sequence[RDMADevice] = ()


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """Devices by type and minor number. Labels and annotations are None where there must be none; others are not
    ours."""

    devices: tuple[DeviceInfo, ...]
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    problems: tuple[str, ...] = ()
    """What is left out of what was found, and why."""


def describe_devices(inventory: Inventory, now: datetime) -> DeviceReport:
    """The report; conditions carry ``now`` as the time since when they hold."""
    problems: list[str] = []
    if inventory.xpus:
        devices = [device for xpu in inventory.xpus if (device := _xpu(xpu, now, problems)) is not None]
        labels, annotations = _xpu_labels(inventory.xpus[0]), _partitions(inventory.xpus)
    else:
        devices = [
            _gpu(card, inventory.placements.get(card.bus_id), inventory.failures.get(card), now)
            for card in inventory.gpus
        ]
        labels, annotations = _gpu_labels(inventory), {}
    devices += [_rdma(card) for card in inventory.rdma]
    ordered = _in_order(_distinct(devices, problems))
    return DeviceReport(tuple(ordered), labels, annotations, tuple(problems))


def _distinct(devices: Iterable[DeviceInfo], problems: list[str]) -> list[DeviceInfo]:
    """Each minor number and each UUID of a type once. The first stays: the labels have its vendor, whose device files a
    pod with that number gets."""
    distinct: list[DeviceInfo] = []
    by_minor: dict[tuple[str, int | None], DeviceInfo] = {}
    by_id: dict[tuple[str, str], DeviceInfo] = {}
    for device in devices:
        if (other := by_minor.get((device.type, device.minor))) is not None:
            problems.append(f"{_shown(device.id)} is left out: {_shown(other.id)} has its minor number, {device.minor}")
        elif (other := by_id.get((device.type, device.id))) is not None:
            problems.append(
                f"{_shown(device.id)} is left out: another device has its UUID, and the minor number {other.minor}"
            )
        else:
            by_minor[device.type, device.minor] = by_id[device.type, device.id] = device
            distinct.append(device)
    return distinct


def _shown(text: str) -> str:
    """As it may stand in a log line."""
    return "".join(character if character.isprintable() else "?" for character in text[:_SHOWN]) or "a device"


def _xpu(xpu: XPUDeviceInfo, now: datetime, problems: list[str]) -> DeviceInfo | None:
    """None for a device without a number: pods could not be given it."""
    if not _MINOR.fullmatch(xpu.minor):
        problems.append(
            f"{_shown(xpu.uuid)} is left out: its minor number {xpu.minor[:_SHOWN]!r} is not one of up to nine digits"
        )
        return None
    resources = {GPU_MEMORY_RATIO: _WHOLE}
    for name, text in xpu.resources.items():
        amount = _amount(text)
        if amount is None:
            problems.append(
                f"{_shown(xpu.uuid)} has no {_shown(name)}: {text[:_SHOWN]!r} is not an amount from 0 to 2^63-1"
            )
        else:
            resources[_OWN_DOMAIN.get(name, name)] = amount
    return DeviceInfo(
        type=device_types.GPU,
        id=xpu.uuid,
        minor=int(xpu.minor),
        health=xpu.status is None or xpu.status.healthy,
        resources=resources,
        topology=None if xpu.topology is None else _xpu_topology(xpu.topology),
        conditions=[] if xpu.status is None else [_condition(xpu.status, now)],
    )


def _amount(text: str) -> Quantity | None:
    """None for what no device can have."""
    try:
        amount = parse_quantity(text)
    except QuantityError:
        return None
    return None if amount < _LEAST or amount > _MOST else amount


def _xpu_topology(topology: XPUTopology) -> DeviceTopology:
    try:
        numa_node = int(topology.node_id) if topology.node_id else -1
    except ValueError:
        numa_node = 0
    return _topology(numa_node, topology.pcie_id, topology.bus_id)


def _topology(numa_node: int, root: str, address: str) -> DeviceTopology:
    return DeviceTopology(socket_id=_UNKNOWN_SOCKET, node_id=numa_node, pcie_id=root, bus_id=address)


def _condition(status: XPUStatus, now: datetime) -> Condition:
    reason, message = "DeviceHealthy", "device is healthy"
    if not status.healthy:
        reason, message = _reason(status.error_code), status.error_message or "device is unhealthy"
    return _as_condition(HEALTHY_CONDITION, status.healthy, reason, message, now)


def _as_condition(kind: str, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type=kind, status="True" if holds else "False", reason=reason, message=message, last_transition_time=now
    )


def _reason(code: str) -> str:
    """One word, as an API server wants it: it refuses the whole object for a blank in the code of one device."""
    word = _NOT_IN_REASONS.sub("", code).strip("_,:0123456789" if code[:1].isdigit() else "_,:")
    return word if word[:1].isalpha() else "Unknown"


def _xpu_labels(first: XPUDeviceInfo) -> dict[str, str | None]:
    topology = first.topology
    policy = None
    if topology is not None and topology.p2p_links:
        policy = "Honor" if topology.must_honor_partition else "Prefer"
    return {
        label_keys.GPU_MODEL: _label(first.model),
        label_keys.GPU_VENDOR: _label(first.vendor),
        label_keys.GPU_DRIVER_VERSION: None,
        label_keys.GPU_PARTITION_POLICY: policy,
    }


def _partitions(xpus: Iterable[XPUDeviceInfo]) -> dict[str, str | None]:
    """The groups of devices with fast links among them, by size; each group once."""
    groups: dict[tuple[int, ...], str] = {}
    for xpu in xpus:
        for link in xpu.topology.p2p_links if xpu.topology is not None else ():
            numbers = [xpu.minor, *link.peer_minor.split(",")]
            if link.type and link.peer_minor and all(_MINOR.fullmatch(number.strip()) for number in numbers):
                groups.setdefault(tuple(sorted({int(number) for number in numbers})), link.type)
    table: dict[str, list[dict[str, Any]]] = {}
    for minors, kind in groups.items():
        partition = {"minors": list(minors), "gpuLinkType": kind, "allocationScore": 1}
        table.setdefault(str(len(minors)), []).append(partition)
    text = json.dumps(dict(sorted(table.items())), separators=(",", ":")) if table else None
    return {annotation_keys.GPU_PARTITIONS: text}


def _gpu(card: GPU, placement: PciPlacement | None, failure: GPUFailure | None, now: datetime) -> DeviceInfo:
    topology = None
    if placement is not None and placement.numa_node >= 0 and placement.root and card.bus_id:
        topology = _topology(placement.numa_node, placement.root, card.bus_id)
    resources = {GPU_CORE: _WHOLE, GPU_MEMORY_RATIO: _WHOLE}
    if card.memory is not None:
        resources[GPU_MEMORY] = Quantity.from_value(card.memory, Format.BINARY_SI)
    return DeviceInfo(
        type=device_types.GPU,
        id=card.uuid,
        minor=card.minor,
        health=failure is None,
        conditions=_gpu_conditions(card, failure, now),
        resources=resources,
        topology=topology,
    )


def _gpu_conditions(card: GPU, failure: GPUFailure | None, now: datetime) -> list[Condition]:
    """None for a healthy GPU of which everything is known."""
    conditions = []
    if failure is not None:
        status = XPUStatus(healthy=False, error_code=failure.code, error_message=failure.message)
        conditions.append(_condition(status, now))
    if card.memory is None:
        # A GPU that uses the memory of the CPUs has the bytes that the kubelet offers: not to be promised twice.
        message = (
            f"the driver does not report the memory of this GPU ({card.memory_problem}): "
            "pods can be given shares of it in percent, not in bytes"
        )
        conditions.append(_as_condition(MEMORY_CONDITION, False, "NotReported", message, now))
    return conditions


def _gpu_labels(inventory: Inventory) -> dict[str, str | None]:
    """The partitions of GPUs are the administrator's to write, so that they are left alone."""
    models = {card.model for card in inventory.gpus}
    model = models.pop().removeprefix("NVIDIA ").replace(" ", "-") if len(models) == 1 else ""
    return {
        label_keys.GPU_VENDOR: _NVIDIA if inventory.gpus else None,
        label_keys.GPU_MODEL: _label(model),
        label_keys.GPU_DRIVER_VERSION: _label(inventory.driver_version) if model else None,
    }


def _rdma(card: RDMADevice) -> DeviceInfo:
    functions = [VirtualFunction(minor=-1, bus_id=address) for address in sorted(card.virtual_functions)]
    return DeviceInfo(
        type=device_types.RDMA,
        id=card.placement.address,
        minor=card.minor,
        health=card.healthy,
        resources={RDMA_RESOURCE: _WHOLE},
        topology=_topology(card.placement.numa_node, card.placement.root, card.placement.address),
        vf_groups=[VirtualFunctionGroup(vfs=functions)] if functions else [],
    )


def _label(text: str) -> str | None:
    """The text as a label may have it; None if nothing is left of it."""
    return _NOT_IN_LABELS.sub("-", text)[:_LONGEST_LABEL].strip("_.-") or None


def new_device(node: Node, report: DeviceReport) -> Document:
    """The object to create, even of a node without any device."""
    spec = {"devices": to_document(report.devices)}
    return node_object(DEVICES, node, report.labels, report.annotations, spec=spec)


def device_patch(present: Device, report: DeviceReport) -> Document | None:
    """A merge patch; None if the object says it already. A condition that holds as before has been true since then."""
    patch: Document = {}
    metadata = {
        "labels": differing(report.labels, present.metadata.labels),
        "annotations": differing(report.annotations, present.metadata.annotations),
    }
    if any(metadata.values()):
        patch["metadata"] = {part: changed for part, changed in metadata.items() if changed}
    known = {(device.type, device.id): device for device in present.spec.devices}
    devices = [_with_times(device, known.get((device.type, device.id))) for device in report.devices]
    if devices != _in_order(present.spec.devices):
        patch["spec"] = {"devices": to_document(devices)}
    return patch or None


def _in_order(devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    return sorted(devices, key=lambda device: (device.type, device.minor or 0, device.id))


def _with_times(device: DeviceInfo, present: DeviceInfo | None) -> DeviceInfo:
    if present is None:
        return device
    before = {condition.type: condition for condition in present.conditions}
    conditions = [_with_time(condition, before.get(condition.type)) for condition in device.conditions]
    return msgspec.structs.replace(device, conditions=conditions)


def _with_time(condition: Condition, before: Condition | None) -> Condition:
    if before is None or before.status != condition.status:
        return condition
    return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
