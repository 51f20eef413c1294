"""Pre-allocation: a Reservation takes over what running pods hold, and is placed on their node.

The pods that it may take over are its candidates. On a node it fits once one of them, or several together if its policy
allows that, count as its owners: what they request must fit into the Reservation, and the Reservation into the node
without them. They then take from it, by the record that every owner has. Pure; Koordinator 1.8,
pkg/scheduler/plugins/reservation/plugin.go, filterWithPreAllocatablePods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec

from koordinator.api.pod import Pod
from koordinator.api.reservation import CLUSTER_MODE, RESTRICTED, Reservation, ReservationOwner
from koordinator.api.resource_names import PODS
from koordinator.model.node_selector import required_predicate
from koordinator.scheduler.configuration.koordinator_arguments import PreAllocationConfig
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import OMIT_NODE_LABELS
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking, Unmatched, whole_number
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.matching import Mismatch, Owners, is_required, mismatch, requirements_of
from koordinator.scheduler.plugins.reservation.nomination import (
    BY_NODE,
    HasPoints,
    by_node,
    insufficient,
    restricted_reasons,
    score,
    shares_a_resource,
)
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record

NO_CANDIDATE: Final = Reason("node(s) no pod match reservation with pre allocation required", unresolvable=True)
NONE_FITS: Final = Reason("node(s) no pod(s) to meet the pre-allocation requirements")
_UNSUPPORTED: Final = Reason(
    "node(s) reservation pre allocation is unsupported with current attributes", unresolvable=True
)
_UNREADABLE_OWNERS: Final = Reason("spec.owners of the reservation cannot be read", unresolvable=True)
_MODE_DISABLED: Final = Reason("reservation requires cluster mode pre-allocation which is disabled", unresolvable=True)


class Selection(NamedTuple):
    """The result of pre-allocation on a node. Without ``reasons`` the Reservation fits, with these ``pods``."""

    pods: tuple[PodInfo, ...] = ()
    reasons: tuple[Reason, ...] = ()


def is_cluster_mode(reservation: Reservation) -> bool:
    """Whether all pods with the cluster's label are candidates, not only owners of the Reservation."""
    policy = reservation.spec.pre_allocation_policy
    return policy is not None and policy.mode == CLUSTER_MODE


def takes_several(reservation: Reservation) -> bool:
    """Whether the Reservation may take over several pods together."""
    policy = reservation.spec.pre_allocation_policy
    return policy is not None and policy.enable_multiple


class Candidates:
    """The pods that a Reservation might take over, by its spec and their own objects."""

    def __init__(self, reservation: Reservation, config: PreAllocationConfig | None) -> None:
        self._uid = reservation.metadata.uid
        self._config = config if is_cluster_mode(reservation) else None
        owners = reservation.spec.owners
        self._all = Owners(owners)
        self._selecting = Owners(
            [ReservationOwner(label_selector=each.label_selector) for each in owners if each.label_selector is not None]
        )

    def include(self, pod: Pod) -> bool:
        """Whether the pod runs, is in no other Reservation, and is one that this may take over."""
        if not pod.spec.node_name:
            return False
        record = allocated_record(pod)
        if record is not None and record.uid != self._uid:
            return False
        if self._config is not None:
            return pod.metadata.labels.get(self._config.cluster_label_key) == "true"
        return self._selecting.include(pod) and self._all.include(pod)

    def sorted(self, pods: Iterable[PodInfo], booking: Booking) -> list[PodInfo]:
        """The candidates in the order in which they are tried: by the priority in their annotation, or by how full they
        would make the Reservation; by uid among equals."""
        if self._config is not None:
            key = self._config.cluster_priority_annotation_key
            return sorted(pods, key=lambda pod: (-(whole_number(pod.pod.metadata.annotations.get(key)) or 0), pod.uid))
        return sorted(pods, key=lambda pod: (-score(booking, pod.request.amounts), pod.uid))


@dataclass(frozen=True, slots=True)
class PreAllocation:
    """A Reservation on a node. ``free``: what would be free there without all of ``candidates``, which are in the order
    in which they are tried; may be below 0. ``refused`` and ``scores`` are other plugins' results for them, by uid."""

    booking: Booking
    request: Amounts
    free: Amounts
    candidates: Sequence[PodInfo]
    refused: Mapping[str, Reason] = field(default_factory=dict)
    scores: Mapping[str, int] = field(default_factory=dict)

    def select(self, *, required: bool, prefer_none: bool) -> Selection:
        """The pods that the Reservation takes over. ``required``: it is not placed without one; ``prefer_none``: it
        takes over no pod where the free capacity of the node suffices."""
        if not required and prefer_none and not self._lacking(()):
            return Selection()
        found = self._several() if takes_several(self.booking.reservation) else self._one()
        if found.pods:
            return found
        if required:
            return Selection(reasons=found.reasons or (NONE_FITS,))
        of_node = tuple(reason for reason in found.reasons if reason.text.endswith(BY_NODE))
        return Selection(reasons=of_node or by_node(sorted(self._lacking(()))))

    def _one(self) -> Selection:
        """The single pod that makes the Reservation the fullest."""
        fitting: list[PodInfo] = []
        missing: set[str] = set()
        by_reservation: list[Reason] = []
        for pod in self._useful():
            lacking, reasons = self._lacking((pod,)), self._does_not_hold(pod, pod.request.amounts)
            missing.update(lacking)
            by_reservation += reasons
            if not lacking and not reasons:
                fitting.append(pod)
        if fitting:
            return Selection((min(fitting, key=lambda pod: (-self._score(pod), pod.uid)),))
        return Selection(reasons=(*by_node(sorted(missing)), *by_reservation))

    def _several(self) -> Selection:
        """As many as needed, each only if it fits into the Reservation beside the earlier ones."""
        chosen: list[PodInfo] = []
        held: dict[str, int] = {}
        lacking: list[str] = []
        by_reservation: list[Reason] = []
        for pod in self._useful():
            trial = {
                name: held.get(name, 0) + pod.request.amounts.get(name, 0) for name in {**held, **pod.request.amounts}
            }
            lacking = self._lacking((*chosen, pod))
            if reasons := self._does_not_hold(pod, trial):
                by_reservation += reasons
                continue
            held = trial
            chosen.append(pod)
            if not lacking:
                return Selection(tuple(chosen))
        return Selection(reasons=(*by_node(sorted(lacking)), *by_reservation))

    def _useful(self) -> list[PodInfo]:
        return [pod for pod in self.candidates if shares_a_resource(self.booking, pod.request.amounts)]

    def _score(self, pod: PodInfo) -> int:
        return score(self.booking, pod.request.amounts) + self.scores.get(pod.uid, 0)

    def _does_not_hold(self, pod: PodInfo, amounts: Amounts) -> tuple[Reason, ...]:
        """Why the Reservation cannot take over the pod, with which it would take over ``amounts``."""
        reasons = restricted_reasons(self.booking, amounts, detailed=False)
        return (*reasons, self.refused[pod.uid]) if pod.uid in self.refused else reasons

    def _lacking(self, gone: Sequence[PodInfo]) -> list[str]:
        """The resources of which the node has too little for the Reservation when only these candidates are removed."""
        uids = {pod.uid for pod in gone}
        staying = [pod.request.counted for pod in self.candidates if pod.uid not in uids]
        wanted = {name: amount for name, amount in self.request.items() if amount}
        return insufficient({**wanted, PODS: 1}, self.free, staying)


def node_score(booking: Booking, taken: Sequence[PodInfo]) -> int:
    """The node's score, 0..100: the fuller the Reservation gets by the pod that it takes over, the better; if it may
    take several, the fewer it takes over the better."""
    if takes_several(booking.reservation):
        return 100 // (1 + len(taken)) if taken else 100
    return score(booking, taken[0].request.amounts) if taken else 0


class PreAllocator:
    """Finds candidates and selects among them, in the present state of the cluster."""

    def __init__(
        self,
        cache: ReservationCache,
        view: ClusterView,
        config: PreAllocationConfig | None,
        plugin: HasPoints,
    ) -> None:
        """``plugin`` has the profile's other plugins that take part."""
        self._cache = cache
        self._view = view
        self._config = config
        self._plugin = plugin
        self._offered: dict[str, dict[int, list[PodInfo]]] = {}
        """The candidates on each row, by uid of the Reservation: filters see the rows without them."""

    def refusal(self, booking: Booking) -> Reason | None:
        """Why the Reservation cannot take over any pod, whatever the nodes; None if it can."""
        if booking.reservation.spec.allocate_policy != RESTRICTED:
            return _UNSUPPORTED
        if booking.owners is None:
            return _UNREADABLE_OWNERS
        has_mode = self._config is not None and self._config.enable_cluster_mode
        return _MODE_DISABLED if is_cluster_mode(booking.reservation) and not has_mode else None

    def nodes(self, booking: Booking) -> tuple[str, ...]:
        """The names of the nodes that have a candidate."""
        if self.refusal(booking) is not None:
            return ()
        candidates, rows = self._candidates(booking), self._view.columns.row_of.items()
        return tuple(name for name, row in rows if self._on(row, booking, candidates))

    def sorted_out(self, booking: Booking) -> tuple[list[str], list[Unmatched]]:
        """The node of each pod that the Reservation may take over where it may go, and the pods that do not match
        it."""
        matched: list[str] = []
        unmatched: list[Unmatched] = []
        if self.refusal(booking) is not None:
            return matched, unmatched
        candidates, may_go = self._candidates(booking), required_predicate(booking.pod)
        for name, row in self._view.columns.row_of.items():
            node = self._view.columns.nodes[row]
            if may_go is not None and (node is None or not may_go(node)):
                continue
            for pod in self._free(row, booking, candidates):
                why_not = self._mismatch(booking, pod, row)
                if why_not is None:
                    matched.append(name)
                else:
                    unmatched.append(Unmatched(pod.uid, name, *why_not))
        return matched, unmatched

    def adjustments(self, booking: Booking, rows: Iterable[int]) -> dict[int, Adjustment]:
        """The adjustments of those of ``rows`` with candidates for the Reservation's pod: these are removed."""
        offered = self._offered.setdefault(booking.uid, {})
        candidates = self._candidates(booking)
        offered.update((row, self._on(row, booking, candidates)) for row in rows)
        return {row: self._without(booking, found, row) for row in rows if (found := offered[row])}

    def _without(self, booking: Booking, pods: Sequence[PodInfo], row: int) -> Adjustment:
        points = self._plugin.points
        changes = (points.pre_allocation(self._view, booking, pods, row),) if points else ()
        return Adjustment(removed=tuple(pods), changes=changes)

    def forget(self, uid: str) -> None:
        """The Reservation is gone, or needs no node any more."""
        self._offered.pop(uid, None)

    def offered(self, booking: Booking, request: Amounts, row: int) -> Selection:
        """The result of pre-allocation on a row that is adjusted to be without the offered candidates."""
        return self._select(booking, request, row, self._offered.get(booking.uid, {}).get(row, []))

    def selected(self, booking: Booking, request: Amounts, row: int) -> Selection:
        """The result of pre-allocation on a row, whether it is adjusted to be without the candidates or not."""
        points = self._plugin.points
        if points.is_seen(row):
            return self.offered(booking, request, row)
        candidates = self._on(row, booking, self._candidates(booking))
        if not points or not candidates:
            return self._select(booking, request, row, candidates)
        with self._view.simulate() as journal:
            journal.adjust(row, self._without(booking, candidates, row))
            return self._select(booking, request, row, candidates)

    def _select(self, booking: Booking, request: Amounts, row: int, candidates: Sequence[PodInfo]) -> Selection:
        there, numbers = self._view.pods_on[row], self._view.columns.numbers[row]
        # The row may be seen with and without the candidates and with and without the reserve pod.
        counted = [each.request.counted for each in candidates if each.uid in there]
        own = {**request, PODS: 1} if booking.uid in there else {}
        free = {
            name: numbers.free(name) + own.get(name, 0) + sum(each.get(name, 0) for each in counted)
            for name in (*request, PODS)
        }
        prefer_none = self._config is not None and self._config.prefer_no_pre_allocated_pods
        attempt = PreAllocation(booking, request, free, candidates)
        if (points := self._plugin.points) and points.is_seen(row):
            attempt = _with_others(attempt, points, row, in_order=is_cluster_mode(booking.reservation))
        return attempt.select(required=is_required(booking.pod), prefer_none=prefer_none)

    def _candidates(self, booking: Booking) -> Candidates:
        return Candidates(booking.reservation, self._config)

    def _on(self, row: int, booking: Booking, candidates: Candidates) -> list[PodInfo]:
        free = self._free(row, booking, candidates)
        return candidates.sorted([pod for pod in free if self._mismatch(booking, pod, row) is None], booking)

    def _free(self, row: int, booking: Booking, candidates: Candidates) -> list[PodInfo]:
        """The candidates on the row that no other Reservation is about to take over, and whose requirements can be
        decoded."""
        claimed = self._cache.claimed
        return [
            pod
            for pod in self._view.pods_on[row].values()
            if candidates.include(pod.pod)
            and claimed.get(pod.uid, booking.uid) == booking.uid
            and not requirements_of(pod).problem
        ]

    def _mismatch(self, booking: Booking, pod: PodInfo, row: int) -> tuple[Mismatch, str] | None:
        """Why the pod would not take from the Reservation by its affinity and its exact amounts; None if it would."""
        # A Reservation that is closed to new owners may still take over pods.
        spec = msgspec.structs.replace(booking.reservation.spec, unschedulable=False)
        reservation = msgspec.structs.replace(booking.reservation, spec=spec)
        node = self._view.columns.nodes[row] if OMIT_NODE_LABELS not in self._view.gates else None
        return mismatch(reservation, pod.pod, requirements_of(pod), node, (booking.allocatable, pod.request.amounts))


def _with_others(attempt: PreAllocation, points: ReservationPoints, row: int, *, in_order: bool) -> PreAllocation:
    """The attempt with other plugins' results for the candidates. ``in_order``: their order does not depend on
    scores."""
    booking, pods = attempt.booking, attempt.candidates
    refused = {pod.uid: why for pod in pods if (why := points.refusal(pod, booking, row)) is not None}
    given = points.scores([(pod, booking) for pod in pods], row)
    scores = {pod.uid: other for pod, other in zip(pods, given, strict=True)}

    def rank(pod: PodInfo) -> tuple[int, str]:
        return -score(booking, pod.request.amounts) - scores[pod.uid], pod.uid

    ordered = pods if in_order else sorted(pods, key=rank)
    return replace(attempt, candidates=ordered, refused=refused, scores=scores)
