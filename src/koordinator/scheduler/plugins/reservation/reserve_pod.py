"""The pods that stand for Reservations.

A reserve pod represents a Reservation in the queue and on its node. No API server has it; what it is given, the
Reservation gets by its status.

Operating-mode pods are real pods that, once they are ready on a node, serve as Reservations for other pods. Such a pod
is converted to the Reservation that it represents, so that matching, fitting and counting handle one kind only. Its
owners are in an annotation, its first owner uses it up, and owners may use the node's capacity too (policy Aligned).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode, decode_or, to_document
from koordinator.api.kinds import RESERVATIONS, Kind
from koordinator.api.meta import Object, ObjectReference, WireStruct
from koordinator.api.pod import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ResourceList,
    ResourceRequirements,
)
from koordinator.api.quantity import Format, Quantity
from koordinator.api.reservation import (
    ALIGNED,
    AVAILABLE,
    FAILED,
    PENDING,
    READY_CONDITION,
    REASON_AVAILABLE,
    REASON_SCHEDULED,
    SCHEDULED_CONDITION,
    SUCCEEDED,
    Reservation,
    ReservationCondition,
    ReservationOwner,
    ReservationSpec,
    ReservationStatus,
)
from koordinator.model.pod_requests import pod_requests
from koordinator.scheduler.engine.binding_points import BindOutcome, BindPlugin, ClusterWriter, CycleState, StatusPatch
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import EventHandler, PluginError
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.reservation_points import reservation_of
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.matching import owner_faults

DEFAULT_SCHEDULER: Final = "default-scheduler"
_HIGHEST_PRIORITY: Final = 2**31 - 1
"""Of a Reservation without a priority: pods do not preempt it."""
_SPEC: Final = "reservation-spec"
"""In memory only: not all of the Reservation's spec that its placement depends on is in the pod's, and reserve pods
that look alike share what plugins have derived from one of them."""
_CONTAINER: Final = "__internal_fake_container__"
"""Replaces all containers of a Reservation that holds something else than its template requests."""


class ResourcesAnnotation(WireStruct):
    """The annotations ``reservation-resize-allocatable`` and ``node-reservation`` of a Reservation."""

    resources: ResourceList = {}


def problem(reservation: Reservation) -> str:
    """Why the Reservation cannot be scheduled on any node; "" if it can."""
    spec = reservation.spec
    if spec.template is None:
        return "spec.template is missing: it says what is to be reserved"
    if not spec.owners:
        return "spec.owners is empty: name at least one owner"
    if spec.ttl is None and spec.expires is None:
        return "neither spec.ttl nor spec.expires is set: give one of them; a ttl of 0s is for ever"
    return ""


def is_over(reservation: Reservation) -> bool:
    """Whether it has ended, in any way."""
    return reservation.status.phase in (SUCCEEDED, FAILED)


def is_pending_or_placed(reservation: Reservation) -> bool:
    """Whether it has a reserve pod."""
    return not is_over(reservation) and not problem(reservation)


def is_available(reservation: Reservation) -> bool:
    """Whether it is on a node, and pods may take from it."""
    return reservation.status.phase == AVAILABLE and bool(reservation.status.node_name)


def scheduler_name(reservation: Reservation) -> str:
    """The scheduler name of the profile that schedules it."""
    template = reservation.spec.template
    return (template.spec.scheduler_name if template is not None else "") or DEFAULT_SCHEDULER


def pinned_node(reservation: Reservation) -> str:
    """The only node that the template allows, or ""."""
    template = reservation.spec.template
    return template.spec.node_name if template is not None else ""


def reserve_pod(reservation: Reservation) -> Pod:
    """The reserve pod of a Reservation without a ``problem``; on its node, if it has one."""
    template = reservation.spec.template
    assert template is not None, "a Reservation without a template has a problem"
    own = reservation.metadata
    annotations = {
        **template.metadata.annotations,
        **own.annotations,
        annotation_keys.RESERVE_POD: "true",
        annotation_keys.RESERVATION_NAME: own.name,
        _SPEC: f"{own.uid}/{reservation.spec.allocate_policy}/{reservation.spec.pre_allocation}",
    }
    if template.spec.node_name:
        annotations[annotation_keys.RESERVATION_NODE] = template.spec.node_name
    metadata = msgspec.structs.replace(
        template.metadata,
        name=own.uid,
        uid=own.uid,
        namespace=template.metadata.namespace or "default",
        resource_version=own.resource_version,
        creation_timestamp=own.creation_timestamp,
        deletion_timestamp=None,
        labels={**template.metadata.labels, **own.labels},
        annotations=annotations,
    )
    spec = msgspec.structs.replace(
        template.spec,
        node_name=reservation.status.node_name,
        priority=_priority(template.spec, own.labels),
        scheduler_name=scheduler_name(reservation),
    )
    return _holding_what_is_allocatable(Pod(metadata=metadata, spec=spec, status=_status(reservation)), reservation)


def _status(reservation: Reservation) -> PodStatus:
    """The pod status with the time since which it has its node, as the API server sets it."""
    since = [
        each.last_transition_time
        for each in reservation.status.conditions
        if each.type == SCHEDULED_CONDITION and each.status == "True"
    ]
    scheduled = [PodCondition(type="PodScheduled", status="True", last_transition_time=each) for each in since]
    return PodStatus(conditions=scheduled) if scheduled else PodStatus()


def stands_for_a_reservation(pod: Pod) -> bool:
    """Whether it is a reserve pod."""
    return pod.metadata.annotations.get(annotation_keys.RESERVE_POD) == "true"


def wanted_allocatable(reservation: Reservation) -> dict[str, Quantity]:
    """The resources that the Reservation holds once it is placed: those that the template requests, or those of the
    annotation ``reservation-resize-allocatable`` instead. Raises DecodeError for an annotation that cannot be
    decoded."""
    template = reservation.spec.template
    amounts = requested_amounts(Pod(spec=template.spec)) if template is not None else {}
    text = reservation.metadata.annotations.get(annotation_keys.RESERVATION_RESIZE_ALLOCATABLE)
    return {**amounts, **decode(text.encode(), ResourcesAnnotation).resources} if text else amounts


def allocated_annotation(name: str, uid: str) -> str:
    """The record, on a pod, of the Reservation that it takes from."""
    return json.dumps({"name": name, "uid": uid}, separators=(",", ":"))


class AllocatedRecord(WireStruct):
    """The annotation ``reservation-allocated`` of a pod."""

    name: str = ""
    uid: str = ""


def allocated_record(pod: Pod) -> AllocatedRecord | None:
    """The Reservation that the pod takes from by its annotation; None if there is none that can be decoded."""
    record = decode_or(pod.metadata.annotations.get(annotation_keys.RESERVATION_ALLOCATED), AllocatedRecord, None)
    return record if record is not None and record.uid else None


def _priority(spec: PodSpec, labels: Mapping[str, str]) -> int:
    if spec.priority is not None:
        return spec.priority
    try:
        priority = int(labels.get(label_keys.PRIORITY, ""))
    except ValueError:
        return _HIGHEST_PRIORITY
    return priority if -(2**31) <= priority < 2**31 else _HIGHEST_PRIORITY


def requested_amounts(pod: Pod) -> dict[str, Quantity]:
    """What the pod requests, in the format of the first container that names the resource."""
    written = {
        name: amount.format
        for each in reversed((*pod.spec.containers, *pod.spec.init_containers))
        for name, amount in each.resources.requests.items()
    }
    return {name: Quantity(nanos, written.get(name, Format.DECIMAL_SI)) for name, nanos in pod_requests(pod).items()}


def _holding_what_is_allocatable(pod: Pod, reservation: Reservation) -> Pod:
    allocatable = reservation.status.allocatable
    if not is_available(reservation) or not allocatable:
        return pod
    requested = requested_amounts(pod)
    amounts = {**requested, **allocatable}
    if amounts == requested:
        return pod
    containers = tuple(_without_requests(each) for each in pod.spec.containers)
    whole = Container(name=_CONTAINER, resources=ResourceRequirements(requests=amounts, limits=amounts))
    spec = msgspec.structs.replace(
        pod.spec,
        containers=(*containers, whole),
        init_containers=tuple(_without_requests(each) for each in pod.spec.init_containers),
        overhead={},
        resources=None,
    )
    return msgspec.structs.replace(pod, spec=spec)


def _without_requests(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=ResourceRequirements())


def available_status(reservation: Reservation, node_name: str, now: datetime) -> dict[str, Any]:
    """The status of a Reservation that gets its node. Raises DecodeError for an annotation that cannot be decoded."""
    moment = now.replace(microsecond=0)
    conditions = [
        ReservationCondition(
            type=type_, status="True", reason=reason, last_probe_time=moment, last_transition_time=moment
        )
        for type_, reason in ((SCHEDULED_CONDITION, REASON_SCHEDULED), (READY_CONDITION, REASON_AVAILABLE))
    ]
    return {
        "phase": AVAILABLE,
        "nodeName": node_name,
        "allocatable": {name: str(amount) for name, amount in wanted_allocatable(reservation).items()},
        "conditions": to_document(conditions),
    }


class ReservePods(BindPlugin, EventHandler):
    """Has Reservations scheduled as pods: shows the reserve pod of each, and gives the node of that to the Reservation.

    ``settled`` is called with the uid of each Reservation that needs no node any more."""

    name: ClassVar = "Reservation"
    handle: Handle

    def __init__(self, args: Any, view: ClusterView, settled: Callable[[str], None]) -> None:
        super().__init__(args, view)
        self._settled = settled
        self._shown: dict[str, Pod] = {}
        self._first = view.share("reserve pods", lambda: self)

    @property
    def event_handler(self) -> EventHandler:
        return self._first

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def concerns(self, pod: PodInfo) -> bool:
        return stands_for_a_reservation(pod.pod)

    def on_reset(self) -> None:
        there = {each.metadata.uid for each in self.view.objects_of(RESERVATIONS).values()}
        for uid in self._shown.keys() - there:
            self._hide(uid)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind is not RESERVATIONS:
            return
        if isinstance(old, Reservation) and (new is None or new.metadata.uid != old.metadata.uid):
            self._hide(old.metadata.uid)
        if isinstance(new, Reservation):
            if not is_pending_or_placed(new):
                self._hide(new.metadata.uid)
                return
            self._shown[new.metadata.uid] = pod = reserve_pod(new)
            if hasattr(self, "handle"):
                self.handle.set_pseudo_pod(pod)

    def _hide(self, uid: str) -> None:
        pod = self._shown.pop(uid, None)
        if pod is not None:
            self._settled(uid)
            if hasattr(self, "handle"):
                self.handle.remove_pseudo_pod(pod)

    def binds(self, pod: PodInfo) -> bool:
        return stands_for_a_reservation(pod.pod)

    async def bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter
    ) -> BindOutcome | StatusPatch:
        if not stands_for_a_reservation(pod.pod):
            return BindOutcome.SKIPPED
        reservation = reservation_of(self.handle.profile, pod)
        if is_over(reservation):
            raise PluginError("reservation is not active")
        status = available_status(reservation, node.name, writer.now())
        return StatusPatch(RESERVATIONS, reservation, status, _node_of, partial(self._on_bound, reservation, node.name))

    def _on_bound(self, reservation: Reservation, node_name: str) -> None:
        metadata = reservation.metadata
        note = f"Successfully assigned {metadata.name} to {node_name}"
        self.handle.object_event(RESERVATIONS, reservation, "Normal", "Scheduled", "Binding", note)
        self._settled(metadata.uid)


def _node_of(reservation: Reservation) -> str | None:
    """See StatusPatch."""
    gets_none = is_over(reservation) or reservation.metadata.deletion_timestamp is not None
    return reservation.status.node_name or (None if gets_none else "")


_RESERVATION_MODE: Final = "Reservation"


def is_operating(pod: Pod) -> bool:
    """Whether the pod is in operating mode."""
    return pod.metadata.labels.get(label_keys.OPERATING_MODE) == _RESERVATION_MODE


def operating_reservation(pod: Pod) -> Reservation:
    """The Reservation that an operating-mode pod represents; it is available while the pod runs and is ready. If the
    owners cannot be decoded, it has none."""
    status = ReservationStatus(
        phase=AVAILABLE if _is_ready(pod) else PENDING,
        node_name=pod.spec.node_name,
        allocatable=requested_amounts(pod),
    )
    owners = decode_or(pod.metadata.annotations.get(annotation_keys.RESERVATION_OWNERS), list[ReservationOwner], [])
    spec = ReservationSpec(
        template=PodTemplateSpec(spec=pod.spec), owners=owners, allocate_once=True, allocate_policy=ALIGNED
    )
    return Reservation(metadata=pod.metadata, spec=spec, status=status)


def current_owner(pod: Pod) -> ObjectReference | None:
    """The current owner by the pod's own annotation; None if there is none, or if it cannot be decoded."""
    return decode_or(pod.metadata.annotations.get(annotation_keys.RESERVATION_CURRENT_OWNER), ObjectReference, None)


def operating_faults(pod: Pod) -> list[str]:
    """The errors in the pod's annotations, for its author; empty if they are valid."""
    found: list[str] = []
    key = annotation_keys.RESERVATION_OWNERS
    try:
        owners = decode(pod.metadata.annotations.get(key) or "[]", list[ReservationOwner])
        found += owner_faults(owners, f"annotation {key}", "what the pod reserves")
    except DecodeError as error:
        found.append(f"annotation {key}: {error}; no pod owns what the pod reserves until it is mended")
    key = annotation_keys.RESERVATION_CURRENT_OWNER
    try:
        decode(pod.metadata.annotations.get(key) or "{}", ObjectReference)
    except DecodeError as error:
        found.append(f"annotation {key}: {error}; it counts as if it were not there")
    return found


def _is_ready(pod: Pod) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    return pod.status.phase == "Running" and ready
