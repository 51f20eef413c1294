"""The controller that writes the status of Reservations, and deletes those that ended long ago."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.reservation import SCHEDULED_CONDITION, Reservation
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.faults import faults
from koordinator.scheduler.plugins.reservation.life_cycle import Facts, is_to_be_deleted, status_change
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record, is_over, problem

_PERIOD: Final = 1.0


class ReservationController:
    """``failures``: the messages of failed attempts to place Reservations, by uid; each is removed once it is written.
    ``report`` is called once with each Reservation that its author has to fix, and its error."""

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
        self._checked: dict[str, tuple[Reservation, tuple[str, ...]]] = {}
        """By uid: the Reservations as they were checked last, and their reported errors."""

    async def run(self) -> None:
        """Until cancelled: reconcile all Reservations each second."""
        while True:
            await self.reconcile_all()
            await self._writer.sleep(_PERIOD)

    async def reconcile_all(self) -> None:
        """Reconcile all Reservations once."""
        found = [each for each in self._view.objects_of(RESERVATIONS).values() if isinstance(each, Reservation)]
        there = {each.metadata.uid for each in found}
        self._checked = {uid: checked for uid, checked in self._checked.items() if uid in there}
        # Passes are counted instead of the time, so that no step of the clock delays deletion.
        cleans = self._kept is not None and self._passes % self._cleans_every == 0
        self._passes += 1
        for reservation in found:
            self._report_faults(reservation)
            await self._reconcile(reservation, self._kept if cleans else None)

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

    async def _reconcile(self, reservation: Reservation, kept: timedelta | None) -> None:
        metadata, now = reservation.metadata, self._writer.now()
        if metadata.deletion_timestamp is not None:
            return
        message = self._failures.get(metadata.uid)
        has_node = reservation.status.node_name in self._view.columns.row_of
        facts = Facts(self._owners(reservation), has_node, message or _unreported_problem(reservation))
        change = status_change(reservation, facts, now)
        try:
            if change is not None:
                version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
                patch = {"metadata": version, "status": change}
                await self._writer.patch(RESERVATIONS, metadata.name, "", patch, "status")
                if self._failures.get(metadata.uid) is message:
                    self._failures.pop(metadata.uid, None)
            elif kept is not None and is_to_be_deleted(reservation, has_node, kept, now):
                await self._writer.delete(RESERVATIONS, metadata)
        except KoordinatorError as error:
            # It is reconciled again in a second, in its state at that time.
            self._writer.warn(f"reservation {metadata.name} could not be written: {error}")

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
