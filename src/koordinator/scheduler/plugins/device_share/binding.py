"""Reserve and PreBind: allocates devices, counts allocations, and writes the records on the pod and for device
plugins; and the points about Reservations, with the score, which is that of a pod's share of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode, encode
from koordinator.api.device import GPU
from koordinator.api.device_share import device_quantity
from koordinator.api.kinds import DEVICES, NODES
from koordinator.api.labels import GPU_MODEL, GPU_VENDOR
from koordinator.scheduler.engine.allocations import Unknown, unusable_annotation
from koordinator.scheduler.engine.binding_points import (
    ClusterWriter,
    CycleState,
    PodChanges,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import (
    ReservationFilterPlugin,
    ReservationScorePlugin,
    ResizePodPlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo, PodRequest
from koordinator.scheduler.engine.row_overlays import RowOverlays
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo
from koordinator.scheduler.features import DEVICE_PLUGIN_ADAPTION, RESIZE_POD
from koordinator.scheduler.plugins.device_share.allocation import (
    ByType,
    DeviceAllocations,
    ReservedDevices,
    Share,
    allocation_annotation,
    amounts_held,
    minus,
    of_reservation,
    read_allocations,
    share_of_reserved,
    summed,
    total,
)
from koordinator.scheduler.plugins.device_share.allocator import instances
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand, requested_types
from koordinator.scheduler.plugins.device_share.device_plugins import for_device_plugins, is_locked, lock_text
from koordinator.scheduler.plugins.device_share.part import DeviceSharePart
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    ResourcesAnnotation,
    stands_for_a_reservation,
)

_ALLOWED: Final = 'devices by type, as in {"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'


class DeviceBinding(ResizePodPlugin, ReservationFilterPlugin, ReservationScorePlugin, DeviceSharePart):
    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._locks: dict[tuple[str, str], str] = {}
        """(node, annotation) -> the lock that we have written there and the watch has not shown yet."""

    # Reservations.

    def reserved(
        self, uid: str, held: DeviceAllocations, owners: Sequence[DeviceAllocations], policy: str
    ) -> ReservedDevices:
        whole = amounts_held(held)
        return ReservedDevices(whole, minus(whole, total([amounts_held(each) for each in owners])), policy)

    def counted_twice(self, reservations: Sequence[tuple[DeviceAllocations, Sequence[DeviceAllocations]]]) -> ByType:
        found = [self.reserved("", held, owners, "") for held, owners in reservations]
        return total([minus(each.held, each.left) for each in found])

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        if row not in self.nodes:
            return None
        pod, uid = self.taker(pod, reservation, row)
        demand, seen = self.demand_of(pod), self.seen(row)
        if seen is None or uid not in seen.matched or not isinstance(demand, DeviceDemand):
            return None
        found = self.found_in(pod, demand, row, (uid,), self.numa_nodes(pod, row))
        return of_reservation(found) if isinstance(found, Reason) else None

    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        if row not in self.nodes:
            return 0
        demand, seen, uid = self.demand_of(pod), self.seen(row), reservation.uid
        if seen is None or uid not in seen.matched or not isinstance(demand, DeviceDemand):
            return 0
        return self.score_of(pod, demand, row, share_of_reserved(seen, (uid,)))

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
            score += self._scorer.score(request, summed(candidates.total.values()), summed(candidates.free.values()))
        return score

    # Reserve.

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> DeviceAllocations | Reason | None:
        demand, row = self.demand_of(pod), node.index
        if not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return None
        found = self.found(pod, demand, row, assumed=True)
        return found if isinstance(found, Reason) else self.nodes[row].with_ids(found)

    def recorded(self, pod: PodInfo) -> DeviceAllocations | Unknown | None:
        text = pod.pod.metadata.annotations.get(annotation_keys.DEVICE_ALLOCATED)
        try:
            return (read_allocations(text) or None) if text else None
        except DecodeError as error:
            if not requested_types(pod):
                return None
            return Unknown(unusable_annotation(annotation_keys.DEVICE_ALLOCATED, text or "", str(error), _ALLOWED))

    def resize_pod(self, pod: PodInfo, row: int) -> PodInfo | Reason | None:
        """With the gate ResizePod, a Reservation holds on the node the devices that it is allocated, in all the units
        in which these are counted."""
        demand = self.demand_of(pod)
        if RESIZE_POD not in self.view.gates or not stands_for_a_reservation(pod.pod) or row not in self.nodes:
            return None
        if not isinstance(demand, DeviceDemand):
            return None
        found = RowOverlays(self.handle.profile, pod).evaluate(row, lambda: self.found(pod, demand, row))
        if isinstance(found, Reason):
            return found
        amounts = {**pod.request.amounts, **_amounts(found)}
        # What plugins have derived from the pod stays valid: its demand is still the same.
        return PodInfo(
            pod.pod, PodRequest(amounts, pod.request.non_zero), pod.key, pod.uid, pod.priority, dict(pod.memo)
        )

    # PreBind.

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return self.demand_of(pod) is not None and (
            annotation_keys.DEVICE_ALLOCATED in pod.pod.metadata.annotations or bool(self.held(pod.uid))
        )

    def record(self, pod: PodInfo, annotations: Mapping[str, str], node: NodeReference, changes: PodChanges) -> None:
        """A record of an earlier attempt is removed."""
        held = self.held(pod.uid)
        if not held:
            if annotation_keys.DEVICE_ALLOCATED in annotations:
                changes.annotations[annotation_keys.DEVICE_ALLOCATED] = None
            return
        devices = self.nodes.get(node.index) if self.view.columns.is_current(node) else None
        if devices is None or devices.device is None:
            raise PluginError(f'{DEVICES.plural}.{DEVICES.group} "{node.name}" not found')
        changes.annotations[annotation_keys.DEVICE_ALLOCATED] = allocation_annotation(held)
        if stands_for_a_reservation(pod.pod) and RESIZE_POD in self.view.gates:
            key = annotation_keys.RESERVATION_RESIZE_ALLOCATABLE
            changes.annotations[key] = _resized(annotations.get(key, ""), held)

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        await super().pre_bind(state, pod, node, changes, writer)
        held = self.held(pod.uid)
        if not held or DEVICE_PLUGIN_ADAPTION not in self.view.gates:
            return
        labels = self.nodes[node.index].labels
        gpus, vendor_and_model = dict(held).get(GPU, ()), (labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, ""))
        found, lock = for_device_plugins(gpus, vendor_and_model, pod.pod.metadata.labels, node.name, writer.now())
        changes.annotations.update(found.annotations)
        changes.labels.update(found.labels)
        if lock:
            await self._lock(lock, vendor_and_model[0], pod, node, writer)

    async def _lock(
        self, annotation: str, vendor: str, pod: PodInfo, node: NodeReference, writer: ClusterWriter
    ) -> None:
        """Let no other pod of the vendor pass until the device plugin has served this one."""
        lock, now, found = (node.name, annotation), writer.now(), self.view.columns.nodes[node.index]
        there = found.metadata.annotations.get(annotation, "") if found is not None else ""
        if there == self._locks.get(lock):
            del self._locks[lock]
        keys = {each.key for each in self.view.pods_on[node.index].values()}
        for text in (there, self._locks.get(lock, "")):
            if text and is_locked(text, keys - {pod.key}, now):
                raise PluginError(
                    f'failed to adapt for GPU device plugin of vendor "{vendor}": failed to lock node: '
                    f'node "{node.name}" has been locked'
                )
        text = self._locks[lock] = lock_text(pod.key, now)
        try:
            await writer.patch(NODES, node.name, "", {"metadata": {"annotations": {annotation: text}}})
        except BaseException:
            self._locks.pop(lock, None)
            raise


def _amounts(allocations: DeviceAllocations) -> dict[str, int]:
    return summed(dict(device.resources) for _, devices in allocations for device in devices)


def _resized(text: str, held: DeviceAllocations) -> str:
    """The annotation ``reservation-resize-allocatable`` with the allocated devices. Raises DecodeError if it cannot be
    decoded."""
    before = decode(text, ResourcesAnnotation).resources if text else {}
    texts = {name: str(each) for name, each in before.items()}
    texts.update({name: str(device_quantity(name, each)) for name, each in _amounts(held).items()})
    return encode({"resources": dict(sorted(texts.items()))}).decode()
