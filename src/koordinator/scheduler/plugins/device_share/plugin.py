"""DeviceShare: finds nodes with the devices that a pod requests, and allocates these to it by their minor numbers.

The devices of a node and the pods that hold them are in ``node_devices``, the selection of a pod's devices in
``allocator``, Reserve and what Reservations hold in ``binding``. This module has PreFilter, Filter and Score, and the
topology hints: the NUMA nodes whose devices would suffice for a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from prometheus_client.registry import Collector

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.api.device import GPU, Device
from koordinator.api.device_share import device_quantity
from koordinator.api.kinds import CONFIG_MAPS, DEVICES, NODE_RESOURCE_TOPOLOGIES, Kind
from koordinator.api.labels import GPU_ISOLATION_PROVIDER, GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR
from koordinator.api.meta import Object
from koordinator.base.instruments import Scraped
from koordinator.base.services import Service, ServiceError
from koordinator.model.numa_topology.hints import Hints, NUMATopologyHint, mask_of, masks_of, numa_nodes_of
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, Mask, NamedAspect
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    SKIP_FILTER,
    SKIP_SCORE,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    default_normalize,
)
from koordinator.scheduler.engine.framework_hooks import RESERVED, MetricsProvider, ServiceProvider
from koordinator.scheduler.engine.numa_topology import TOPOLOGY_HINTS, NUMATopologyHintProvider
from koordinator.scheduler.engine.plugin_forms import ReasonCodes, RowFilterPlugin, RowScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.device_share.allocation import (
    DeviceAllocations,
    of_reservation,
)
from koordinator.scheduler.plugins.device_share.allocator import NO_TEMPLATE, instances
from koordinator.scheduler.plugins.device_share.binding import DeviceBinding
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand, fits, requested_devices
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices, explained_devices, node_device_summary
from koordinator.scheduler.plugins.device_share.part import (
    CHANGED,
    of_affinity,
)
from koordinator.scheduler.plugins.reservation.matching import needs_reservation
from koordinator.scheduler.plugins.reservation.reserve_pod import stands_for_a_reservation

TOO_FEW = Reason("Insufficient NUMA Scoped Devices", unresolvable=True)
NOT_KNOWN = Reason("Designated Allocation Lack NUMA Node ID")
_SCORE = 500
"""The score of NUMA nodes with the best GPUs: higher than that of any CPUs."""


_LABELS: Final = (GPU_VENDOR, GPU_MODEL, GPU_PARTITION_POLICY, GPU_ISOLATION_PROVIDER)
"""Labels of nodes that matter."""
_READ: Final[tuple[AnyAspect, ...]] = (
    *(Aspect.NODE, CHANGED, RESERVED, TOPOLOGY_HINTS),
    NamedAspect.of_objects(NODE_RESOURCE_TOPOLOGIES),
)


class DeviceShare(
    PreFilterPlugin,
    RowFilterPlugin,
    RowScorePlugin,
    DeviceBinding,
    NUMATopologyHintProvider,
    Explainer,
    ServiceProvider,
    MetricsProvider,
):
    reads: ClassVar = _READ
    score_reads: ClassVar = _READ
    node_objects: ClassVar = (DEVICES,)
    watches: ClassVar = (*DeviceBinding.watches, CONFIG_MAPS)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._codes = ReasonCodes()

    # Events.

    def on_reset(self) -> None:
        self.nodes.clear()

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind != DEVICES.name or (obj is None and row not in self.nodes):
            return
        self.known_node(row).set_device(obj if isinstance(obj, Device) else None)
        self.changed(row)

    def on_node_removed(self, row: int, name: str) -> None:
        self.nodes.pop(row, None)

    # PreFilter and Filter.

    def class_key(self, pod: PodInfo) -> Hashable:
        own = self.own_key(pod)
        return None if own is None else (own, self.handle.numa_topology.key(pod))

    def concerns(self, pod: PodInfo) -> bool:
        return self.demand_of(pod) is not None

    def context_key(self, pod: PodInfo) -> Hashable:
        demand = self.demand_of(pod)
        templates = self.templates_for(demand) if isinstance(demand, DeviceDemand) else None
        return None if templates is None else tuple(sorted(templates.items()))

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        demand = self.demand_of(pod)
        if demand is None:
            return SKIP_FILTER
        if isinstance(demand, str):
            return PreFilterResult(skip=True, rejection=Reason(demand, unresolvable=True))
        templates = self.templates_for(demand)
        if templates is not None and not templates:
            return PreFilterResult(skip=True, rejection=NO_TEMPLATE)
        return PreFilterResult(demand)

    def filter_likeness(self, pod: PodInfo, state: Any) -> Callable[[int], Hashable]:
        return partial(self._likeness, pod)

    def _likeness(self, pod: PodInfo, row: int) -> Hashable:
        """Equal for rows that are alike for the pod; None where more than devices and labels matters."""
        if self.seen(row) is not None:
            return None
        admission = self.handle.numa_topology.admit(pod, row)
        if admission.reasons or admission.affinity is not None:
            return None
        labels, node = self.labels(row), self.nodes.get(row)
        return node.likeness if node is not None else "", *[labels.get(key) for key in _LABELS]

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        demand: DeviceDemand = state
        refusal = self.refusal_by_labels(demand, self.labels(row)) if demand.shares_gpu else None
        if refusal is None and row in self.nodes and not self._is_decided(pod, row):
            found = self.found(pod, demand, row)
            refusal = found if isinstance(found, Reason) else None
        return FEASIBLE if refusal is None else self._codes.of(refusal)

    def _is_decided(self, pod: PodInfo, row: int) -> bool:
        """Whether the NUMA topology manager has admitted the pod, for which devices were checked, or has rejected it,
        which another plugin reports."""
        if not self._aligns:
            return False
        admission = self.handle.numa_topology.admit(pod, row)
        return bool(admission.reasons) or admission.affinity is not None

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return self._codes.reasons(code)

    def events_to_register(self) -> frozenset[str]:
        nodes = {EventKind.NODE_ADD, EventKind.NODE_LABEL}
        return object_events(DEVICES, CONFIG_MAPS) | nodes | {EventKind.POD_DELETE, EventKind.POD_READABLE}

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """The release of a pod without devices frees none, and most pods need no template."""
        if event.kind.startswith(f"{CONFIG_MAPS.name}/"):
            demand = self.demand_of(pod)
            return isinstance(demand, DeviceDemand) and self.templates_for(demand) is not None
        if event.kind != EventKind.POD_DELETE or not isinstance(event.old, PodInfo):
            return True
        held = DEVICE_ALLOCATED in event.old.pod.metadata.annotations
        return held or bool(requested_devices(event.old))

    # Score.

    def pre_score(self, pod: PodInfo) -> Any:
        demand = self.demand_of(pod)
        return demand if isinstance(demand, DeviceDemand) else SKIP_SCORE

    def score_likeness(self, pod: PodInfo, state: Any) -> Callable[[int], Hashable]:
        return self.filter_likeness(pod, state)

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        demand: DeviceDemand = state
        if row not in self.nodes:
            return 0
        uids = self.taken_from(pod, row) if not stands_for_a_reservation(pod.pod) else ()
        return self.score_of(pod, demand, row, self.share(pod, demand, row, uids))

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=False)

    # The NUMA topology manager. A pod's devices depend on the Reservation that it takes from, which is not known here:
    # the hints hold if any of them suffices.

    def topology_key(self, pod: PodInfo) -> Hashable:
        return self.own_key(pod) if self._aligns else None

    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        demand = self.demand_of(pod)
        if not self._aligns or not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return {}
        node = self.nodes[row]
        if demand.designated:
            return _designated(demand, node)
        numa_nodes = node.numa_nodes
        found = {mask: self._in(pod, demand, row, mask) for mask in masks_of(numa_nodes)}
        if not found:
            return {}
        best = found[mask_of(numa_nodes)]
        if isinstance(best, Reason):
            return best
        feasible = {mask: each for mask, each in found.items() if not isinstance(each, Reason)}
        smallest = min(mask.bit_count() for mask in feasible)
        hints = [
            NUMATopologyHint(mask, mask.bit_count() == smallest, score=_SCORE if _gpus(each) == _gpus(best) else 0)
            for mask, each in feasible.items()
        ]
        wanted = instances(demand, node, leaves_secondary=True)
        return {} if isinstance(wanted, Reason) else dict.fromkeys(wanted, hints)

    def _in(self, pod: PodInfo, demand: DeviceDemand, row: int, mask: int) -> DeviceAllocations | Reason:
        """The pod's devices from these NUMA nodes."""
        node, numa_nodes = self.nodes[row], frozenset(numa_nodes_of(mask))
        wanted = instances(demand, node, leaves_secondary=True)
        if isinstance(wanted, Reason):
            return wanted
        for device_type, each in wanted.items():
            there = node.count_in(device_type, numa_nodes)
            if there and there < each.count:
                return TOO_FEW
        return self._from_any(pod, demand, row, numa_nodes)

    def _from_any(
        self, pod: PodInfo, demand: DeviceDemand, row: int, numa_nodes: frozenset[int] | None
    ) -> DeviceAllocations | Reason:
        """The pod's devices from one of its Reservations, or, if it need not use one, from the node."""
        seen, refusals = self.seen(row), list[Reason]()
        for uid in sorted(seen.matched) if seen is not None else ():
            found = self.found_in(pod, demand, row, (uid,), numa_nodes)
            if not isinstance(found, Reason):
                return found
            refusals.append(of_reservation(found))
        if refusals and needs_reservation(pod.pod):
            return refusals[0]
        return self.found_in(pod, demand, row, (), numa_nodes)

    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        demand = self.demand_of(pod)
        if not self._aligns or not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return ()
        found = self._from_any(pod, demand, row, of_affinity(affinity))
        return (found,) if isinstance(found, Reason) else ()

    # Explanations, services and metrics.

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        demand: DeviceDemand = state
        node = self.nodes.get(row)
        if node is None:
            return ()
        wanted = instances(demand, node)
        if isinstance(wanted, Reason):
            return ()
        share, found = self.share(pod, demand, row, self.taken_from(pod, row)), list[Lack]()
        for device_type, each in wanted.items():
            for closure in node.closed.of(device_type).values():
                found.append(Lack(f"{device_type}: what {closure.pod} holds cannot be known: {closure.fault}"))
            candidates = node.candidates(device_type, demand.hint(device_type), share)
            total = candidates.total
            fitting = [minor for minor, free in candidates.free.items() if fits(each.amounts, total[minor], free)]
            if len(fitting) < each.count:
                amounts = ", ".join(f"{name} {device_quantity(name, amount)}" for name, amount in each.amounts.items())
                text = f"{device_type}: needs {each.count} with {amounts}; {len(fitting)} of {len(total)} that"
                found.append(Lack(f"{text} may be used have so much left", (each.count - len(fitting)) / each.count))
        return found

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        return explained_devices(self.nodes[row]) if row in self.nodes else None

    def services(self) -> Mapping[str, Service]:
        return {"/nodeDeviceSummaries": self._summaries, "/nodeDeviceSummaries/:name": self._summary}

    def _summaries(self, parameters: Mapping[str, str]) -> Any:
        names = self.view.columns.names
        return {names[row]: node_device_summary(node) for row, node in self.nodes.items()}

    def _summary(self, parameters: Mapping[str, str]) -> Any:
        row = self.view.columns.row_of.get(parameters["name"], -1)
        if row not in self.nodes:
            raise ServiceError(404, f"cannot find node {parameters['name']}")
        return node_device_summary(self.nodes[row])

    def collectors(self) -> Sequence[Collector]:
        return (
            Scraped(
                "scheduler_secondary_device_not_well_planned",
                "[ALPHA] Whether the secondary devices of the node are not well planned",
                ("node_name",),
                lambda: [
                    ((self.view.columns.names[row],), 1) for row, node in self.nodes.items() if node.planned == "false"
                ],
            ),
        )

    def watch_scope(self, kind: Kind[Any]) -> tuple[str, str]:
        if kind is not CONFIG_MAPS:
            return super().watch_scope(kind)
        return self._config.config_map_namespace, f"metadata.name={self._config.config_map_name}"


def _designated(demand: DeviceDemand, node: NodeDevices) -> Hints | Reason:
    """One hint: the NUMA nodes of the devices that another scheduler has designated."""
    held = [(device_type, device.minor) for device_type, devices in demand.designated for device in devices]
    numa_nodes = {node.numa_node_of(*each) for each in held}
    if None in numa_nodes:
        return NOT_KNOWN
    hint = NUMATopologyHint(mask_of(each for each in numa_nodes if each is not None), preferred=True, score=_SCORE)
    return {device_type: [hint] for device_type, _ in demand.designated}


def _gpus(found: DeviceAllocations) -> frozenset[int]:
    return frozenset(each.minor for each in dict(found).get(GPU, ()))
