"""Transforms objects for scheduling and descheduling where these must see something else than the API has. Nothing here
is ever written back.

Deprecated resource names are replaced by their successors, capacity that a node's annotation reserves is subtracted,
and a label may override the scheduler name in the pod's spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api import resource_names
from koordinator.api.codec import DecodeError, decode
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, count_cpus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.quantity import Quantity

_TRIMMING_POLICIES: Final = ("", "Default")
_DATED: Final = frozenset(resource_names.DEPRECATED_NAMES)
_NOT_TRIMMED: Final = (resource_names.BATCH_CPU, resource_names.BATCH_MEMORY)


def node_as_seen(node: Node) -> Node:
    """The node with current resource names and without what its annotation reserves."""
    allocatable = resource_names.with_current_names(node.status.allocatable)
    text = node.metadata.annotations.get(annotation_keys.NODE_RESERVATION)
    if text:
        allocatable = _trimmed(allocatable, text)
    if allocatable is node.status.allocatable:
        return node
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=dict(allocatable)))


def pod_as_seen(pod: Pod) -> Pod:
    """The pod with current resource names and the scheduler name that counts."""
    spec = pod.spec
    if _has_dated_names(spec):
        spec = _with_current_names(spec)
    name = pod.metadata.labels.get(label_keys.SCHEDULER_NAME)
    if name is None or name == spec.scheduler_name:
        return pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec)
    metadata = msgspec.structs.replace(
        pod.metadata,
        annotations={**pod.metadata.annotations, annotation_keys.ORIGINAL_SCHEDULER_NAME: spec.scheduler_name},
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(spec, scheduler_name=name))


def _has_dated_names(spec: PodSpec) -> bool:
    if any(map(_is_dated, spec.containers)) or not _DATED.isdisjoint(spec.overhead):
        return True
    return bool(spec.init_containers) and any(map(_is_dated, spec.init_containers))


def _is_dated(container: Container) -> bool:
    resources = container.resources
    return not (_DATED.isdisjoint(resources.requests) and _DATED.isdisjoint(resources.limits))


def _with_current_names(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=[_renamed(container) for container in spec.containers],
        init_containers=[_renamed(container) for container in spec.init_containers],
        overhead=dict(resource_names.with_current_names(spec.overhead)),
    )


def _renamed(container: Container) -> Container:
    resources = msgspec.structs.replace(
        container.resources,
        requests=dict(resource_names.with_current_names(container.resources.requests)),
        limits=dict(resource_names.with_current_names(container.resources.limits)),
    )
    return msgspec.structs.replace(container, resources=resources)


def _trimmed(allocatable: Mapping[str, Quantity], text: str) -> Mapping[str, Quantity]:
    """``allocatable`` minus what the annotation reserves; annotations that cannot be decoded reserve nothing."""
    try:
        reservation = decode(text, NodeReservation)
        reserved = dict(reservation.resources)
        if reservation.reserved_cpus:
            reserved[resource_names.CPU] = Quantity.from_value(count_cpus(reservation.reserved_cpus))
    except (DecodeError, ValueError):
        return allocatable
    if reservation.apply_policy not in _TRIMMING_POLICIES:
        return allocatable
    trimmed = dict(allocatable)
    for name, amount in reserved.items():
        if name in trimmed and name not in _NOT_TRIMMED:
            before = trimmed[name]
            # Nobody makes a node larger by reserving less than nothing.
            trimmed[name] = Quantity(max(before.nanos - max(amount.nanos, 0), 0), before.format)
    return trimmed
