"""DeviceShare: finds nodes with the devices that a pod requests, and allocates these to it by their minor numbers.

What a node has and who holds it is in ``node_devices``, which devices a pod gets in ``allocator``, what of them it may
have where Reservations hold some in ``reservations``. Here are the extension points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.device import Device
from koordinator.api.device_share import device_quantity
from koordinator.api.kinds import DEVICES
from koordinator.api.labels import RESERVATION_IGNORED
from koordinator.api.meta import Object
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.binding_points import AllocatorPlugin, ClusterWriter, PodChanges, PreBindPlugin
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, Mask, NodeReference, Rows
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    SKIP_FILTER,
    SKIP_SCORE,
    FilterPlugin,
    PluginError,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    default_normalize,
)
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
    ReservationFilterPlugin,
    ReservationInfo,
    ReservationPreBindPlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.device_share.allocation import (
    ByType,
    DeviceAllocations,
    allocation_annotation,
    amounts_held,
    read_allocations,
)
from koordinator.scheduler.plugins.device_share.allocator import NO_TEMPLATE
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand, demand_key
from koordinator.scheduler.plugins.device_share.gpu_allocator import NO_GPUS
from koordinator.scheduler.plugins.device_share.gpu_memory import fits
from koordinator.scheduler.plugins.device_share.instances import instances
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices, Share
from koordinator.scheduler.plugins.device_share.part import CHANGED, DeviceSharePart
from koordinator.scheduler.plugins.device_share.reservations import (
    ReservedDevices,
    Restored,
    minus,
    of_reservation,
    reserved_devices,
    share_of_reservation,
    total,
)
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod, stands_for_a_reservation


class DeviceShare(
    PreFilterPlugin,
    FilterPlugin,
    ScorePlugin,
    AllocatorPlugin,
    PreBindPlugin,
    ReservationPreBindPlugin,
    ReservationFilterPlugin,
    ReservationScorePlugin,
    Explainer,
    DeviceSharePart,
):
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, CHANGED, RESERVED)
    score_reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, CHANGED, RESERVED)
    node_objects: ClassVar = (DEVICES,)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._reasons: list[Reason] = []
        self._codes: dict[Reason, int] = {}

    # Devices and who holds them.

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind != DEVICES.name or (obj is None and row not in self.nodes):
            return
        self.nodes.setdefault(row, NodeDevices()).set_device(obj if isinstance(obj, Device) else None)
        self.view.columns.touch(row, self._changed)

    def on_node_removed(self, row: int, name: str) -> None:
        self.nodes.pop(row, None)

    def on_allocated(self, row: int, pod: PodInfo, allocation: DeviceAllocations) -> None:
        self.nodes.setdefault(row, NodeDevices()).add(pod.uid, pod.key, allocation)
        self.view.columns.touch(row, self._changed)

    def on_released(self, row: int, pod: PodInfo, allocation: DeviceAllocations) -> None:
        self.nodes[row].remove(pod.uid, allocation)
        if self.nodes[row].is_empty:
            del self.nodes[row]
        self.view.columns.touch(row, self._changed)

    def restore(self, pod: PodInfo, node: NodeReference) -> DeviceAllocations | None:
        text = pod.pod.metadata.annotations.get(annotation_keys.DEVICE_ALLOCATED)
        if not text:
            return None
        try:
            return read_allocations(text) or None
        except DecodeError:
            # Nobody knows what it holds; what device plugins say of it is the kubelet's.
            return None

    # PreFilter and Filter.

    def class_key(self, pod: PodInfo) -> Hashable:
        requested = self.requested(pod)
        if not requested:
            return None
        labels = pod.pod.metadata.labels
        own = demand_key(pod.pod, requested, is_designated=self.is_designated(pod))
        return own, labels.get(RESERVATION_IGNORED), stands_for_a_reservation(pod.pod)

    def context_key(self, pod: PodInfo) -> Hashable:
        demand = self.demand_of(pod)
        return self.templates_of(demand) if isinstance(demand, DeviceDemand) else None

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        demand = self.demand_of(pod)
        if demand is None:
            return SKIP_FILTER
        if isinstance(demand, str):
            return PreFilterResult(skip=True, rejection=Reason(demand, unresolvable=True))
        templates = self.templates_of(demand)
        if templates is not None and not templates:
            return PreFilterResult(skip=True, rejection=NO_TEMPLATE)
        return PreFilterResult(demand)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array([self.filter_one(pod, state, row) for row in rows.tolist()], dtype=np.int64)

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        demand: DeviceDemand = state
        refusal = self.refusal_by_labels(demand, self.labels(row)) if demand.shares_gpu else None
        if refusal is None and row in self.nodes:
            found = self.found(pod, demand, row)
            refusal = found if isinstance(found, Reason) else None
        return FEASIBLE if refusal is None else self._code(refusal)

    def _code(self, reason: Reason) -> int:
        code = self._codes.get(reason)
        if code is None:
            self._reasons.append(reason)
            code = self._codes[reason] = len(self._reasons)
        return code

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (self._reasons[code - 1],)

    def events_to_register(self) -> frozenset[str]:
        nodes = {EventKind.NODE_ADD, EventKind.NODE_LABEL}
        return object_events(DEVICES) | nodes | {EventKind.POD_DELETE}

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Pods that hold no device leave none."""
        if event.kind != EventKind.POD_DELETE or not isinstance(event.old, PodInfo):
            return True
        held = annotation_keys.DEVICE_ALLOCATED in event.old.pod.metadata.annotations
        return held or bool(self.requested(event.old))

    # Score.

    def pre_score(self, pod: PodInfo) -> Any:
        demand = self.demand_of(pod)
        return demand if isinstance(demand, DeviceDemand) else SKIP_SCORE

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array([self.score_one(pod, state, row) for row in rows.tolist()], dtype=np.int64)

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        demand: DeviceDemand = state
        return self._score(demand, row, self.share(pod, demand, row)) if row in self.nodes else 0

    def _score(self, demand: DeviceDemand, row: int, share: Share) -> int:
        """The sum over the types of devices, each scored by what there is of all of them together."""
        node = self.nodes[row]
        wanted = instances(demand, node, leaves_secondary=True)
        if isinstance(wanted, Reason):
            return 0
        score = 0
        for device_type, each in wanted.items():
            candidates = node.candidates(device_type, demand.hint(device_type), share)
            request = {name: amount * each.count for name, amount in each.amounts.items()}
            score += self._scorer.score(request, _sum(candidates.total), _sum(candidates.free))
        return score

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=False)

    # Reservations.

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Restored:
        by_uid = {each.uid: found for each in matched if (found := self._reserved(each)) is not None}
        others = [found for each in unmatched if (found := self._reserved(each)) is not None]
        return Restored(by_uid, total([minus(each.held, each.left) for each in others]))

    def _reserved(self, reservation: ReservationInfo) -> ReservedDevices | None:
        held = self._held(reservation.uid)
        return reserved_devices(reservation, held, map(self._held, reservation.users)) if held else None

    def _held(self, uid: str) -> DeviceAllocations:
        found: DeviceAllocations | None = self.view.allocations.of(self.name, uid)
        return found or ()

    def restore_pre_allocatable(
        self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int
    ) -> Mapping[str, ByType]:
        return {pod.uid: amounts_held(held) for pod in pods if (held := self._held(pod.uid))}

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        if row not in self.nodes:
            return None
        held = self.restored_pre_allocatable(row)
        if held is not None:
            return self._refuses_to_take_over(pod, held, reservation, row)
        restored: Restored | None = self.restored(row)
        demand = self.demand_of(pod)
        if restored is None or reservation.uid not in restored.matched or not isinstance(demand, DeviceDemand):
            return None
        share = share_of_reservation(restored, reservation.uid)
        found = self.allocator(demand, row).allocate(share, leaves_secondary=True)
        return of_reservation(found) if isinstance(found, Reason) else None

    def _refuses_to_take_over(
        self, pod: PodInfo, held: Mapping[str, ByType], reservation: ReservationInfo, row: int
    ) -> Reason | None:
        demand = self.demand_of(make_pod_info(reserve_pod(reservation.reservation), self.view.columns.resources))
        if pod.uid not in held or not isinstance(demand, DeviceDemand):
            return None
        found = self.taking_over(self.allocator(demand, row), row, held, frozenset({pod.uid}), leaves_secondary=True)
        return of_reservation(found) if isinstance(found, Reason) else None

    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        restored: Restored | None = self.restored(row)
        demand = self.demand_of(pod)
        if restored is None or reservation.uid not in restored.matched or not isinstance(demand, DeviceDemand):
            return 0
        return self._score(demand, row, share_of_reservation(restored, reservation.uid)) if row in self.nodes else 0

    # Reserve and PreBind.

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> DeviceAllocations | Reason | None:
        demand, row = self.demand_of(pod), node.index
        if not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return None
        found = self.found(pod, demand, row, assumed=True)
        return found if isinstance(found, Reason) else self.nodes[row].with_ids(found)

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return self.demand_of(pod) is not None and (
            annotation_keys.DEVICE_ALLOCATED in pod.pod.metadata.annotations or bool(self._held(pod.uid))
        )

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """The record of what the pod holds; one of an earlier attempt is taken off."""
        self._record(pod.uid, node, changes)

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        recorded = annotation_keys.DEVICE_ALLOCATED in reservation.metadata.annotations
        if recorded or self._held(reservation.metadata.uid):
            self._record(reservation.metadata.uid, node, changes)

    def _record(self, uid: str, node: NodeReference, changes: PodChanges) -> None:
        held = self._held(uid)
        changes.annotations[annotation_keys.DEVICE_ALLOCATED] = allocation_annotation(held) if held else None
        devices = self.nodes.get(node.index) if self.view.columns.is_current(node) else None
        if held and (devices is None or devices.device is None):
            raise PluginError(f'{DEVICES.plural}.{DEVICES.group} "{node.name}" not found')

    # Explanations.

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        demand: DeviceDemand = state
        node = self.nodes.get(row)
        wanted = instances(demand, node) if node is not None else NO_GPUS
        if isinstance(wanted, Reason) or node is None:
            return ()
        share, found = self.share(pod, demand, row), list[Lack]()
        for device_type, each in wanted.items():
            candidates = node.candidates(device_type, demand.hint(device_type), share)
            fitting = [minor for minor, free in candidates.free.items() if fits(each.amounts, free)]
            if len(fitting) < each.count:
                amounts = ", ".join(f"{name} {device_quantity(name, amount)}" for name, amount in each.amounts.items())
                text = (
                    f"{device_type}: needs {each.count} with {amounts}; {len(fitting)} of {len(candidates.total)} that"
                )
                found.append(Lack(f"{text} may be used have so much left", (each.count - len(fitting)) / each.count))
        return found


def _sum(minors: Mapping[int, Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(amounts) for amounts in minors.values()), Counter[str]())
