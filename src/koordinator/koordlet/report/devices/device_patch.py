"""What to write into a Device object so that it says what was found, and nothing else in it changes; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.device import Device, DeviceInfo
from koordinator.api.kinds import DEVICES
from koordinator.api.meta import Condition
from koordinator.api.node import Node
from koordinator.koordlet.report.devices.description import DeviceReport
from koordinator.koordlet.report.node_object import Document, differing, node_object


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
