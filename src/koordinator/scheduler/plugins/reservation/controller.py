"""The controller that writes the status of Reservations, and deletes those that ended long ago. Their life cycle is a
pure function of the object, its owners, its node and the time:

    Pending ── placed ──► Available ── its first owner, if allocateOnce ──► Succeeded
       │                      │                                                │
       └─── expired ──────────┴── expired, or its node is gone ──► Failed ─────┴── long enough ago ──► deleted

A Reservation becomes Available when its reserve pod is bound, see ``reserve_pod``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.kinds import RESERVATIONS
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
from koordinator.base.errors import KoordinatorError
from koordinator.model.pod_requests import pod_requests
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.booking import faults
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record, is_over, problem

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
        return {"phase": FAILED, "conditions": _is_false(reservation, READY_CONDITION, REASON_EXPIRED, now)}
    if not status.node_name:
        return _unschedulable(reservation, facts.failure, now) if facts.failure is not None else None
    change = _use(reservation, facts.owners)
    owners = change.get("currentOwners", to_document(list(status.current_owners)))
    if owners and reservation.spec.allocate_once is not False:
        conditions = _is_false(reservation, READY_CONDITION, REASON_SUCCEEDED, now)
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
    old = _condition(reservation, SCHEDULED_CONDITION)
    if old is not None and old.status == _TRUE:
        new = msgspec.structs.replace(old, last_probe_time=now.replace(microsecond=0))
        return {"conditions": to_document(_replaced(reservation, new))}
    return {"conditions": _is_false(reservation, SCHEDULED_CONDITION, REASON_UNSCHEDULABLE, now, message)}


def _is_false(reservation: Reservation, type_: str, reason: str, now: datetime, message: str = "") -> Any:
    """All conditions, with this one False: since now, or since it has been."""
    moment, old = now.replace(microsecond=0), _condition(reservation, type_)
    new = ReservationCondition(
        type=type_,
        status=_FALSE,
        reason=reason,
        message=message,
        last_probe_time=moment,
        last_transition_time=old.last_transition_time if old is not None and old.status == _FALSE else moment,
    )
    return to_document(_replaced(reservation, new))


def _condition(reservation: Reservation, type_: str) -> ReservationCondition | None:
    return next((each for each in reservation.status.conditions if each.type == type_), None)


def _replaced(reservation: Reservation, new: ReservationCondition) -> list[ReservationCondition]:
    return [*{**{each.type: each for each in reservation.status.conditions}, new.type: new}.values()]


_PERIOD: Final = 1.0
"""Seconds between two looks at all Reservations: some changes are those of time alone."""
_GATHERING: Final = 0.3
"""Seconds for which changes of users are batched before they are written: most come in bursts."""


class ReservationController:
    """Writes each Reservation by itself: one that is refused, or not answered, is tried again later, and the others do
    not wait for it.

    ``report`` is called once with each Reservation that its author has to fix, and its error.
    """

    name = "reservationController"

    def __init__(
        self,
        cache: ReservationCache,
        view: ClusterView,
        writer: ControllerWriter,
        report: Callable[[Reservation, str], None],
        *,
        kept: timedelta | None,
        cleans_every: int,
    ) -> None:
        """``kept``: how long after its end a Reservation is deleted; None: never. ``cleans_every``: the interval of
        deletions in seconds, during which other clients can see how a Reservation ended."""
        self._cache = cache
        self._view = view
        self._writer = writer
        self._report = report
        self._kept = kept
        self._cleans_every = max(cleans_every, 1)
        self._passes = 0
        self._failing: dict[str, str] = {}
        """By uid: the error of the last attempt."""
        self._writing: set[str] = set()
        """The uids of those that are being written, so that their writes keep their order."""
        self._checked: dict[str, tuple[Reservation, tuple[str, ...]]] = {}
        """By uid: the Reservations as they were checked last, and their reported errors."""

    async def run(self) -> None:
        """Until cancelled: reconcile all Reservations each second, and those whose users have changed in between."""
        while True:
            self.reconcile_all()
            next_pass = self._writer.monotonic() + _PERIOD
            while (left := next_pass - self._writer.monotonic()) > 0:
                if await self._writer.until(lambda: bool(self._cache.changed), left):
                    await self._writer.sleep(_GATHERING)
                    self._reconcile_changed()

    def reconcile_all(self) -> None:
        """Reconcile all Reservations once."""
        found = list(self._view.objects_of(RESERVATIONS).values())
        there = {each.metadata.uid for each in found}
        self._checked = {uid: checked for uid, checked in self._checked.items() if uid in there}
        self._failing = {uid: text for uid, text in self._failing.items() if uid in there}
        # Passes are counted instead of the time, so that no step of the clock delays deletion.
        cleans = self._kept is not None and self._passes % self._cleans_every == 0
        self._passes += 1
        for reservation in found:
            self._attempt(reservation, self._kept if cleans else None)

    def _reconcile_changed(self) -> None:
        for uid in [*self._cache.changed]:
            booking = self._cache.bookings.get(uid)
            found = self._view.objects_of(RESERVATIONS).get(booking.reservation.metadata.name) if booking else None
            if found is not None and found.metadata.uid == uid:
                self._attempt(found, None)
            else:
                # That of a pod in operating mode, which has no status.
                self._cache.changed.pop(uid, None)

    def _attempt(self, reservation: Reservation, kept: timedelta | None) -> None:
        """Reconcile it. A fault of ours that it shows is said once, and keeps no other from its status."""
        uid, name = reservation.metadata.uid, reservation.metadata.name
        try:
            self._report_faults(reservation)
            self._reconcile(reservation, kept)
        except Exception as error:
            text = f"reservation {name} could not be reconciled: {type(error).__name__}: {error}"
            if text != self._failing.get(uid):
                self._failing[uid] = text
                self._writer.warn(text)
        else:
            self._failing.pop(uid, None)

    def _report_faults(self, reservation: Reservation) -> None:
        uid = reservation.metadata.uid
        checked, reported = self._checked.get(uid, (None, ()))
        if checked is reservation:
            return
        texts = () if is_over(reservation) else tuple(faults(reservation))
        for text in texts:
            if text not in reported:
                self._report(reservation, text)
        self._checked[uid] = reservation, texts

    def _reconcile(self, reservation: Reservation, kept: timedelta | None) -> None:
        """Begin to write what is to be written."""
        metadata, now = reservation.metadata, self._writer.now()
        if metadata.uid in self._writing:
            return
        self._cache.changed.pop(metadata.uid, None)
        if metadata.deletion_timestamp is not None:
            return
        message = self._cache.failures.get(metadata.uid)
        has_node = reservation.status.node_name in self._view.columns.row_of
        facts = Facts(self._owners(reservation), has_node, message or _unreported_problem(reservation))
        change = status_change(reservation, facts, now)
        if change is not None:
            self._start(reservation, partial(self._patch, reservation, change, message))
        elif kept is not None and is_to_be_deleted(reservation, has_node, kept, now):
            self._start(reservation, partial(self._writer.delete, RESERVATIONS, metadata))

    def _start(self, reservation: Reservation, write: Callable[[], Awaitable[None]]) -> None:
        self._writing.add(reservation.metadata.uid)
        self._writer.start(self._write(reservation, write), f"status of Reservation {reservation.metadata.name}")

    async def _write(self, reservation: Reservation, write: Callable[[], Awaitable[None]]) -> None:
        metadata = reservation.metadata
        try:
            await write()
            # What follows from the state before would be a conflict.
            await self._writer.until(
                lambda: self._view.objects_of(RESERVATIONS).get(metadata.name) is not reservation,
                _PERIOD,
                lambda: [(RESERVATIONS, metadata.key)],
            )
        except KoordinatorError as error:
            # It is reconciled again after a second, in its state at that time.
            self._writer.warn(f"reservation {metadata.name} could not be written: {error}")
            await self._writer.sleep(_PERIOD)
        finally:
            self._writing.discard(metadata.uid)

    async def _patch(self, reservation: Reservation, change: dict[str, Any], message: str | None) -> None:
        metadata = reservation.metadata
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        await self._writer.patch(RESERVATIONS, metadata.name, "", {"metadata": version, "status": change}, "status")
        if self._cache.failures.get(metadata.uid) is message:
            self._cache.failures.pop(metadata.uid, None)

    def _owners(self, reservation: Reservation) -> list[Pod]:
        """The pods that the API has on the node with a record of the Reservation."""
        uid, row = reservation.metadata.uid, self._view.columns.row_of.get(reservation.status.node_name, -1)
        there = self._view.pods_on.get(row, {})
        found = [there[each].pod for each in self._cache.users_of(uid) if each in there]
        records = [(pod, allocated_record(pod)) for pod in found if pod.spec.node_name]
        return [pod for pod, record in records if record is not None and record.uid == uid]


def _unreported_problem(reservation: Reservation) -> str | None:
    """Why the Reservation cannot be scheduled at all; None if it can, or if its condition has that text already."""
    text, conditions = problem(reservation), reservation.status.conditions
    reported = any(each.type == SCHEDULED_CONDITION and each.message == text for each in conditions)
    return text if text and not reported else None
