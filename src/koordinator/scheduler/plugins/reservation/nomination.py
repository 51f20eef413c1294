"""Decides which Reservation a pod takes from on a node, and why it takes from none of them.

Other plugins take part in both, see ``engine.reservation_points``. They are called for nodes as Filter plugins see them
for the pod, so the row is adjusted for them if it is not already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking, Match
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.fitting import (
    BY_NODE,
    NONE_MATCHES,
    NONE_SUITS,
    FreeCapacity,
    has_left,
    outranks_a_user,
    score,
    shares_a_resource,
)
from koordinator.scheduler.plugins.reservation.matching import ReservationRequirements, requirements_of

T = TypeVar("T")


class Nominator:
    """Nominates Reservations, for the present, possibly simulated, state of the cluster. ``ignored``: the extended
    resources, and the groups of them (the part of a name before the slash), that Reservations are not checked for.
    ``points`` returns the profile's other plugins that take part."""

    def __init__(
        self,
        cache: ReservationCache,
        view: ClusterView,
        ignored: tuple[frozenset[str], frozenset[str]],
        points: Callable[[], ReservationPoints],
    ) -> None:
        self._cache = cache
        self._view = view
        self._ignored = ignored
        self._points = points

    def adjustments(self, pod: PodInfo, rows: Iterable[int]) -> dict[int, Adjustment]:
        """The adjustments of those of ``rows`` with Reservations for the pod: what it may take from is removed; what
        others have taken of it stays taken."""
        found: dict[int, list[Booking]] = {}
        wanted = set(rows)
        for uid in self._cache.match(pod).uids:
            booking = self._cache.bookings.get(uid)
            if booking is not None and booking.row in wanted:
                found.setdefault(booking.row, []).append(booking)
        points = self._points() if found else None
        return {
            row: Adjustment(
                removed=tuple([self._view.pods_on[row][each.uid] for each in matched]),
                changes=(points.restoration(self._view, matched, row),) if points else (),
            )
            for row, matched in found.items()
        }

    def _as_filtered(self, pod: PodInfo, row: int, compute: Callable[[], T]) -> T:
        """The result of ``compute``, called while the row is as Filter plugins see it for the pod."""
        if self._points().is_seen(row):
            return compute()
        with self._view.simulate() as journal:
            for adjustment in self.adjustments(pod, (row,)).values():
                journal.adjust(row, adjustment)
            return compute()

    def why_not(
        self, pod: PodInfo, requirements: ReservationRequirements, row: int, matched: Sequence[Booking]
    ) -> tuple[Reason, ...]:
        """Why the pod can neither take from one of ``matched``, which are on the row, nor from the node alone."""
        if not matched:
            return (NONE_MATCHES,) if requirements.affinity is not None else ()
        capacity = self.capacity(pod, row, matched)
        request, checked = pod.request.amounts, self.checked(pod)
        is_named = requirements.affinity is not None and bool(requirements.affinity.name)
        found: list[Reason] = []
        # For pods that do not own these the row is unadjusted, and the result is not used.
        points = self._points()
        for booking in matched:
            if requirements.affinity is None and not shares_a_resource(booking, request):
                continue
            reasons = capacity.reasons(booking, checked, detailed=is_named)
            refusal = points.refusal(pod, booking, row) if points and points.is_seen(row) else None
            if refusal is not None:
                reasons = (*reasons, refusal)
            if not reasons:
                return ()
            found += [each for each in reasons if not each.text.endswith(BY_NODE) or each not in found]
        if requirements.affinity is not None:
            return tuple(found) or (NONE_SUITS,)
        lacking = capacity.lacking(checked, matched, {})
        if not lacking:
            return ()
        return tuple(found) or tuple(Reason(f"Insufficient {name}{BY_NODE}") for name in lacking)

    def checked(self, pod: PodInfo) -> Amounts:
        """The pod's requests without the extended resources that the arguments ``ignoredResources`` and
        ``ignoredResourceGroups`` (the part of a name before the slash) name."""
        resources, groups = self._ignored
        amounts = pod.request.amounts
        if not resources and not groups:
            return amounts
        return {
            name: amount
            for name, amount in amounts.items()
            if name not in resources and not ("/" in name and name.split("/")[0] in groups)
        }

    def capacity(self, pod: PodInfo, row: int, matched: Sequence[Booking], *, assumed: bool = False) -> FreeCapacity:
        """The free capacity on the row, whether the reserve pods of ``matched`` count there at present or not.
        ``assumed``: the pod itself counts there. Filters do not pass it: their pod may represent its class, with more
        such pods to come."""
        there, numbers = self._view.pods_on[row], self._view.columns.numbers[row]
        counted = assumed and pod.uid in there
        shown = [each.remaining for each in matched if each.uid in there]
        free = {
            name: numbers.free(name) + counted * amount + sum(each.get(name, 0) for each in shown)
            for name, amount in pod.request.amounts.items()
        }
        return FreeCapacity(free, matched)

    def nominated(
        self, pod: PodInfo, row: int, match: Match, requirements: ReservationRequirements, *, assumed: bool = False
    ) -> Booking | None:
        """The Reservation that the pod would take from on the row; None if it would take from the node alone. See
        ``capacity``. One that is used up takes no more owners, except pods that must use a Reservation, and, where
        nothing else is left, pods of higher priority than one of its users."""
        matched = self._cache.open_on(self._view.columns.names[row], match)
        if not matched:
            return None
        capacity, checked = self.capacity(pod, row, matched, assumed=assumed), self.checked(pod)
        suitable = [each for each in matched if not capacity.reasons(each, checked, detailed=False)]
        fitting = [each for each in suitable if requirements.affinity is not None or has_left(each, pod)]
        if not fitting and assumed:
            # Does not affect the node's score, which pods of different priorities share.
            fitting = [
                each for each in suitable if shares_a_resource(each, pod.request.amounts) and outranks_a_user(each, pod)
            ]
        points = self._points() if fitting else None
        if points:
            return self._as_filtered(pod, row, lambda: self._best(pod, row, fitting, points))
        return self._first(pod, fitting, [0] * len(fitting))

    def _best(self, pod: PodInfo, row: int, fitting: Sequence[Booking], points: ReservationPoints) -> Booking | None:
        let = [each for each in fitting if points.refusal(pod, each, row) is None]
        return self._first(pod, let, points.scores([(pod, each) for each in let], row))

    @staticmethod
    def _first(pod: PodInfo, fitting: Sequence[Booking], scores: Sequence[int]) -> Booking | None:
        """The first by order, or else the best by our score and those of other plugins."""
        if not fitting:
            return None
        ordered = [each for each in fitting if each.order]
        if ordered:
            return min(ordered, key=lambda each: (each.order, each.uid))
        request = pod.request.amounts
        ranked = zip(fitting, scores, strict=True)
        return min(ranked, key=lambda pair: (-score(pair[0], request) - pair[1], pair[0].uid))[0]

    def refusal(self, booking: Booking, pod: PodInfo) -> str:
        """Why a pod that owns the Reservation does not take from it at present; "" if it would."""
        match, requirements = self._cache.match(pod), requirements_of(pod)
        if requirements.problem:
            return requirements.problem
        if requirements.ignored:
            return "the pod ignores reservations"
        for each in match.unmatched:
            if each.uid == booking.uid:
                return f"the reservation {each.why.value}{' ' + each.detail if each.detail else ''}"
        if booking.uid not in match.uids:
            is_taken = booking.users or booking.is_claimed
            return "the reservation is used up by its owner" if is_taken else "the reservation is not available"
        # Not the row of the booking: while lacks are computed, the Reservations that the pod may take from are removed.
        row = self._view.columns.row_of.get(booking.node_name)
        if row is None:
            return f"the scheduler does not know of node {booking.node_name}"
        capacity = self.capacity(pod, row, self._cache.open_on(booking.node_name, match))
        if requirements.affinity is None and not shares_a_resource(booking, pod.request.amounts):
            return "the pod requests nothing that the reservation holds"
        reasons = capacity.reasons(booking, self.checked(pod), detailed=True)
        if points := self._points():
            refusal = self._as_filtered(pod, row, lambda: points.refusal(pod, booking, row))
            reasons = (*reasons, refusal) if refusal is not None else reasons
        if reasons:
            return ", ".join(each.text for each in reasons)
        if requirements.affinity is None and not has_left(booking, pod) and not outranks_a_user(booking, pod):
            return "nothing that the pod requests is left of the reservation"
        nominated = self.nominated(pod, row, match, requirements)
        if nominated is not None and nominated is not booking:
            return f"the pod would take from reservation {nominated.name} first"
        return ""
