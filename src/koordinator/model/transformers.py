"""Transforms objects for scheduling and descheduling where these must see something else than the API has. Nothing here
is ever written back.

Deprecated resource names are replaced by their successors, capacity that a node's annotation reserves is subtracted,
and a label may override the scheduler name in the pod's spec. Feature gates add further steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api import resource_names
from koordinator.api.codec import DecodeError, decode
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, count_cpus
from koordinator.api.pod import Container, Pod, PodSpec, ResourceList
from koordinator.api.priority import priority_value_with_default
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


PodStep = Callable[[Pod], Pod]


def pod_as_seen(pod: Pod, steps: Sequence[PodStep] = ()) -> Pod:
    """The pod with current resource names, changed by ``steps``, and with the scheduler name that counts."""
    spec = pod.spec
    if _has_dated_names(spec):
        pod = msgspec.structs.replace(pod, spec=_with_current_names(spec))
    for step in steps:
        pod = step(pod)
    spec, name = pod.spec, pod.metadata.labels.get(label_keys.SCHEDULER_NAME)
    if name is None or name == spec.scheduler_name:
        return pod
    metadata = msgspec.structs.replace(
        pod.metadata,
        annotations={**pod.metadata.annotations, annotation_keys.ORIGINAL_SCHEDULER_NAME: spec.scheduler_name},
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(spec, scheduler_name=name))


def pod_steps(gates: Collection[str]) -> tuple[PodStep, ...]:
    """What the feature gates that are on do to pods."""
    return tuple(step for gate, step in _STEPS.items() if gate in gates)


def with_replaced_resources(pod: Pod) -> Pod:
    """The pod with its annotation ``a:b,c:`` applied: a counted as b unless it has b already, c not at all."""
    erased, renamed = _replacements(pod.metadata.annotations.get(annotation_keys.REPLACE_RESOURCES, ""))
    if not erased and not renamed:
        return pod

    def replaced(resources: ResourceList) -> ResourceList:
        return _replaced(resources, erased, renamed)

    def container(each: Container) -> Container:
        requests, limits = replaced(each.resources.requests), replaced(each.resources.limits)
        resources = msgspec.structs.replace(each.resources, requests=requests, limits=limits)
        return msgspec.structs.replace(each, resources=resources)

    spec = msgspec.structs.replace(
        pod.spec,
        containers=[container(each) for each in pod.spec.containers],
        init_containers=[container(each) for each in pod.spec.init_containers],
        overhead=replaced(pod.spec.overhead),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _replacements(text: str) -> tuple[set[str], dict[str, str]]:
    erased, renamed = set[str](), dict[str, str]()
    for each in text.split(","):
        parts = [part.strip() for part in each.split(":")]
        if len(parts) != 2:
            continue
        if parts[1]:
            renamed[parts[0]] = parts[1]
        else:
            erased.add(parts[0])
    return erased, renamed


def _replaced(resources: ResourceList, erased: set[str], renamed: dict[str, str]) -> ResourceList:
    left = {name: amount for name, amount in resources.items() if name not in erased}
    for old, new in renamed.items():
        if old in left and new not in left:
            amount = left.pop(old)
            left[new] = Quantity.from_value(amount.milli) if old == resource_names.CPU else amount
    return left


def _with_priority(pod: Pod) -> Pod:
    priority = priority_value_with_default(pod)
    if priority == pod.spec.priority:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


def _with_preemption_policy(pod: Pod) -> Pod:
    policy = pod.metadata.labels.get(label_keys.PREEMPTION_POLICY)
    if policy not in _PREEMPTION_POLICIES:
        policy = _NEVER
    if policy == pod.spec.preemption_policy:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, preemption_policy=policy))


_NEVER: Final = "Never"
_PREEMPTION_POLICIES: Final = (_NEVER, "PreemptLowerPriority")
REPLACE_RESOURCES: Final = "ReplaceResourcesTransformer"
PRIORITY: Final = "PriorityTransformer"
PREEMPTION_POLICY: Final = "PreemptionPolicyTransformer"
POD_GATES: Final[Mapping[str, str]] = {
    REPLACE_RESOURCES: f"the annotation {annotation_keys.REPLACE_RESOURCES} renames and erases a pod's resources",
    PRIORITY: "a pod without a priority has the default of its Koordinator priority class",
    PREEMPTION_POLICY: f"the label {label_keys.PREEMPTION_POLICY} says whether a pod may preempt; without it, never",
}
"""Feature gate -> what it does."""
_STEPS: Final[Mapping[str, PodStep]] = {
    REPLACE_RESOURCES: with_replaced_resources,
    PRIORITY: _with_priority,
    PREEMPTION_POLICY: _with_preemption_policy,
}


def _has_dated_names(spec: PodSpec) -> bool:
    for container in (*spec.containers, *spec.init_containers) if spec.init_containers else spec.containers:
        resources = container.resources
        if not (_DATED.isdisjoint(resources.requests) and _DATED.isdisjoint(resources.limits)):
            return True
    return bool(spec.overhead) and not _DATED.isdisjoint(spec.overhead)


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
