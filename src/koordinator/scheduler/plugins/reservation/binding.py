"""Reserves and records what a pod takes from Reservations, and what a Reservation takes over."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import PODS
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.allocations import NOTHING, Nothing
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import ReservationNominator, ReservationPreBindPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.reservation.booking import Booking
from koordinator.scheduler.plugins.reservation.filtering import ReservationPart
from koordinator.scheduler.plugins.reservation.matching import requirements_of
from koordinator.scheduler.plugins.reservation.nomination import NONE_MATCHES
from koordinator.scheduler.plugins.reservation.pre_allocation import Selection
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    allocated_annotation,
    allocated_record,
    stands_for_a_reservation,
)


class TakeOver(NamedTuple):
    """The allocation of a reserve pod: the running pods that its Reservation takes over."""

    uid: str
    pods: tuple[PodInfo, ...]


class Use(NamedTuple):
    """The allocation of a pod: the Reservation that it takes from."""

    name: str
    uid: str


class ReservationBinding(
    AllocatorPlugin, ReservationNominator, PreBindPlugin, ReservationPreBindPlugin, ReservationPart
):
    """Nomination, Reserve and PreBind."""

    allocates_as_filtered: ClassVar = False

    def nominated_reservation(self, pod: PodInfo, row: int, *, assumed: bool = False) -> Booking | None:
        match, requirements = self._cache.match(pod), requirements_of(pod)
        if requirements.ignored or not self._points.is_seen(row):
            return None
        return self._nominator.nominated(pod, row, match, requirements, assumed=assumed)

    def nominated_pods(self, pod: PodInfo, row: int) -> tuple[PodInfo, ...]:
        return self._selected(pod, row).pods if self._points.is_seen(row) else ()

    def allocated_reservation(self, pod: PodInfo) -> Booking | None:
        held = self.view.allocations.of(self.name, pod.uid)
        return self._cache.bookings.get(held.uid) if isinstance(held, Use) else None

    def _selected(self, pod: PodInfo, row: int) -> Selection:
        booking = self._taking_over(pod) if stands_for_a_reservation(pod.pod) else None
        if booking is None:
            return Selection()
        return self._pre_allocator.selected(booking, self._nominator.checked(pod), row)

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Use | TakeOver | Reason | None:
        if stands_for_a_reservation(pod.pod):
            return self._take_over(pod, node.index)
        requirements, match = requirements_of(pod), self._cache.match(pod)
        if requirements.ignored:
            return None
        booking = self._nominator.nominated(pod, node.index, match, requirements, assumed=True) if match.uids else None
        if booking is None:
            return NONE_MATCHES if requirements.affinity is not None else None
        return Use(booking.name, booking.uid)

    def _take_over(self, pod: PodInfo, row: int) -> TakeOver | Reason | None:
        found = self._selected(pod, row)
        if found.reasons:
            return found.reasons[0]
        return TakeOver(pod.uid, found.pods) if found.pods else None

    def nominated_allocation(self, pod: PodInfo, node_name: str) -> Use | None:
        awaited = self._cache.awaited.get(pod.uid)
        if awaited is None or awaited.node_name != node_name:
            return None
        booking = self._cache.bookings.get(awaited.uid)
        return Use(booking.name, booking.uid) if booking is not None and booking.is_open else None

    def restore(self, pod: PodInfo, node: NodeReference) -> Use | Nothing | None:
        """Before a pod is bound its record is written, so that without one it takes from no Reservation. What a reserve
        pod takes over is recorded on those pods."""
        record = allocated_record(pod.pod)
        if record is not None:
            return Use(record.name, record.uid)
        return None if stands_for_a_reservation(pod.pod) else NOTHING

    def on_allocated(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            self._cache.claimed.update((each.uid, allocation.uid) for each in allocation.pods)
            return
        self._cache.use(allocation.uid, pod, row)

    def on_released(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            for each in allocation.pods:
                self._cache.claimed.pop(each.uid, None)
            return
        self._cache.unuse(allocation.uid, pod)

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        recorded = annotation_keys.RESERVATION_ALLOCATED in pod.pod.metadata.annotations
        return recorded or self.view.allocations.of(self.name, pod.uid) is not None

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """Write the record on the pod; one of an earlier attempt is removed."""
        use: Use | None = self.view.allocations.of(self.name, pod.uid)
        text = allocated_annotation(use.name, use.uid) if use is not None else None
        changes.annotations[annotation_keys.RESERVATION_ALLOCATED] = text

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        """Write the record on each pod that the Reservation takes over; remove it from those that an earlier attempt
        recorded."""
        found: TakeOver | None = self.view.allocations.of(self.name, reservation.metadata.uid)
        taken = {each.uid: each for each in found.pods} if found is not None else {}
        own = allocated_annotation(reservation.metadata.name, reservation.metadata.uid)
        stale = self._cache.users_of(reservation.metadata.uid)
        for uid, text in (*dict.fromkeys(stale.keys() - taken.keys()).items(), *dict.fromkeys(taken, own).items()):
            metadata = (taken.get(uid) or stale[uid]).pod.metadata
            annotations = {annotation_keys.RESERVATION_ALLOCATED: text}
            patch = {"metadata": {"uid": uid, "annotations": annotations}}
            await writer.patch(PODS, metadata.name, metadata.namespace, patch)
