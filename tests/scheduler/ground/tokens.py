"""A plugin that gives tokens of some colours, as DeviceShare gives shares of devices, and holds them in Reservations.

It goes through the public interface alone, as a plugin of another package does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from koordinator.api.labels import RESERVATION_IGNORED
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import Ints, NamedAspect, NodeReference, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
    ReservationFilterPlugin,
    ReservationNominator,
    ReservationPreAllocationRestorePlugin,
    ReservationPreBindPlugin,
    ReservationRestorePlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo

ANNOTATION = "example.com/tokens"
ON_EACH_NODE = Counter(red=4, blue=2)
NONE_FREE = Reason("node(s) didn't have free tokens")
TOO_FEW = Reason("Reservation(s) Insufficient tokens")
TOO_MANY = Reason("Reservation(s) would hold fewer tokens than the pod")
_CHANGED = NamedAspect("example.com/Tokens")
Held = tuple[tuple[str, int], ...]
"""Colour and number, by colour."""


class Given(NamedTuple):
    """What is restored on a node."""

    left: Mapping[str, Counter[str]]
    """By uid of a Reservation, what its owners may still take."""
    twice: Counter[str]
    """What counts both for a Reservation and for the pods that have taken it."""


def wanted(pod: PodInfo) -> int:
    return int(pod.pod.metadata.labels.get("tokens", "0"))


def taken(amounts: Counter[str], number: int) -> Held | None:
    """So many of ``amounts``, by colour; None if there are not enough."""
    chosen: list[tuple[str, int]] = []
    for colour in sorted(amounts):
        count = min(number, max(0, amounts[colour]))
        number -= count
        chosen += [(colour, count)] if count else []
    return tuple(chosen) if not number else None


class Tokens(
    FilterPlugin,
    AllocatorPlugin,
    PreBindPlugin,
    ReservationPreBindPlugin,
    ReservationRestorePlugin,
    ReservationPreAllocationRestorePlugin,
    ReservationFilterPlugin,
    ReservationScorePlugin,
):
    """An owner takes all its tokens from one Reservation, or none; a Reservation keeps those of the pods that it takes
    over. Of several Reservations the one with the most tokens left is the best, of several pods the one that holds the
    most."""

    name = "Tokens"
    handle: Handle
    reads = (_CHANGED, RESERVED)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.used: dict[int, Counter[str]] = {}
        self.filtered_rows = 0
        self.calls: Counter[str] = Counter()
        self._changed = view.columns.aspect(_CHANGED)

    def class_key(self, pod: PodInfo) -> Hashable:
        return wanted(pod), RESERVATION_IGNORED in pod.pod.metadata.labels

    # What there is, as the node is seen just now.

    def held(self, uid: str) -> Counter[str]:
        return Counter(dict(self.view.allocations.of(self.name, uid) or ()))

    def free(self, row: int) -> Counter[str]:
        """Whether or not it is kept for the owners of Reservations."""
        amounts = ON_EACH_NODE.copy()
        amounts.subtract(self.used.get(row, {}))
        given: Given | None = self.restored(row)
        amounts.update(given.twice if given is not None else {})
        return amounts

    def free_beside_reservations(self, pod: PodInfo, row: int) -> Counter[str]:
        amounts = self.free(row)
        given: Given | None = self.restored(row)
        if given is not None and RESERVATION_IGNORED not in pod.pod.metadata.labels:
            for left in given.left.values():
                amounts.subtract(left)
        return amounts

    def free_to_take_over(self, pod: PodInfo, row: int, chosen: Sequence[PodInfo]) -> Counter[str]:
        """For a Reservation that takes over ``chosen``, of which the row is seen without any of the candidates."""
        amounts = self.free(row)
        stays: Mapping[str, Counter[str]] = self.restored_pre_allocatable(row) or {}
        uids = {each.uid for each in chosen}
        for uid, held in stays.items():
            if uid not in uids:
                amounts.subtract(held)
        return amounts

    # Reservations.

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Given:
        self.calls["matched"] += bool(matched)
        self.calls["unmatched"] += bool(unmatched)
        left, twice = {}, Counter[str]()
        for each in matched:
            left[each.uid] = self.held(each.uid) - self._taken_of(each)
        for each in unmatched:
            twice += self.held(each.uid) & self._taken_of(each)
        return Given(left, twice)

    def _taken_of(self, reservation: ReservationInfo) -> Counter[str]:
        return sum((self.held(uid) for uid in reservation.users), Counter[str]())

    def restore_pre_allocatable(
        self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int
    ) -> Mapping[str, Counter[str]]:
        self.calls["pre-allocatable"] += 1
        return {pod.uid: self.held(pod.uid) for pod in pods}

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        by_pod = self.restored_pre_allocatable(row)
        if by_pod is not None:
            template = reservation.reservation.spec.template
            assert template is not None
            number = int(template.metadata.labels.get("tokens", "0"))
            return TOO_MANY if by_pod[pod.uid].total() > number else None
        given: Given | None = self.restored(row)
        assert given is not None, "the row is seen as in Filter"
        return TOO_FEW if given.left[reservation.uid].total() < wanted(pod) else None

    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        by_pod = self.restored_pre_allocatable(row)
        if by_pod is not None:
            return int(by_pod[pod.uid].total())
        given: Given | None = self.restored(row)
        assert given is not None, "the row is seen as in Filter"
        return given.left[reservation.uid].total() if wanted(pod) else 0

    # Filter and Reserve.

    def found(self, pod: PodInfo, row: int, *, assumed: bool = False) -> Held | None:
        number, nominator = wanted(pod), self.handle.plugin(ReservationNominator)
        assert nominator is not None
        reservation = nominator.nominated_reservation(pod, row, assumed=assumed)
        if reservation is not None:
            given: Given | None = self.restored(row)
            assert given is not None
            return taken(given.left[reservation.uid], number)
        chosen = nominator.nominated_pods(pod, row)
        by_pod: Mapping[str, Counter[str]] | None = self.restored_pre_allocatable(row)
        if by_pod is None:
            return taken(self.free_beside_reservations(pod, row), number)
        kept = sum((by_pod[each.uid] for each in chosen), Counter[str]())
        more = taken(self.free_to_take_over(pod, row, chosen) - kept, number - kept.total())
        return tuple(sorted((kept + Counter(dict(more))).items())) if more is not None else None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        self.filtered_rows += rows.shape[0]
        if not wanted(pod):
            return np.zeros(rows.shape[0], dtype=np.int64)
        return np.array([self.found(pod, row) is None for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (NONE_FREE,)

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Held | Reason | None:
        if not wanted(pod):
            return None
        return self.found(pod, node.index, assumed=True) or Reason("tokens were taken meanwhile")

    def restore(self, pod: PodInfo, node: NodeReference) -> Held | None:
        text = pod.pod.metadata.annotations.get(ANNOTATION)
        return tuple(sorted(json.loads(text).items())) if text else None

    def on_allocated(self, row: int, pod: PodInfo, allocation: Held) -> None:
        self.used.setdefault(row, Counter()).update(dict(allocation))
        self.view.columns.touch(row, self._changed)

    def on_released(self, row: int, pod: PodInfo, allocation: Held) -> None:
        self.used[row].subtract(dict(allocation))
        self.view.columns.touch(row, self._changed)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE, EventKind.NODE_ADD})

    # PreBind.

    def _written(self, uid: str, changes: PodChanges) -> None:
        held: Held | None = self.view.allocations.of(self.name, uid)
        if held is not None:
            changes.annotations[ANNOTATION] = json.dumps(dict(held))

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        self._written(pod.uid, changes)

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        self._written(reservation.metadata.uid, changes)
