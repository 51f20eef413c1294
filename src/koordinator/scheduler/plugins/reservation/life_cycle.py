"""The life cycle of a Reservation: a pure function of the object, its owners, its node and the time.

    Pending ── placed ──► Available ── its first owner, if allocateOnce ──► Succeeded
       │                      │                                                │
       └─── expired ──────────┴── expired, or its node is gone ──► Failed ─────┴── long enough ago ──► deleted

It becomes Available when its reserve pod is bound, see ``reserve_pod``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.meta import ObjectReference
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import (
    FAILED,
    READY_CONDITION,
    REASON_EXPIRED,
    REASON_SUCCEEDED,
    REASON_UNSCHEDULABLE,
    SCHEDULED_CONDITION,
    SUCCEEDED,
    Reservation,
    ReservationCondition,
)
from koordinator.model.pod_requests import pod_requests
from koordinator.scheduler.plugins.reservation.reserve_pod import is_over

_TRUE: Final = "True"
_FALSE: Final = "False"
_DEFAULT_TTL: Final = timedelta(hours=24)
"""Of the CustomResourceDefinition."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the status depends on. ``owners`` are pods that the API has on its node; ``failure`` is the
    message of the last failed attempt to place it, if there has been one since."""

    owners: Sequence[Pod] = ()
    has_node: bool = True
    failure: str | None = None


def status_change(reservation: Reservation, facts: Facts, now: datetime) -> dict[str, Any] | None:
    """The merge patch of the status; None if it is up to date."""
    if is_over(reservation):
        return None
    status = reservation.status
    if is_expired(reservation, now) or (status.node_name and not facts.has_node):
        return {"phase": FAILED, "conditions": to_document(_not_ready(reservation, REASON_EXPIRED, now))}
    if not status.node_name:
        return _unschedulable(reservation, facts.failure, now) if facts.failure is not None else None
    change = _use(reservation, facts.owners)
    owners = change.get("currentOwners", to_document(list(status.current_owners)))
    if owners and reservation.spec.allocate_once is not False:
        conditions = to_document(_not_ready(reservation, REASON_SUCCEEDED, now))
        return {**change, "phase": SUCCEEDED, "conditions": conditions}
    return change or None


def is_expired(reservation: Reservation, now: datetime) -> bool:
    """By ``expires`` or by the age that ``ttl`` allows, whichever comes first; a ttl of 0 is for ever, whatever
    ``expires`` is (Koordinator 1.8, pkg/scheduler/plugins/reservation/controller). Beside ``expires``, the default ttl
    counts as none: the API server gives it to every Reservation whose author has named that moment alone."""
    spec, created = reservation.spec, reservation.metadata.creation_timestamp
    if spec.ttl is not None and not spec.ttl:
        return False
    if spec.expires is not None and (now > spec.expires or spec.ttl == _DEFAULT_TTL):
        return now > spec.expires
    return spec.ttl is not None and created is not None and now - created > spec.ttl


def is_to_be_deleted(reservation: Reservation, has_node: bool, kept: timedelta, now: datetime) -> bool:
    """Whether it ended longer than ``kept`` ago, or ended and its node is gone."""
    if not is_over(reservation):
        return False
    if reservation.status.node_name and not has_node:
        return True
    ready = _condition(reservation, READY_CONDITION)
    ended = None
    if ready is not None:
        succeeded = reservation.status.phase == SUCCEEDED
        ended = ready.last_probe_time if succeeded else ready.last_transition_time
    ended = ended or reservation.metadata.creation_timestamp
    return ended is not None and now - ended > kept


def _use(reservation: Reservation, owners: Iterable[Pod]) -> dict[str, Any]:
    """The status fields about owners that differ from the present ones."""
    status = reservation.status
    users = sorted(owners, key=lambda pod: pod.metadata.uid)
    references = [
        ObjectReference(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid) for pod in users
    ]
    change: dict[str, Any] = {}
    if references != list(status.current_owners):
        change["currentOwners"] = to_document(references)
    allocated = _allocated(reservation, users)
    if allocated != {name: amount for name, amount in status.allocated.items() if amount}:
        gone = {name: None for name in status.allocated if name not in allocated}
        change["allocated"] = {**gone, **{name: str(amount) for name, amount in allocated.items()}}
    return change


def _allocated(reservation: Reservation, users: Iterable[Pod]) -> dict[str, Quantity]:
    total: dict[str, int] = {}
    for pod in users:
        for name, nanos in pod_requests(pod).items():
            if nanos and name in reservation.status.allocatable:
                total[name] = total.get(name, 0) + nanos
    return {name: Quantity(nanos, reservation.status.allocatable[name].format) for name, nanos in total.items()}


def _unschedulable(reservation: Reservation, message: str, now: datetime) -> dict[str, Any]:
    moment, old = now.replace(microsecond=0), _condition(reservation, SCHEDULED_CONDITION)
    new = ReservationCondition(
        type=SCHEDULED_CONDITION,
        status=_FALSE,
        reason=REASON_UNSCHEDULABLE,
        message=message,
        last_probe_time=moment,
        last_transition_time=old.last_transition_time if old is not None and old.status == _FALSE else moment,
    )
    if old is not None and old.status == _TRUE:
        new = msgspec.structs.replace(old, last_probe_time=moment)
    return {"conditions": to_document(_replaced(reservation, new))}


def _not_ready(reservation: Reservation, reason: str, now: datetime) -> list[ReservationCondition]:
    moment, old = now.replace(microsecond=0), _condition(reservation, READY_CONDITION)
    was_ready = old is None or old.status == _TRUE
    changed = old.last_transition_time if old is not None and not was_ready else moment
    new = ReservationCondition(
        type=READY_CONDITION, status=_FALSE, reason=reason, last_probe_time=moment, last_transition_time=changed
    )
    return _replaced(reservation, new)


def _condition(reservation: Reservation, type_: str) -> ReservationCondition | None:
    return next((each for each in reservation.status.conditions if each.type == type_), None)


def _replaced(reservation: Reservation, new: ReservationCondition) -> list[ReservationCondition]:
    old = reservation.status.conditions
    if all(each.type != new.type for each in old):
        return [*old, new]
    return [new if each.type == new.type else each for each in old]
