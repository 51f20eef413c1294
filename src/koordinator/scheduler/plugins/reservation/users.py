"""The pods that take from Reservations, and what they take: derived from the pods that are on nodes, at every change.

Which pod takes from which Reservation is in the allocation ledger; what a pod requests is known of the pod alone, and
changes when it is resized. So only the places of the pods are kept here.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU, MEMORY
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.booking import NO_CREDIT, Amounts, Booking

_NOBODY: Final[dict[str, int]] = {}


class Users:
    """The pods on nodes that take from each Reservation, also from Reservations that are not known yet."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._rows: dict[str, dict[str, int]] = {}
        """The uid of a Reservation -> the rows of its users, by their uids."""
        self._taken_from: dict[str, str] = {}
        """The uid of a pod -> that of the Reservation that it takes from."""

    def __len__(self) -> int:
        return len(self._taken_from)

    def add(self, uid: str, pod: PodInfo, row: int) -> None:
        self._rows.setdefault(uid, {})[pod.uid] = row
        self._taken_from[pod.uid] = uid

    def remove(self, uid: str, pod: PodInfo) -> bool:
        """Whether the pod was a user of the Reservation."""
        rows = self._rows.get(uid, {})
        if rows.pop(pod.uid, None) is None:
            return False
        if not rows:
            del self._rows[uid]
        del self._taken_from[pod.uid]
        return True

    def taken_from(self, pod: PodInfo) -> str | None:
        """The uid of the Reservation that the pod takes from."""
        return self._taken_from.get(pod.uid)

    def of(self, uid: str) -> dict[str, PodInfo]:
        """The users of the Reservation, by uid, wherever they are."""
        found = ((each, self._view.pods_on.get(row, {}).get(each)) for each, row in self._users(uid).items())
        return {each: pod for each, pod in found if pod is not None}

    def on(self, uid: str, row: int | None) -> dict[str, PodInfo]:
        """Those that are on the row. A pod elsewhere, whose record has been written by hand, holds nothing there."""
        there = self._view.pods_on.get(row, {}) if row is not None else {}
        return {each: there[each] for each, where in self._users(uid).items() if where == row and each in there}

    def _users(self, uid: str) -> dict[str, int]:
        return self._rows.get(uid, _NOBODY)


def taken_of(booking: Booking, reserve_pod: PodInfo | None) -> tuple[Amounts, tuple[int, int]]:
    """What users take of the Reservation, and nothing more: what its reserve pod and they would both count for."""
    if not booking.users or reserve_pod is None:
        return NO_CREDIT
    requests = [user.request for user in booking.users.values()]
    amounts: dict[str, int] = {}
    for name, held in booking.allocatable.items():
        taken = min(held, sum([each.amounts.get(name, 0) for each in requests]))
        if taken and name != PODS:
            amounts[name] = taken
    most = reserve_pod.request.non_zero
    cpu, memory = (min(most[index], sum([each.non_zero[index] for each in requests])) for index in (CPU, MEMORY))
    return amounts, (cpu, memory)
