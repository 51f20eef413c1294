"""Decides which Reservation a pod takes from on a node, and why it takes from none of them.

The pod fits on the node by way of one Reservation if the free capacity of the node, with what that Reservation still
keeps, is sufficient; what other Reservations keep stays theirs. A Restricted Reservation must be sufficient by itself,
too; others may use more of the node. The counts and the wording of the message for a pod that fits into none are those
of the original's PostFilter and of its event about reservations.

Other plugins take part in the fit and in the choice, see ``engine.reservation_points``. They are called for nodes as
Filter plugins see them for the pod, so the row is adjusted for them if it is not already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_ports import host_ports
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking, Match, Unmatched
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.matching import Mismatch, ReservationRequirements, requirements_of

NONE_MATCHES: Final = Reason("node(s) no reservations match reservation affinity", unresolvable=True)
NONE_SUITS: Final = Reason("node(s) no reservation(s) to meet the requirements")
POLICY_CONFLICT: Final = Reason("node(s) reservation allocate policy conflict", unresolvable=True)
OTHER_NODE: Final = Reason("node(s) didn't match the nodeName specified by reservation", unresolvable=True)
BY_NODE: Final = " by node"
NOTHING: Final[Amounts] = {}
_TOO_MANY: Final = "Reservation(s) Too many pods"


def insufficient(wanted: Amounts, free: Amounts, kept: Iterable[Amounts], reserved: Amounts = NOTHING) -> list[str]:
    """The resources of which too little is ``free`` if ``kept`` and ``reserved`` are not."""
    listed = [*kept, reserved]
    return [
        name for name, amount in wanted.items() if amount > free[name] - sum([each.get(name, 0) for each in listed])
    ]


def by_node(names: Iterable[str]) -> tuple[Reason, ...]:
    """The reasons for resources of which the node has too little."""
    return tuple(Reason(f"Insufficient {name}{BY_NODE}") for name in names)


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The free capacity of a node without the Reservations that the pod may take from, and what those still keep."""

    free: Mapping[str, int]
    """Of each resource that the pod requests; may be below 0."""
    matched: Sequence[Booking]

    def reasons(self, booking: Booking, request: Amounts, *, detailed: bool) -> tuple[Reason, ...]:
        """Why the pod does not fit by way of ``booking``, one of ``matched``; empty if it does."""
        others = [each for each in self.matched if each is not booking]
        lacking = self.lacking(request, others, booking.reserved)
        return (*by_node(lacking), *restricted_reasons(booking, request, detailed=detailed))

    def lacking(self, request: Amounts, kept: Iterable[Booking], reserved: Amounts) -> list[str]:
        """The resources with insufficient capacity when ``kept`` keep what they have."""
        if not any(request.values()):
            return []
        return insufficient(request, self.free, [each.remaining for each in kept], reserved)


def restricted_reasons(booking: Booking, request: Amounts, *, detailed: bool) -> tuple[Reason, ...]:
    """Why a Restricted Reservation is insufficient by itself; empty if it is sufficient, or has another policy."""
    found: list[Reason] = []
    if PODS in booking.restricted:
        used, capacity = len(booking.users), booking.allocatable[PODS]
        if used + 1 > capacity:
            text = f"{_TOO_MANY}, requested: 1, used: {used}, capacity: {capacity}" if detailed else _TOO_MANY
            found.append(Reason(text))
    allocated = booking.allocated if booking.restricted else {}
    for name in sorted(booking.restricted - {PODS}):
        amount, capacity = request.get(name, 0), booking.allocatable[name]
        used = max(0, allocated[name])
        if amount and amount > capacity - booking.reserved.get(name, 0) - used:
            text = f"Reservation(s) Insufficient {name}"
            if detailed:
                text += f", requested: {amount}, used: {used}, capacity: {capacity}"
            found.append(Reason(text))
    return tuple(found)


def shares_a_resource(booking: Booking, request: Amounts) -> bool:
    """Whether the pod requests any resource that the Reservation holds."""
    return any(amount and booking.allocatable.get(name) for name, amount in request.items())


def has_left(booking: Booking, pod: PodInfo) -> bool:
    """Whether the Reservation has anything left that the pod requests, or a host port of the pod."""
    remaining, reserved = booking.remaining, booking.reserved
    if any(amount and remaining.get(name, 0) > reserved.get(name, 0) for name, amount in pod.request.amounts.items()):
        return True
    wanted = host_ports(pod.pod)
    return bool(wanted) and not set(wanted).isdisjoint(host_ports(booking.pod))


def outranks_a_user(booking: Booking, pod: PodInfo) -> bool:
    """Whether a pod of lower priority takes from the Reservation: what that pod leaves is for ``pod`` before others."""
    return any(user.priority < pod.priority for user in booking.users.values())


def score(booking: Booking, request: Amounts) -> int:
    """How full the Reservation would be, 0..100: the mean over its resources, as NodeResourcesFit's MostAllocated."""
    allocated = booking.allocated
    held = [(name, amount) for name, amount in booking.allocatable.items() if amount]
    if not held:
        return 0
    shares = (
        100 * wanted // capacity if (wanted := request.get(name, 0) + allocated[name]) <= capacity else 0
        for name, capacity in held
    )
    return sum(shares) // len(held)


_PREFIX: Final = "Reservation(s) "
_OWNED: Final = "Reservation(s) matched owner total"
_EXACTLY: Final = "Reservation(s) exactly matches the requested reservation name"
_FOR_NODE: Final = "Reservation(s) for node reason that "


class Owned(NamedTuple):
    """What is counted: the Reservations that a pod owns, or the pods that a Reservation may take over."""

    matched: Sequence[str]
    """The node of each that matches."""
    unmatched: Sequence[Unmatched]
    by_name: bool = False
    """Whether those that match were selected by name."""


def summary(owned: Owned, statuses: Sequence[NodeStatus], names: Sequence[str]) -> str:
    """The text added to the message of a pod. ``names``: those of the rows of ``statuses``."""
    found: list[str] = []
    if owned.by_name and owned.matched:
        found.append(f"{len(owned.matched)} {_EXACTLY}")
    for why in Mismatch:
        counts = Counter(each.detail for each in owned.unmatched if each.why is why)
        found += [
            f"{count} {_PREFIX}{why.value}{' ' + detail if detail else ''}" for detail, count in sorted(counts.items())
        ]
    for text, count in sorted(_for_node_reasons(owned.matched, statuses, names).items()):
        found.append(f"{count} {_FOR_NODE}{text}")
    return ", ".join([*found, f"{len(owned.matched) + len(owned.unmatched)} {_OWNED}"])


def _for_node_reasons(nodes: Iterable[str], statuses: Sequence[NodeStatus], names: Sequence[str]) -> Counter[str]:
    """Count each match with the reasons of its node that do not concern the Reservation itself."""
    matched = Counter(nodes)
    counts: Counter[str] = Counter()
    for status in statuses:
        own = sum(reason.text.startswith(_PREFIX) for reason in status.reasons)
        others = [reason.text for reason in status.reasons if not reason.text.startswith(_PREFIX)]
        for row in status.rows.tolist():
            left = matched.get(names[row], 0) - own
            if left > 0:
                counts.update(dict.fromkeys(others, left))
    return counts


def event_note(message: str) -> str:
    """The note of the event about reservations, extracted from a pod's whole message; "" if that has no such counts."""
    _, found, rest = message.partition(" nodes are available: ")
    if not found:
        return ""
    items = [each.strip().rstrip(".") for each in rest.replace(". ", ", ").split(",")]
    counted = [each for each in items if _count_of(each, _PREFIX)]
    total = next((each.split(" ")[0] for each in counted if each.endswith(_OWNED)), "")
    if not total:
        return ""
    shown = [each for each in counted if not each.endswith(_OWNED)]
    return f"0/{total} reservations are available: {', '.join(_arranged(shown))}."


def _count_of(text: str, prefix: str) -> bool:
    count, _, rest = text.partition(" ")
    return count.isdigit() and rest.startswith(prefix)


def _arranged(items: Iterable[str]) -> list[str]:
    """Texts about exact names first, those about nodes last."""
    return sorted(items, key=lambda each: (_FOR_NODE.strip() in each) - (_EXACTLY in each))


T = TypeVar("T")


class HasPoints(Protocol):
    """A plugin that knows the profile's other plugins that take part."""

    @property
    def points(self) -> ReservationPoints: ...


class Nominator:
    """Nominates Reservations, for the present, possibly simulated, state of the cluster. ``ignored``: the extended
    resources, and the groups of them (the part of a name before the slash), that Reservations are not checked for.
    ``plugin`` has the profile's other plugins that take part."""

    def __init__(
        self,
        cache: ReservationCache,
        view: ClusterView,
        ignored: tuple[frozenset[str], frozenset[str]],
        plugin: HasPoints,
    ) -> None:
        self._cache = cache
        self._view = view
        self._ignored = ignored
        self._plugin = plugin

    def adjustments(self, pod: PodInfo, rows: Iterable[int]) -> dict[int, Adjustment]:
        """The adjustments of those of ``rows`` with Reservations for the pod: what it may take from is removed; what
        others have taken of it stays taken."""
        found: dict[int, list[Booking]] = {}
        wanted = set(rows)
        for uid in self._cache.match(pod).uids:
            booking = self._cache.bookings.get(uid)
            if booking is not None and booking.row in wanted:
                found.setdefault(booking.row, []).append(booking)
        points = self._plugin.points if found else None
        return {
            row: Adjustment(
                removed=tuple([self._view.pods_on[row][each.uid] for each in matched]),
                changes=(points.restoration(self._view, matched, row),) if points else (),
            )
            for row, matched in found.items()
        }

    def _as_filtered(self, pod: PodInfo, row: int, compute: Callable[[], T]) -> T:
        """The result of ``compute``, called while the row is as Filter plugins see it for the pod."""
        if self._plugin.points.is_seen(row):
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
        points = self._plugin.points
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
        lacking = capacity.lacking(checked, matched, NOTHING)
        return (tuple(found) or by_node(lacking)) if lacking else ()

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
        points = self._plugin.points if fitting else None
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
        if points := self._plugin.points:
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
