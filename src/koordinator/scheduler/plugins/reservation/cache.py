"""The Reservations by node, and what owners take of them: one cache for all profiles, kept current by events.

A reserve pod counts on its node with all that its Reservation holds, and each owner counts there, too. What owners take
of it is therefore subtracted from its node's columns, so that at any moment the requested resources of a node are those
of its pods and of what its Reservations still keep free: max(0, what it holds - what its owners on the node request
now). An owner that takes more than is left takes the rest from the node; one that is resized to less gives the
difference back to its Reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from koordinator.api.kinds import RESERVATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.base.groups import Groups
from koordinator.scheduler.configuration.koordinator_arguments import ReservationSelectorIndex
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.framework_hooks import RESERVED
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import OMIT_NODE_LABELS
from koordinator.scheduler.plugins.reservation.booking import (
    NO_CREDIT,
    NO_MATCH,
    Amounts,
    Awaited,
    Booking,
    Match,
    Unmatched,
    booking_of,
    match_of,
    taken_of,
)
from koordinator.scheduler.plugins.reservation.matching import (
    ReservationRequirements,
    mismatch,
    pod_keys,
    requirements_of,
)
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    is_operating,
    is_pending_or_placed,
    operating_faults,
    operating_reservation,
    requested_amounts,
    reserve_pod,
    stands_for_a_reservation,
)
from koordinator.scheduler.plugins.reservation.selector_index import SelectorIndex

NAME: Final = "Reservation"
_MEMO: Final = NAME


@dataclass(slots=True)
class _Memo:
    """Cached results for one pod, with the versions of the cache that they are derived from."""

    version: tuple[int, str]
    owned: Sequence[tuple[Booking, Unmatched | None]]
    openings: int = -1
    match: Match = NO_MATCH


class ReservationCache(EventHandler):
    """``on_opened`` is called with the Reservation of an operating-mode pod when it becomes usable, and ``on_fault``
    with an operating-mode pod and its error.

    Whether an operating-mode pod is usable depends on its status, so this handler is notified of status updates."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        view.reservations_on = self._counted_on
        self._aspect = view.columns.aspect(RESERVED)
        self.awaited: dict[str, Awaited] = {}
        """The Reservations that nominated pods are going to take from, by uid of the pod, while their victims leave."""
        self.failures: dict[str, str] = {}
        """The messages of failed attempts to place Reservations, by uid; each is removed once it is written."""
        self.changed: dict[str, None] = {}
        """The uids of Reservations whose users have changed since their status was last reconciled."""
        self._version = 0
        """Grows with every change of what ``_owned`` reads."""
        self._openings = 0
        """Grows when a Reservation becomes open or closed to owners only because of its users."""
        self.on_opened: Callable[[Reservation], None] = lambda reservation: None
        self.on_fault: Callable[[Pod, str], None] = lambda pod, fault: None
        self.selector_index = SelectorIndex(ReservationSelectorIndex())
        self.on_reset()

    def on_reset(self) -> None:
        self._version += 1
        self._view.columns.drop_discounts()
        self._view.concerns_version += 1
        self.selector_index.clear()
        self.bookings: dict[str, Booking] = {}
        """The Reservations that have a node, by their uid; while there are none, hardly any pod is concerned."""
        self.on_node_named = Groups[str, str, Booking]()
        """The same, by name of the node."""
        self._index = Groups[Hashable, str, Booking]()
        self._users = Groups[str, str, int]()
        """The uid of a Reservation, known or not -> the rows of the pods that take from it, by their uids."""
        self.waiting: dict[str, PodInfo] = {}
        """The pods that the API has on no node, by uid, whichever scheduler handles them."""
        self.claimed: dict[str, str] = {}
        """The uid of each running pod that a Reservation is about to take over, with that of the Reservation."""

    def index_selectors(self, args: ReservationSelectorIndex) -> None:
        """Use the selector index from now on, if ``args`` enable it and no other profile has before."""
        index = SelectorIndex(args)
        if index.is_enabled and not self.selector_index.is_enabled:
            self.selector_index = index
            for booking in self.bookings.values():
                self._index_labels(booking, self._node_of(booking))

    # Events.

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind is not RESERVATIONS:
            return
        if isinstance(old, Reservation) and (new is None or new.metadata.uid != old.metadata.uid):
            self._unbook(old.metadata.uid)
        if isinstance(new, Reservation):
            if new.status.node_name and is_pending_or_placed(new):
                self._book(new, reserve_pod(new))
            else:
                self._unbook(new.metadata.uid)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if self._users:
            self._changed_user(pod)
        old = booking = self.bookings.get(pod.uid)
        if not assumed and (is_operating(pod.pod) or (old is not None and is_operating(old.pod))):
            self._set_operating(pod.pod, old)
            booking = self.bookings.get(pod.uid)
        if booking is None or self._view.columns.names[row] != booking.node_name:
            return
        booking.row = row
        self._set_credit(booking)
        if is_operating(booking.pod) and booking.is_open and not (old is not None and old.is_open):
            self.on_opened(booking.reservation)

    def on_pod_resized(self, row: int, before: PodInfo, after: PodInfo) -> None:
        if (held := self._view.allocations.of(NAME, after.uid)) is not None:
            self._changed_users(held.uid)
        self.on_pod_assigned(row, after, False)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        booking = self.bookings.get(pod.uid)
        if booking is not None and booking.row == row:
            self._discount(booking, NO_CREDIT)
            booking.row = -1

    def on_node(self, row: int, node: Node) -> None:
        if node.metadata.name in self.on_node_named:
            # The node's labels count as labels of its Reservations.
            self._version += 1
            for booking in self.on_node_named[node.metadata.name].values():
                self._index_labels(booking, node)

    def on_node_removed(self, row: int, name: str) -> None:
        self._version += 1
        for booking in list(self.on_node_named.of(name).values()):
            # The row's columns are cleared with the node.
            booking.row = -1
            if is_operating(booking.pod):
                # What becomes of a pod is not known before its node is back.
                self._unbook(booking.uid)
            else:
                self._index_labels(booking, None)

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        if node_name:
            self.waiting.pop(pod.uid, None)
            self.awaited.pop(pod.uid, None)
        elif not stands_for_a_reservation(pod.pod):
            self.waiting[pod.uid] = pod

    def on_pod_gone(self, pod: PodInfo) -> None:
        self.waiting.pop(pod.uid, None)
        self.awaited.pop(pod.uid, None)
        booking = self.bookings.get(pod.uid)
        if booking is not None and is_operating(booking.pod):
            self._unbook(pod.uid)

    def use(self, uid: str, pod: PodInfo, row: int) -> None:
        """Record that the pod, which is on ``row``, takes from the Reservation."""
        self._users.put(uid, pod.uid, row)
        self._changed_users(uid)

    def unuse(self, uid: str, pod: PodInfo) -> None:
        """Undo ``use``."""
        if self._users.take(uid, pod.uid) is not None:
            self._changed_users(uid)

    # Queries.

    def match(self, pod: PodInfo) -> Match:
        """The Reservations that match the pod at present; cached until something about Reservations changes."""
        if not self.bookings:
            return NO_MATCH
        # Identical pods share their memo, but owners may name single pods.
        version = self._version, pod.uid
        known: _Memo | None = pod.memo.get(_MEMO)
        if known is None or known.version != version:
            known = pod.memo[_MEMO] = _Memo(version, self._owned(pod))
        if known.openings != self._openings:
            known.openings, known.match = self._openings, match_of(known.owned)
        return known.match

    def open_on(self, node_name: str, match: Match) -> list[Booking]:
        """Those of ``match`` that are on the node, in the order of their uids; without one that is used up by a
        nominated pod that is simulated to be there."""
        there = self.on_node_named.get(node_name)
        return [there[uid] for uid in match.uids if uid in there and there[uid].is_open] if there else []

    def users_of(self, uid: str) -> Mapping[str, PodInfo]:
        """The pods that take from a Reservation, by uid, wherever they are."""
        found = ((each, self._view.pods_on.get(row, {}).get(each)) for each, row in self._users.of(uid).items())
        return {each: pod for each, pod in found if pod is not None}

    def _counted_on(self, row: int) -> list[Booking]:
        """See ``ClusterView.reservations_on``. A pod in operating mode runs beside its owner: both count."""
        there = self.on_node_named.of(self._view.columns.names[row]).values()
        return [each for each in there if each.row == row and each.users and not is_operating(each.pod)]

    def _owned(self, pod: PodInfo) -> list[tuple[Booking, Unmatched | None]]:
        """The Reservations that the pod owns (all, for a pod that ignores owners) in the order of their uids, each with
        why it is not available to the pod."""
        requirements = requirements_of(pod)
        candidates = sorted(self._candidates(pod.pod, requirements), key=lambda each: each.uid)
        return [(booking, self._why_not(booking, pod, requirements)) for booking in candidates]

    def _candidates(self, pod: Pod, requirements: ReservationRequirements) -> Iterator[Booking]:
        if requirements.ignored:
            yield from self.bookings.values()
            return
        # A pod does not take from the Reservation that it represents.
        seen = {pod.metadata.uid}
        for there in self._narrowed(pod, requirements):
            for uid, booking in there.items():
                if uid not in seen:
                    seen.add(uid)
                    if booking.owners is not None and booking.owners.include(pod):
                        yield booking

    def _narrowed(self, pod: Pod, requirements: ReservationRequirements) -> Iterator[Mapping[str, Booking]]:
        """Groups of Reservations, by uid, that together have all that the pod may own and its affinity may select."""
        affinity = requirements.affinity
        if self.selector_index.is_enabled and affinity is not None and not affinity.name:
            names = self.selector_index.candidates(affinity.reservation_selector)
            if names is not None:
                yield from (self.on_node_named[name] for name in names)
                return
        yield from (self._index[key] for key in pod_keys(pod) if key in self._index)

    def _why_not(self, booking: Booking, pod: PodInfo, requirements: ReservationRequirements) -> Unmatched | None:
        if requirements.ignored:
            return None
        node = self._node_of(booking) if OMIT_NODE_LABELS not in self._view.gates else None
        found = mismatch(booking.reservation, pod.pod, requirements, node, (booking.allocatable, pod.request.amounts))
        return Unmatched(booking.uid, booking.node_name, *found) if found is not None else None

    def pending_booking(self, reservation: Reservation, pod: Pod) -> Booking:
        """The Reservation of a reserve pod as it would be on a node."""
        status = msgspec.structs.replace(reservation.status, allocatable=requested_amounts(pod))
        return booking_of(msgspec.structs.replace(reservation, status=status), pod)

    def _node_of(self, booking: Booking) -> Node | None:
        columns = self._view.columns
        row = columns.row_of.get(booking.node_name)
        return columns.nodes[row] if row is not None else None

    # Changes.

    def _set_operating(self, pod: Pod, old: Booking | None) -> None:
        """Apply a change of a pod that is or was in operating mode and has a node."""
        if old is not None and old.pod is pod:
            return
        if not is_operating(pod):
            self._unbook(pod.metadata.uid)
            return
        known = operating_faults(old.pod) if old is not None else ()
        for fault in operating_faults(pod):
            if fault not in known:
                self.on_fault(pod, fault)
        self._book(operating_reservation(pod), pod)

    def _book(self, reservation: Reservation, pod: Pod) -> None:
        uid = reservation.metadata.uid
        old = self.bookings.get(uid)
        if old is not None:
            if old.node_name != reservation.status.node_name:
                self._discount(old, NO_CREDIT)
            self._take_out(old)
        booking = booking_of(reservation, pod)
        # Where the reserve pod counts; -1 where it does not.
        row = self._view.columns.row_of.get(booking.node_name, -1)
        booking.row = row if uid in self._view.pods_on.get(row, {}) else -1
        booking.users = self._users_on_its_node(booking)
        self._version += 1
        self._view.concerns_version += not self.bookings
        self.bookings[uid] = booking
        self.on_node_named.put(booking.node_name, uid, booking)
        if booking.owners is not None:
            booking.index_keys = booking.owners.index_keys(lambda key: len(self._index.of(key)))
        for key in booking.index_keys:
            self._index.put(key, uid, booking)
        self._index_labels(booking, self._node_of(booking))
        self._set_credit(booking)
        self._touch(booking)

    def _index_labels(self, booking: Booking, node: Node | None) -> None:
        if not self.selector_index.is_enabled:
            return
        labels = {**(node.metadata.labels if node is not None else {}), **booking.reservation.metadata.labels}
        self.selector_index.set(booking.uid, booking.node_name, labels)

    def _touch(self, booking: Booking) -> None:
        row = self._view.columns.row_of.get(booking.node_name)
        if row is not None:
            self._view.columns.touch(row, self._aspect)

    def _unbook(self, uid: str) -> None:
        booking = self.bookings.get(uid)
        if booking is not None:
            self._discount(booking, NO_CREDIT)
            self._take_out(booking)
            self.changed.pop(uid, None)
            self._touch(booking)

    def _take_out(self, booking: Booking) -> None:
        uid = booking.uid
        del self.bookings[uid]
        self._view.concerns_version += not self.bookings
        self.on_node_named.take(booking.node_name, uid)
        for key in booking.index_keys:
            self._index.take(key, uid)
        self.selector_index.remove(uid)
        self._version += 1

    def _changed_user(self, pod: PodInfo) -> None:
        """Apply a change of a pod that may take from a Reservation."""
        held = self._view.allocations.of(NAME, pod.uid)
        booking = self.bookings.get(held.uid) if held is not None else None
        if booking is not None and pod.uid in booking.users:
            self.changed[booking.uid] = None
            booking.users[pod.uid] = pod

    def _changed_users(self, uid: str) -> None:
        booking = self.bookings.get(uid)
        if booking is not None:
            self.changed[uid] = None
            was_open = booking.is_open
            booking.users = self._users_on_its_node(booking)
            self._openings += booking.is_open != was_open
            self._set_credit(booking)
            self._touch(booking)

    def _users_on_its_node(self, booking: Booking) -> dict[str, PodInfo]:
        """A pod elsewhere, whose record has been written by hand, holds nothing there."""
        row = self._view.columns.row_of.get(booking.node_name)
        there = self._view.pods_on.get(row, {}) if row is not None else {}
        users = self._users.of(booking.uid).items()
        return {each: there[each] for each, where in users if where == row and each in there}

    def _set_credit(self, booking: Booking) -> None:
        """Subtract from the columns what owners take of the Reservation. A pod in operating mode, unlike a reserve pod,
        runs beside its owner, and the kubelet admits others by what both request."""
        if booking.row >= 0:
            counted = self._view.pods_on.get(booking.row, {}).get(booking.uid)
            self._discount(booking, NO_CREDIT if is_operating(booking.pod) else taken_of(booking, counted))

    def _discount(self, booking: Booking, credit: tuple[Amounts, tuple[int, int]]) -> None:
        if booking.row >= 0:
            self._view.columns.discount(booking.row, booking.uid, *credit)
