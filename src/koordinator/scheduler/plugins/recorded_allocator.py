"""The base of the plugins that allocate what pods record in an annotation, such as CPUs and devices: restores the
records, and knows what Reservations hold.

A reserve pod holds the allocation of its Reservation. Where owners have taken some of it, that counts for both. A pod
that may take from Reservations sees the node without these; what their owners have taken stays taken. So what is left
of those that it does not take from looks free, and has to be kept, since it is for others. For all other pods a
Reservation and its owners both count, and what the owners have taken of it is restored once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.kinds import PODS, RESERVATIONS, Kind
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.allocations import NOTHING, NodeAllocations, Nothing, ToldFaults, Unknown
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework_hooks import (
    ReservationNominator,
    ReservationPreAllocationRestorePlugin,
    ReservationPreBindPlugin,
    ReservationRestorePlugin,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod

UNREADABLE_ALLOCATION: Final = "UnreadableAllocation"


A = TypeVar("A")
N = TypeVar("N", bound=NodeAllocations[Any])
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Restored(Generic[R, T]):
    """What is restored on a row in its present state."""

    matched: Mapping[str, R]
    """By uid what Reservations hold that the pod may take from, or the running pods that a Reservation may take over;
    without those that hold nothing. It is not counted on the row."""
    counted_twice: T
    """What other Reservations hold, and their owners, too."""
    takes_over: bool = False
    """Whether ``matched`` are running pods."""


class RecordedAllocator(
    AllocatorPlugin,
    PreBindPlugin,
    ReservationRestorePlugin,
    ReservationPreAllocationRestorePlugin,
    ReservationPreBindPlugin,
    Generic[A, N, R, T],
):
    """An allocator whose allocations are recorded in an annotation of the pods, and counted by ``NodeAllocations``. The
    author of a record that cannot be used is told once, whichever profile reads it."""

    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.nodes: dict[int, N] = {}
        """By row; only nodes of which something is known."""
        self._told = view.share(f"{self.name}/{UNREADABLE_ALLOCATION}", ToldFaults)

    @abstractmethod
    def recorded(self, pod: PodInfo) -> A | Unknown | None:
        """What the pod holds by its annotation; None for nothing."""

    @abstractmethod
    def record(self, pod: PodInfo, annotations: Mapping[str, str], node: NodeReference, changes: PodChanges) -> None:
        """Add what the pod holds to ``changes``. ``annotations`` are the pod's, or those of the Reservation that it
        stands for."""

    @abstractmethod
    def known_node(self, row: int) -> N:
        """The node of ``nodes``, which is added if it is not there."""

    def changed(self, row: int) -> None:
        """What the node has, or pods hold of it, has changed: tell the authors of the records because of which anything
        is closed there. Plugins touch the row, too."""
        pods = self.view.pods_on.get(row, {})
        for uid, closure in self.nodes[row].closed.of_holders.items() if self.nodes[row].closed else ():
            if uid in pods:
                self._tell(pods[uid], closure.fault)

    def held(self, uid: str) -> A | None:
        """What the pod, or the Reservation, holds by the ledger."""
        found: A | None = self.view.allocations.of(self.name, uid)
        return found

    def restore(self, pod: PodInfo, node: NodeReference) -> A | Nothing | Unknown | None:
        found, there = self.recorded(pod), self.nodes.get(node.index)
        if isinstance(found, Unknown):
            self._tell(pod, found.fault)
        elif there is not None and there.closed and pod.uid in there.closed.of_holders:
            if self.view.allocations.entry(self.name, pod.uid) != found:
                # Whoever waits for what the pod has closed is tried again.
                self._told.forget(pod.uid)
                self.handle.announce(ClusterEvent(EventKind.POD_READABLE, pod, pod))
            return NOTHING if found is None else found
        return found

    def on_allocated(self, row: int, pod: PodInfo, allocation: A | Unknown) -> None:
        self.known_node(row).hold(pod, allocation)
        self.changed(row)

    def on_released(self, row: int, pod: PodInfo, allocation: A | Unknown) -> None:
        if row in self.nodes:
            self.nodes[row].release(pod.uid)
            self.changed(row)

    def _tell(self, pod: PodInfo, fault: str) -> None:
        """Record an event about the pod, or about the Reservation that it stands for."""
        if not self._told.is_news(pod.uid, fault):
            return
        kind: Kind[Any] = PODS
        obj: Any = pod.pod
        if pod.uid in self.view.pseudo_pods:
            name = pod.pod.metadata.annotations.get(RESERVATION_NAME, "")
            kind, obj = RESERVATIONS, self.view.objects_of(RESERVATIONS).get(name)
        if obj is not None:
            self.handle.object_event(kind, obj, "Warning", UNREADABLE_ALLOCATION, "Scheduling", fault)

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        self.record(pod, pod.pod.metadata.annotations, node, changes)

    # Reservations.

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        pod = make_pod_info(reserve_pod(reservation))
        self.record(pod, reservation.metadata.annotations, node, changes)

    @abstractmethod
    def reserved(self, uid: str, held: A, owners: Sequence[A], policy: str) -> R:
        """What is left of what a Reservation or a running pod holds, of which ``owners`` have taken some. ``policy`` is
        the Reservation's allocate policy."""

    @abstractmethod
    def counted_twice(self, reservations: Sequence[tuple[A, Sequence[A]]]) -> T:
        """What Reservations hold, and their owners, too; of pairs of both."""

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Restored[R, T]:
        found = {
            each.uid: self.reserved(each.uid, held, self._owners(each, row), each.reservation.spec.allocate_policy)
            for each in matched
            if (held := self.held(each.uid))
        }
        return Restored(found, self._counted_twice(unmatched, row))

    def restore_pre_allocatable(
        self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int
    ) -> Restored[R, T]:
        policy = reservation.reservation.spec.allocate_policy
        found = {pod.uid: self.reserved(pod.uid, held, (), policy) for pod in pods if (held := self.held(pod.uid))}
        return Restored(found, self._counted_twice(self.view.reservations_on(row), row), takes_over=True)

    def _counted_twice(self, reservations: Sequence[ReservationInfo], row: int) -> T:
        held = [(each, self.held(each.uid)) for each in reservations]
        return self.counted_twice([(all_, self._owners(each, row)) for each, all_ in held if all_])

    def _owners(self, reservation: ReservationInfo, row: int) -> list[A]:
        """The allocations of the pods that take from it and count on the row at present."""
        there = self.view.pods_on[row]
        return [held for uid in reservation.users if uid in there and (held := self.held(uid))]

    def seen(self, row: int) -> Restored[R, T] | None:
        """What is restored on the row for the pod that sees it; None where no pod takes from any Reservation."""
        taking_over: Restored[R, T] | None = self.restored_pre_allocatable(row)
        return taking_over if taking_over is not None else self.restored(row)

    def nominated(self, pod: PodInfo, row: int, *, assumed: bool = False) -> list[str]:
        """The uids of the Reservation that the pod takes from on the row, or of the running pods that it takes over.
        ``assumed``: the pod counts on the row already."""
        nominator = self.handle.plugin(ReservationNominator)
        if nominator is None:
            return []
        if self.restored_pre_allocatable(row) is not None:
            return [each.uid for each in nominator.nominated_pods(pod, row)]
        reservation = nominator.nominated_reservation(pod, row, assumed=assumed)
        return [reservation.uid] if reservation is not None else []

    def taker(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> tuple[PodInfo, str]:
        """The pod that would get an allocation if ``pod`` takes from the Reservation or is taken over by it, and the
        uid of what it takes from."""
        if self.restored_pre_allocatable(row) is not None:
            return make_pod_info(reserve_pod(reservation.reservation)), pod.uid
        return pod, reservation.uid
