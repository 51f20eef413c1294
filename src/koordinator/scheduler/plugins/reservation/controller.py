"""The controller that writes the status of Reservations, and deletes those that ended long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.reservation import SCHEDULED_CONDITION, Reservation
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.booking import faults
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.life_cycle import Facts, is_to_be_deleted, status_change
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record, is_over, problem

_PERIOD: Final = 1.0
"""Seconds between two looks at all Reservations: some changes are those of time alone."""
_GATHERING: Final = 0.3
"""Seconds for which changes of users are batched before they are written: most come in bursts."""


class ReservationController:
    """Writes each Reservation by itself: one that is refused, or not answered, is tried again later, and the others do
    not wait for it.

    ``failures``: the messages of failed attempts to place Reservations, by uid; each is removed once it is written.
    ``report`` is called once with each Reservation that its author has to fix, and its error.
    """

    name = "reservationController"

    def __init__(
        self,
        cache: ReservationCache,
        view: ClusterView,
        writer: ControllerWriter,
        failures: dict[str, str],
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
        self._failures = failures
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
        found = [each for each in self._view.objects_of(RESERVATIONS).values() if isinstance(each, Reservation)]
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
            if isinstance(found, Reservation) and found.metadata.uid == uid:
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
        message = self._failures.get(metadata.uid)
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
        if self._failures.get(metadata.uid) is message:
            self._failures.pop(metadata.uid, None)

    def _owners(self, reservation: Reservation) -> list[Pod]:
        """The pods that the API has on the node with a record of the Reservation."""
        uid, row = reservation.metadata.uid, self._view.columns.row_of.get(reservation.status.node_name, -1)
        there = self._view.pods_on.get(row, {})
        found = [there[each].pod for each in self._cache.users_of(uid) if each in there]
        return [pod for pod in found if pod.spec.node_name and _is_recorded(pod, uid)]


def _unreported_problem(reservation: Reservation) -> str | None:
    """Why the Reservation cannot be scheduled at all; None if it can, or if its condition has that text already."""
    text, conditions = problem(reservation), reservation.status.conditions
    reported = any(each.type == SCHEDULED_CONDITION and each.message == text for each in conditions)
    return text if text and not reported else None


def _is_recorded(pod: Pod, uid: str) -> bool:
    record = allocated_record(pod)
    return record is not None and record.uid == uid
