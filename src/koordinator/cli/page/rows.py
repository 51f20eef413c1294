"""What the page keeps of the objects of a cluster, and the rows that it makes of them.

A cluster of 50,000 pods is to fit into a small process: of an object nothing stays but its name and what its row
needs. The words and numbers of rows are those of ``koord get``, ``koord top`` and ``koord explain``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from sys import intern
from typing import Any, Final

from koordinator.api.adaptive_slo import read_state
from koordinator.api.annotations import DEVICE_ALLOCATED, QUOTA_RUNTIME
from koordinator.api.codec import decode_or, to_document
from koordinator.api.core import Namespace
from koordinator.api.device import Device, DeviceInfo
from koordinator.api.device_share import AllocatedDevices
from koordinator.api.drain_node import DrainNode
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import FINISHED_PHASES, Pod, ResourceList
from koordinator.api.timestamps import format_time
from koordinator.cli.explain_interference import interference_document
from koordinator.cli.listing import LISTINGS
from koordinator.cli.usage import (
    NO_READING,
    Amounts,
    NodeReading,
    NodeUsage,
    PodUsage,
    is_on_node,
    reading_of,
    usage_of_pod,
)
from koordinator.model.pod_requests import canonical

Row = dict[str, Any]
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""For the ages of a listing, which rows do not have: the clock of the viewer makes them."""

_NO_USAGE: Final = PodUsage("", "", "", "", Amounts(), None)


class KeptPod(Pod):
    """Of a pod: what it requests, where it is, and if it waits for a node, why."""

    usage: PodUsage = _NO_USAGE
    phase: str = ""
    is_on_node: bool = False
    """Whether it takes up room there: it has not ended."""
    waits: Row | None = None
    """Its row among the pending pods; None if it does not wait."""
    devices: AllocatedDevices = {}


class KeptNode(Node):
    """Of a node: what it offers (``status.allocatable``), and how it is."""

    row: Row = {}


class KeptMetric(NodeMetric):
    """Of a report: the reading, when it was made, and who suffers from whom."""

    reading: NodeReading = NO_READING
    reported: str = ""
    suffering: Sequence[Row] = ()


def keep_pod(pod: Pod) -> KeptPod:
    """A transform of an informer, as the next two are."""
    usage = usage_of_pod(pod)
    has_ended = pod.status.phase in FINISHED_PHASES
    return KeptPod(
        metadata=_kept(pod.metadata),
        usage=replace(usage, node=intern(usage.node)),
        phase=intern(pod.status.phase or "Pending"),
        is_on_node=is_on_node(pod),
        waits=_waits(pod, usage) if not (pod.spec.node_name or has_ended) else None,
        devices=decode_or(pod.metadata.annotations.get(DEVICE_ALLOCATED), AllocatedDevices, {}),
    )


def _waits(pod: Pod, usage: PodUsage) -> Row:
    return listed("pending", pod) | {
        "class": usage.class_name,
        "qos": usage.qos,
        "requests": asdict(usage.allocated),
    }


def keep_node(node: Node) -> KeptNode:
    pressures = [each.type for each in node.status.conditions if each.type in _PRESSURES and each.status == "True"]
    state = listed("nodes", node)["state"]
    adapted = read_state(node.metadata.annotations)
    row: Row = {"state": state, "pressures": pressures, "created": _time(node.metadata.creation_timestamp)}
    if adapted is not None and adapted.level:
        # Its online pods suffer, so that its co-location is taken back, by so many steps of so many.
        row["adapted"] = {"level": adapted.level, "steps": adapted.steps, "reason": adapted.reason}
    return KeptNode(metadata=_kept(node.metadata), status=NodeStatus(allocatable=node.status.allocatable), row=row)


def keep_metric(metric: NodeMetric) -> KeptMetric:
    status = metric.status
    may_suffer = any(pod.extensions for pod in status.pods_metric or ())
    return KeptMetric(
        metadata=_kept(metric.metadata),
        reading=reading_of(metric),
        reported=_time(status.update_time),
        suffering=tuple(_suffering(metric)) if may_suffer else (),
    )


def keep_name(namespace: Namespace) -> Namespace:
    return Namespace(metadata=_kept(namespace.metadata))


def node_row(usage: NodeUsage, node: KeptNode, metric: KeptMetric | None) -> Row:
    """That of ``koord top nodes -o json``, with the state of the node."""
    return {**asdict(usage), **node.row, "reported": metric.reported if metric is not None else ""}


def listed(what: str, obj: Object) -> Row:
    """The row of ``koord get``, with the time of the object's creation instead of its age."""
    return without_age(what, to_document(obj), _time(obj.metadata.creation_timestamp))


def without_age(what: str, document: Mapping[str, Any], created: str) -> Row:
    """The same of a document that a program answers."""
    row: Row = {**LISTINGS[what].row(document, _NO_TIME)}
    del row["age"]
    return row | {"created": created}


def quota_row(quota: ElasticQuota) -> Row:
    """With its amounts as numbers, by resource: milli-CPU, bytes, or a count."""
    spec = quota.spec
    runtime = decode_or(quota.metadata.annotations.get(QUOTA_RUNTIME), ResourceList, {})
    amounts = {"min": spec.min, "max": spec.max, "used": quota.status.used, "runtime": runtime}
    return listed("quotas", quota) | {"amounts": {name: _numbers(given) for name, given in amounts.items()}}


def drain_row(drain: DrainNode) -> Row:
    """How far a drain has come, and which pods keep it."""
    spec, status = drain.spec, drain.status
    noteworthy = [f"{each.type}: {each.message or each.reason}" for each in status.conditions if each.status == "True"]
    return {
        "name": drain.metadata.name,
        "created": _time(drain.metadata.creation_timestamp),
        "node": spec.node_name,
        "phase": status.phase or "Pending",
        "message": status.message,
        "pods": status.pod_migration_summary,
        "noteworthy": noteworthy,
    }


def device_rows(device: Device, pods: Sequence[KeptPod]) -> Iterator[tuple[str, Row]]:
    """The devices of a node by ``NODE TYPE MINOR``, each with what its pods hold of it."""
    name = device.metadata.name
    holders: dict[tuple[str, int], list[Row]] = {}
    for pod in pods:
        for kind, held in pod.devices.items():
            for each in held:
                row = {"pod": pod.metadata.key, "resources": _numbers(each.resources)}
                holders.setdefault((kind, each.minor), []).append(row)
    for info in device.spec.devices:
        yield f"{name} {info.type} {info.minor}", _device_row(name, info, holders.get((info.type, info.minor or 0), []))


def _device_row(node: str, device: DeviceInfo, holders: list[Row]) -> Row:
    topology = device.topology
    return {
        "node": node,
        "type": device.type,
        "minor": device.minor,
        "id": device.id,
        "healthy": device.health,
        "numa": topology.node_id if topology is not None else None,
        "pcie": topology.pcie_id if topology is not None else "",
        "resources": _numbers(device.resources),
        "holders": holders,
        "noteworthy": [each.message or each.reason for each in device.conditions if each.status != "True"],
    }


def _suffering(metric: NodeMetric) -> Iterator[Row]:
    """A row for each finding, as ``koord explain interference`` has them."""
    node = metric.metadata.name
    document = interference_document(node, to_document(metric))
    for victim in document.victims:
        remedies = [
            each
            for each in document.remedies
            if (each["pod"], each.get("indicator")) == (victim["pod"], victim.get("indicator"))
        ]
        yield {"node": node, "reported": document.reported, **victim, "remedies": remedies}


def _numbers(resources: ResourceList) -> dict[str, int]:
    return {name: canonical(name, amount.nanos) for name, amount in resources.items()}


def _kept(metadata: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
    )


def _time(moment: datetime | None) -> str:
    return format_time(moment) if moment is not None else ""
