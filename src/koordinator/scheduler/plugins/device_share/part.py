"""The state that all parts of the plugin share: the devices of the nodes, the demands of pods, and allocations; and the
templates that shares of some models of GPUs have to equal, fixed sizes that a ConfigMap defines."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Any, Final

from koordinator.api.codec import DecodeError, convert
from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.api.labels import (
    GPU_ISOLATION_PROVIDER,
    GPU_MODEL,
    GPU_VENDOR,
)
from koordinator.api.pod import ResourceList
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents
from koordinator.model.numa_topology.hints import NUMATopologyHint, numa_nodes_of
from koordinator.scheduler.engine.columns import NamedAspect
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.numa_topology import TOPOLOGY_HINTS
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.device_share.allocation import (
    WHATEVER_IS_FREE,
    ByType,
    DeviceAllocations,
    ReservedDevices,
    Share,
    amounts_held,
    includes,
    share_of_reserved,
    total,
)
from koordinator.scheduler.plugins.device_share.allocator import Allocator
from koordinator.scheduler.plugins.device_share.demand import (
    DeviceDemand,
    RequestError,
    demand_key,
    read_demand,
    requested_devices,
    with_both_memories,
)
from koordinator.scheduler.plugins.device_share.gpu_allocator import NO_GPUS, DeviceScorer
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices
from koordinator.scheduler.plugins.recorded_allocator import RecordedAllocator
from koordinator.scheduler.plugins.reservation.matching import ignores_reservations, needs_reservation
from koordinator.scheduler.plugins.reservation.reserve_pod import stands_for_a_reservation
from koordinator.scheduler.plugins.scheduling_hint import Hint, hint_of

NAME: Final = "DeviceShare"
CHANGED: Final = NamedAspect(NAME)
"""The devices of a node, and the pods that hold them."""
ISOLATION_MISSING: Final = Reason("GPUIsolationProviderHAMICore not found on the node", unresolvable=True)
_NO_LABELS: Final[Mapping[str, str]] = {}


class DeviceSharePart(RecordedAllocator[DeviceAllocations, NodeDevices, ReservedDevices, ByType]):
    """One part of the plugin; all have the same state."""

    name = NAME
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._changed = view.columns.aspect(CHANGED), view.columns.aspect(TOPOLOGY_HINTS)
        self._scorer = DeviceScorer(args.scoring_strategy)
        self._aligns = not args.disable_device_numa_topology_alignment
        self._unsupported = {(each.vendor, each.model) for each in args.gpu_share_unsupported_models}
        self._config = args.gpu_shared_resource_templates_config
        self._templates: tuple[object, Templates] = None, {}
        """The ConfigMap, and its decoded contents."""
        self._memo = f"{self.name}/demand"

    def known_node(self, row: int) -> NodeDevices:
        return self.nodes.setdefault(row, NodeDevices())

    def changed(self, row: int) -> None:
        super().changed(row)
        if self.nodes[row].is_empty:
            del self.nodes[row]
        for aspect in self._changed:
            self.view.columns.touch(row, aspect)

    # Demands.

    def demand_of(self, pod: PodInfo) -> DeviceDemand | str | None:
        """The pod's demand for devices; None for none, a text if it cannot be met on any node. Computed once for each
        pod."""
        if self._memo not in pod.memo:
            pod.memo[self._memo] = self._read(pod)
        found: DeviceDemand | str | None = pod.memo[self._memo]
        return found

    def _read(self, pod: PodInfo) -> DeviceDemand | str | None:
        requested = requested_devices(pod)
        if not requested:
            return None
        hint = hint_of(pod)
        if isinstance(hint, str):
            return hint
        try:
            return read_demand(pod.pod, dict(requested), is_designated=self._is_designated(hint))
        except RequestError as error:
            return str(error)

    def _is_designated(self, hint: Hint | str | None) -> bool:
        """Whether another scheduler has designated the devices of a pod with this hint."""
        return isinstance(hint, Hint) and self.name in hint.extensions

    def own_key(self, pod: PodInfo) -> Hashable:
        """All of the pod that matters to this plugin; None if it requests no device."""
        requested = requested_devices(pod)
        if not requested:
            return None
        hint = hint_of(pod)
        own = demand_key(pod.pod, requested, is_designated=self._is_designated(hint)), isinstance(hint, str) and hint
        taking = ignores_reservations(pod.pod), stands_for_a_reservation(pod.pod), needs_reservation(pod.pod)
        return own, *taking

    def templates_for(self, demand: DeviceDemand) -> dict[str, tuple[str, ...]] | None:
        """The templates that equal the demand, by model; None if it need not be one."""
        if not demand.shares_gpu or demand.gpu is None:
            return None
        amounts = demand.gpu.amounts
        if amounts.keys().isdisjoint(self._config.matched_resources):
            return None
        key = f"{self._config.config_map_namespace}/{self._config.config_map_name}"
        found = self.view.objects_of(CONFIG_MAPS).get(key)
        if found is not self._templates[0]:
            self._templates = found, templates_of(found)[0]
        return matching_templates(self._templates[1], amounts)

    # Allocation.

    def labels(self, row: int) -> Mapping[str, str]:
        node = self.view.columns.nodes[row]
        return node.metadata.labels if node is not None else _NO_LABELS

    def refusal_by_labels(self, demand: DeviceDemand, labels: Mapping[str, str]) -> Reason | None:
        """Why the pod may share no GPU of the node; None if it may."""
        if not demand.shares_gpu:
            return None
        if demand.isolation and labels.get(GPU_ISOLATION_PROVIDER) != demand.isolation:
            return ISOLATION_MISSING
        vendor, model = labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, "")
        if (vendor, model) in self._unsupported:
            return Reason(f'model "{model}" of vendor "{vendor}" does not support GPU Share', unresolvable=True)
        return None

    def allocator(self, demand: DeviceDemand, row: int) -> Allocator:
        """An allocator of the row's devices, of which some are known."""
        labels = self.labels(row)
        model = f"{labels.get(GPU_VENDOR, '')}-{labels.get(GPU_MODEL, '')}"
        return Allocator(demand, self.nodes[row], labels, self._scorer, self.templates_for(demand), model)

    def found(
        self, pod: PodInfo, demand: DeviceDemand, row: int, *, assumed: bool = False
    ) -> DeviceAllocations | Reason:
        """The pod's devices on a row with known devices. ``assumed``: the pod counts there already, so this is the
        final allocation."""
        uids, numa_nodes = self.taken_from(pod, row, assumed=assumed), self.numa_nodes(pod, row, reserving=assumed)
        return self.found_in(pod, demand, row, uids, numa_nodes, assumed=assumed)

    def taken_from(self, pod: PodInfo, row: int, *, assumed: bool = False) -> list[str]:
        """Those of ``nominated`` that hold devices."""
        seen = self.seen(row)
        if seen is None or not seen.matched:
            return []
        return [uid for uid in self.nominated(pod, row, assumed=assumed) if uid in seen.matched]

    def found_in(
        self,
        pod: PodInfo,
        demand: DeviceDemand,
        row: int,
        uids: Collection[str],
        numa_nodes: frozenset[int] | None,
        *,
        assumed: bool = False,
    ) -> DeviceAllocations | Reason:
        """The pod's devices if it takes from these of ``seen``, or, if these are none, from the node. A Reservation
        that takes over pods gets all of their devices, and maybe more."""
        share, seen = self.share(pod, demand, row, uids), self.seen(row)
        found = self._allocated(demand, row, replace(share, numa_nodes=numa_nodes, leaves_secondary=not assumed))
        if isinstance(found, Reason) or seen is None or not seen.takes_over:
            return found
        return found if includes(found, total([seen.matched[uid].held for uid in uids])) else NO_GPUS

    def _allocated(self, demand: DeviceDemand, row: int, share: Share) -> DeviceAllocations | Reason:
        """A pod's devices from its share: only preferred ones, those of its Reservation, if these suffice, wherever
        they are in the machine."""
        allocator, total = self.allocator(demand, row), self.nodes[row].total
        if share.preferred and not share.required:
            preferred = {
                device_type: {minor: total.get(device_type, {}).get(minor, {}) for minor in minors}
                for device_type, minors in share.preferred.items()
            }
            found = allocator.allocate(replace(share, required=preferred))
            if not isinstance(found, Reason):
                return found
        return allocator.allocate(share)

    def numa_nodes(self, pod: PodInfo, row: int, *, reserving: bool = False) -> frozenset[int] | None:
        """The NUMA nodes that the pod has to keep to; None for all."""
        if not self._aligns:
            return None
        return of_affinity(self.handle.numa_topology.affinity(pod, row, reserving=reserving))

    def share(self, pod: PodInfo, demand: DeviceDemand, row: int, uids: Collection[str]) -> Share:
        """What the pod may have of the row's devices, beside what is free, if it takes from these of ``seen``."""
        seen = self.seen(row)
        if seen is not None and uids:
            return share_of_reserved(seen, uids)
        share = WHATEVER_IS_FREE
        if seen is not None:
            # Where no pod is taken over, all candidates stay.
            ignoring = ignores_reservations(pod.pod) and not seen.takes_over
            kept = total([each.left for each in seen.matched.values()]) if not ignoring else {}
            share = Share(seen.counted_twice, kept, {}, {})
        return replace(share, required=self._designated(demand, row)) if demand.designated else share

    def _designated(self, demand: DeviceDemand, row: int) -> ByType:
        """What another scheduler has designated, with the memory of GPUs in both units."""
        total = self.nodes[row].total
        return {
            device_type: {
                minor: with_both_memories(amounts, total.get(device_type, {}).get(minor, {}))
                for minor, amounts in minors.items()
            }
            for device_type, minors in amounts_held(demand.designated).items()
        }


def of_affinity(affinity: NUMATopologyHint | None) -> frozenset[int] | None:
    """The NUMA nodes of an affinity; None for any."""
    return None if affinity is None or affinity.mask is None else frozenset(numa_nodes_of(affinity.mask))


_KEY: Final = "data.yaml"
Templates = dict[str, dict[str, Mapping[str, int]]]
"""``vendor-model`` -> name of the template -> amounts of a GPU by resource."""


def matching_templates(templates: Templates, amounts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """``vendor-model`` -> the names of the templates that equal these amounts of a GPU; models without any are
    omitted."""
    wanted = {name: amount for name, amount in amounts.items() if amount}
    found = {
        model: tuple([name for name, each in sorted(of_model.items()) if each == wanted])
        for model, of_model in templates.items()
    }
    return {model: names for model, names in found.items() if names}


def templates_of(config_map: ConfigMap | None) -> tuple[Templates, str]:
    """The templates, and the error in the ConfigMap, which may be missing."""
    if config_map is None:
        return {}, ""
    name = f"ConfigMap {config_map.metadata.key}: {_KEY}"
    try:
        documents = load_documents(config_map.data.get(_KEY, ""), name)
        if len(documents) > 1:
            return {}, str(ConfigurationError(name, f"{len(documents)} documents", "one"))
        found = convert(documents[0] if documents else {}, dict[str, dict[str, ResourceList]])
    except (DecodeError, ConfigurationError) as error:
        return {}, str(error)
    return {
        model: {name: {key: each.value for key, each in amounts.items() if each} for name, amounts in templates.items()}
        for model, templates in found.items()
    }, ""
