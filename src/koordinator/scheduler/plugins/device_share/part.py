"""What all parts of the plugin work on: the devices of the nodes, what pods want of them, and what they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from koordinator.api.annotations import RESERVE_POD
from koordinator.api.labels import GPU_ISOLATION_PROVIDER, GPU_MODEL, GPU_VENDOR, RESERVATION_IGNORED
from koordinator.scheduler.engine.columns import NamedAspect
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import (
    ReservationNominator,
    ReservationPreAllocationRestorePlugin,
    ReservationRestorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.device_share.allocation import ByType, DeviceAllocations, amounts_held
from koordinator.scheduler.plugins.device_share.allocator import Allocator, Templates
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand, read_demand
from koordinator.scheduler.plugins.device_share.gpu_allocator import NO_GPUS
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices, Share
from koordinator.scheduler.plugins.device_share.requests import TYPE_OF, RequestError
from koordinator.scheduler.plugins.device_share.reservations import (
    Restored,
    includes,
    of_reservation,
    share_of_node,
    share_of_reservation,
    share_of_taking_over,
    total,
)
from koordinator.scheduler.plugins.device_share.scoring import DeviceScorer
from koordinator.scheduler.plugins.scheduling_hint import hint_of

NAME: Final = "DeviceShare"
CHANGED: Final = NamedAspect(NAME)
"""What there is of devices on a node, and who holds it."""
ISOLATION_MISSING: Final = Reason("GPUIsolationProviderHAMICore not found on the node", unresolvable=True)
_NO_LABELS: Final[Mapping[str, str]] = {}


class DeviceSharePart(ReservationRestorePlugin, ReservationPreAllocationRestorePlugin):
    """One part of the plugin; all have the same state."""

    name = NAME

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.nodes: dict[int, NodeDevices] = {}
        """By row; those of which anything is known."""
        self._changed = view.columns.aspect(CHANGED)
        self._scorer = DeviceScorer(args.scoring_strategy)
        self._unsupported = {(each.vendor, each.model) for each in args.gpu_share_unsupported_models}
        self._types: dict[int, str] = {}
        """Column -> type of device; "" for what is no device's."""
        self._memo = f"{self.name}/demand"

    # What pods want.

    def requested(self, pod: PodInfo) -> tuple[tuple[str, int], ...]:
        """The device resources that the pod requests, by name."""
        names, types = self.view.columns.resources, self._types
        found: list[tuple[str, int]] = []
        for column, amount in pod.request.amounts.items():
            of_type = types.get(column)
            if of_type is None:
                of_type = types[column] = TYPE_OF.get(names.name(column), "")
            if of_type:
                found.append((names.name(column), amount))
        return tuple(sorted(found))

    def demand_of(self, pod: PodInfo) -> DeviceDemand | str | None:
        """What the pod wants of devices; None for nothing, a text if it cannot be had anywhere. Found once a pod."""
        if self._memo not in pod.memo:
            pod.memo[self._memo] = self._read(pod)
        found: DeviceDemand | str | None = pod.memo[self._memo]
        return found

    def _read(self, pod: PodInfo) -> DeviceDemand | str | None:
        requested = self.requested(pod)
        if not requested:
            return None
        try:
            return read_demand(pod.pod, dict(requested), is_designated=self.is_designated(pod))
        except RequestError as error:
            return str(error)

    def is_designated(self, pod: PodInfo) -> bool:
        """Whether another scheduler has chosen the pod's devices."""
        hint = hint_of(pod)
        return hint is not None and self.name in hint.extensions

    def templates_of(self, demand: DeviceDemand) -> Templates | None:
        """The templates that are just what the demand is, by model; None if it need not be one."""
        return None

    # What pods get.

    def labels(self, row: int) -> Mapping[str, str]:
        node = self.view.columns.nodes[row]
        return node.metadata.labels if node is not None else _NO_LABELS

    def refusal_by_labels(self, demand: DeviceDemand, labels: Mapping[str, str]) -> Reason | None:
        """Why no GPU of the node may be shared by the pod."""
        if not demand.shares_gpu:
            return None
        if demand.isolation and labels.get(GPU_ISOLATION_PROVIDER) != demand.isolation:
            return ISOLATION_MISSING
        vendor, model = labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, "")
        if (vendor, model) in self._unsupported:
            return Reason(f'model "{model}" of vendor "{vendor}" does not support GPU Share', unresolvable=True)
        return None

    def allocator(self, demand: DeviceDemand, row: int) -> Allocator:
        """Allocates devices of the row, of which some are known."""
        labels = self.labels(row)
        model = f"{labels.get(GPU_VENDOR, '')}-{labels.get(GPU_MODEL, '')}"
        return Allocator(demand, self.nodes[row], labels, self._scorer, self.templates_of(demand), model)

    def found(
        self, pod: PodInfo, demand: DeviceDemand, row: int, *, assumed: bool = False
    ) -> DeviceAllocations | Reason:
        """What the pod gets on a row of which devices are known. ``assumed``: it counts there already, so this is for
        good."""
        allocator = self.allocator(demand, row)
        chosen = self._taken_over(pod, row)
        if chosen:
            held = self.restored_pre_allocatable(row) or {}
            return self.taking_over(allocator, row, held, chosen, leaves_secondary=not assumed)
        return allocator.allocate(self.share(pod, demand, row, assumed=assumed), leaves_secondary=not assumed)

    def share(self, pod: PodInfo, demand: DeviceDemand, row: int, *, assumed: bool = False) -> Share:
        """What of the row's devices the pod may have, beside what is free: by its Reservation, or by none."""
        restored: Restored | None = self.restored(row)
        if restored is not None:
            nominator = self.handle.plugin(ReservationNominator)
            nominated = nominator.nominated_reservation(pod, row, assumed=assumed) if nominator is not None else None
            if nominated is not None and nominated.uid in restored.matched:
                return share_of_reservation(restored, nominated.uid)
        held = self.restored_pre_allocatable(row)
        if held is not None:
            # Nobody is taken over: all candidates stay.
            share = share_of_taking_over(restored, held, ())
        else:
            ignores = pod.pod.metadata.labels.get(RESERVATION_IGNORED) == "true"
            share = share_of_node(restored, ignores_reservations=ignores)
        return replace(share, required=amounts_held(demand.designated)) if demand.designated else share

    def _taken_over(self, pod: PodInfo, row: int) -> frozenset[str]:
        """The uids of the pods that the Reservation takes over on the row for which ``pod`` stands."""
        if pod.pod.metadata.annotations.get(RESERVE_POD) != "true":
            return frozenset()
        nominator = self.handle.plugin(ReservationNominator)
        taken = nominator.nominated_pods(pod, row) if nominator is not None else ()
        return frozenset(each.uid for each in taken)

    def taking_over(
        self,
        allocator: Allocator,
        row: int,
        held: Mapping[str, ByType],
        chosen: frozenset[str],
        *,
        leaves_secondary: bool,
    ) -> DeviceAllocations | Reason:
        """What a Reservation gets that takes over the pods ``chosen``: their devices, all of them, and maybe more."""
        share = share_of_taking_over(self.restored(row), held, chosen)
        found = allocator.allocate(share, leaves_secondary=leaves_secondary)
        if isinstance(found, Reason):
            return found
        own = total([held[uid] for uid in chosen if uid in held])
        return found if includes(found, own) else of_reservation(NO_GPUS)
