"""The points about Reservations for devices, and the score, which is that of a pod's share of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import (
    ReservationFilterPlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ReservationInfo
from koordinator.scheduler.plugins.device_share.allocation import ByType, DeviceAllocations, amounts_held
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand
from koordinator.scheduler.plugins.device_share.instances import instances
from koordinator.scheduler.plugins.device_share.node_devices import Share
from koordinator.scheduler.plugins.device_share.part import DeviceSharePart
from koordinator.scheduler.plugins.device_share.reservations import (
    ReservedDevices,
    Restored,
    minus,
    of_reservation,
    reserved_devices,
    share_of_reservation,
    total,
)
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod


class DeviceReservations(ReservationFilterPlugin, ReservationScorePlugin, DeviceSharePart):
    """Restores, filters and scores Reservations."""

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Restored:
        by_uid = {each.uid: found for each in matched if (found := self._reserved(each)) is not None}
        others = [found for each in unmatched if (found := self._reserved(each)) is not None]
        return Restored(by_uid, total([minus(each.held, each.left) for each in others]))

    def _reserved(self, reservation: ReservationInfo) -> ReservedDevices | None:
        held = self.held(reservation.uid)
        return reserved_devices(reservation, held, map(self.held, reservation.users)) if held else None

    def held(self, uid: str) -> DeviceAllocations:
        """What the pod, or the Reservation, holds by the ledger."""
        found: DeviceAllocations | None = self.view.allocations.of(self.name, uid)
        return found or ()

    def restore_pre_allocatable(
        self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int
    ) -> Mapping[str, ByType]:
        return {pod.uid: amounts_held(held) for pod in pods if (held := self.held(pod.uid))}

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        if row not in self.nodes:
            return None
        if self.restored_pre_allocatable(row) is not None:
            found = self._takes_over(pod, reservation, row)
        else:
            found = self._takes_from(pod, reservation, row)
        return of_reservation(found) if isinstance(found, Reason) else None

    def _takes_from(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> DeviceAllocations | Reason | None:
        """The pod's devices if it takes from the Reservation; None if devices do not matter for that."""
        restored: Restored | None = self.restored(row)
        demand = self.demand_of(pod)
        if restored is None or reservation.uid not in restored.matched or not isinstance(demand, DeviceDemand):
            return None
        share = share_of_reservation(restored, reservation.uid)
        share = replace(share, numa_nodes=self.numa_nodes(pod, row))
        return self.allocate_of(demand, row, share, leaves_secondary=True)

    def _takes_over(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> DeviceAllocations | Reason | None:
        """The Reservation's devices if it takes over the pod; None if devices do not matter for that."""
        stand_in = make_pod_info(reserve_pod(reservation.reservation))
        demand = self.demand_of(stand_in)
        if pod.uid not in (self.restored_pre_allocatable(row) or {}) or not isinstance(demand, DeviceDemand):
            return None
        numa_nodes = self.numa_nodes(stand_in, row)
        return self.taking_over(demand, row, frozenset({pod.uid}), numa_nodes, leaves_secondary=True)

    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        restored: Restored | None = self.restored(row)
        demand = self.demand_of(pod)
        if restored is None or reservation.uid not in restored.matched or not isinstance(demand, DeviceDemand):
            return 0
        if row not in self.nodes:
            return 0
        return self.score_of(pod, demand, row, share_of_reservation(restored, reservation.uid))

    def score_of(self, pod: PodInfo, demand: DeviceDemand, row: int, share: Share) -> int:
        """The sum over the types of devices, each scored by all of them together."""
        node = self.nodes[row]
        wanted = instances(demand, node, leaves_secondary=True)
        if isinstance(wanted, Reason):
            return 0
        share, score = replace(share, numa_nodes=self.numa_nodes(pod, row)), 0
        for device_type, each in wanted.items():
            candidates = node.candidates(device_type, demand.hint(device_type), share)
            request = {name: amount * each.count for name, amount in each.amounts.items()}
            score += self._scorer.score(request, _sum(candidates.total), _sum(candidates.free))
        return score


def _sum(minors: Mapping[int, Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(amounts) for amounts in minors.values()), Counter[str]())
