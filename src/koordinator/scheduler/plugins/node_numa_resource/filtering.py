"""PreFilter, Filter, and the hints for the NUMA topology manager: the nodes that can provide the NUMA-aligned resources
and bound CPUs of a pod.

Most pods have no such requirements, and most nodes apply no such policy to them: where no node does, the plugin is
skipped. Nodes whose only policy is CPU amplification are evaluated together; the others one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.resource_names import CPU
from koordinator.model.cpu_allocation.accumulator import NOT_ENOUGH
from koordinator.model.cpu_allocation.topology import BindPolicy
from koordinator.model.numa_topology.hints import (
    Hints,
    NUMATopologyHint,
    NUMATopologyPolicy,
    mask_of,
    masks_of_size,
    numa_nodes_of,
    sizes_to_try,
)
from koordinator.scheduler.engine.allocations import closed_by
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.columns import AnyAspect, Ints, Rows
from koordinator.scheduler.engine.framework import FEASIBLE, SKIP_FILTER, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.framework_hooks import ReservationFilterPlugin
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.numa_topology import NUMAAlignment, NUMATopologyPolicySource
from koordinator.scheduler.engine.plugin_forms import ElementwiseFilterPlugin, ReasonCodes, SomeRows, each_row
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU as CPU_INDEX
from koordinator.scheduler.engine.view import ReservationInfo
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    MILLI,
    Amounts,
    PodAllocation,
    amplified,
)
from koordinator.scheduler.plugins.node_numa_resource.node_state import CPUS, NodeState, SpecialRows, short_of_cpu
from koordinator.scheduler.plugins.node_numa_resource.pod_requirements import (
    NOT_INTEGER,
    PodRequirements,
)
from koordinator.scheduler.plugins.node_numa_resource.reserved import READS, UNKNOWN_NODE, Choice, NUMAPart
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer
from koordinator.scheduler.plugins.reservation.matching import ignores_reservations

FEW: Final = 4
"""So many NUMA nodes have 15 sets; eight have 255."""


def hints_of(
    choice: Choice, policy: NUMATopologyPolicy, scorer: NUMAScorer, *, ignoring: bool, narrow: bool = False
) -> Hints:
    """The hints of a pod on a node that has zones. ``ignoring`` as in Choice.from_any. ``narrow``: the smallest sets
    that suffice for all resources are enough, since no other plugin has hints and no pods have to be kept apart."""
    zones, available = choice.capacity.zones.amounts, choice.unreserved.available
    names = [name for name in choice.request.amounts if any(name in zone for zone in zones.values())]
    # By resource the NUMA nodes that have nothing of it, and the sets that suffice with their scores.
    lacking = {name: mask_of(node for node in zones if not available.get(node, {}).get(name)) for name in names}
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    requested, count, is_single = amplified_requests(choice), len(zones), policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    # If no single NUMA node suffices, the reasons require larger sets; the set of all of them is enough for that.
    for size in (1, count) if narrow and is_single and count > 1 else sizes_to_try(count):
        sufficient = [
            (mask, _score_of(choice, scorer, requested, numa_nodes_of(mask)))
            for mask in masks_of_size(choice.capacity.zones.numa_nodes, size)
            if choice.fits(mask, ignoring=ignoring)
        ]
        for name, masks in found.items():
            masks += [each for each in sufficient if not each[0] & lacking[name]]
        if narrow and names and any(not any(mask & lacking[name] for name in names) for mask, _ in sufficient):
            # Some set of this size suffices for all resources.
            break
    return {name: _hints(masks, policy) for name, masks in found.items()}


def _score_of(choice: Choice, scorer: NUMAScorer, requested: Mapping[str, int], nodes: Sequence[int]) -> int:
    """The score of a set of NUMA nodes."""
    total, left = _sum(choice.capacity.zones.amounts, nodes), _sum(choice.unreserved.available, nodes)
    used = {name: max(0, amount - left.get(name, 0)) for name, amount in total.items()}
    return scorer.score(used, total, requested)


def amplified_requests(choice: Choice) -> Mapping[str, int]:
    """The requests as the node counts them."""
    amounts, ratio = choice.request.amounts, choice.capacity.zones.cpu_ratio
    if not choice.request.cpus or ratio <= 1:
        return amounts
    return {**amounts, CPU: amplified(amounts[CPU], ratio)}


def _sum(amounts: Amounts, nodes: Sequence[int]) -> Mapping[str, int]:
    if len(nodes) == 1:
        return amounts.get(nodes[0], {})
    total: dict[str, int] = {}
    for node in nodes:
        for name, amount in amounts.get(node, {}).items():
            total[name] = total.get(name, 0) + amount
    return total


def _hints(found: list[tuple[int, int]], policy: NUMATopologyPolicy) -> tuple[NUMATopologyHint, ...]:
    """Under Restricted every set is preferred, as long as it is the same for all resources; otherwise the smallest."""
    smallest = min([mask.bit_count() for mask, _ in found], default=0)
    any_size = policy is NUMATopologyPolicy.RESTRICTED
    return tuple(
        [NUMATopologyHint(mask, any_size or mask.bit_count() == smallest, score=score) for mask, score in found]
    )


INVALID_TOPOLOGY: Final = Reason("node(s) invalid CPU Topology", unresolvable=True)
_INVALID_RATIO: Final = Reason("node(s) invalid CPU amplification ratio", unresolvable=True)
_SHORT_OF_AMPLIFIED: Final = Reason("Insufficient amplified cpu")
_CONFLICT: Final = Reason("node(s) cpu bind policy conflicts with pod's required cpu bind policy", unresolvable=True)
_NOT_MULTIPLE: Final = Reason("node(s) requested cpus not multiple cpus per core", unresolvable=True)
_NOT_ENOUGH: Final = Reason(NOT_ENOUGH)
CLOSED: Final = Reason("node(s) had CPUs held by a pod whose allocation record cannot be read")
"""A pod that leaves the node may open it."""
_NO_ZONES: Final = Reason("node(s) missing NUMA resources", unresolvable=True)
_NO_HINTS: Final = Reason("node(s) Insufficient NUMA Node resources")
_INCOMPATIBLE: Final = Reason("reservation NUMA scope is incompatible with the best topology hint")


class NUMAFilter(
    PreFilterPlugin, ElementwiseFilterPlugin, NUMATopologyPolicySource, ReservationFilterPlugin, Explainer, NUMAPart
):
    """The points that decide where a pod may go."""

    handle: Handle
    reads: ClassVar[tuple[AnyAspect, ...]] = READS

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self._codes = ReasonCodes()
        self._special = SpecialRows()
        numa = args.numa_scoring_strategy
        self._numa_scorer = NUMAScorer(numa.resources, most=self._packs)
        self._short_of_amplified = self._codes.of(_SHORT_OF_AMPLIFIED)

    # PreFilter.

    def class_key(self, pod: PodInfo) -> Hashable:
        return self._requirements.of(pod).key, self.handle.numa_topology.key(pod)

    def context_key(self, pod: PodInfo) -> Hashable:
        """Whether any node applies a policy to pods without requirements of their own."""
        return bool(self._special)

    def topology_key(self, pod: PodInfo) -> Hashable:
        return self._requirements.of(pod).key

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        requirements = self._requirements.of(pod)
        if not requirements.amounts or (requirements.is_plain and not self._special):
            return SKIP_FILTER
        return PreFilterResult(requirements, rejection=requirements.problem)

    # Filter.

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        requirements: PodRequirements = state
        if isinstance(rows, int):
            return self._code(pod, requirements, rows)
        of_one = partial(self._code, pod, requirements)
        if not requirements.is_plain:
            return each_row(rows, of_one)
        short = self._special.short_of_cpu(self.view.columns, rows, requirements.cpu)
        codes, alone = short * self._short_of_amplified, self._special.among(rows)
        codes[alone] = each_row(rows[alone], of_one)
        return codes

    def batch_filter(self) -> BatchKernel:
        return _BatchFilter(self)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return self._codes.reasons(code)

    def _code(self, pod: PodInfo, requirements: PodRequirements, row: int) -> int:
        node = self.nodes.get(row, UNKNOWN_NODE)
        if requirements.is_plain and node.is_plain:
            return FEASIBLE
        return self._codes.of(*self._refusal(pod, requirements, row, node))

    def _refusal(self, pod: PodInfo, requirements: PodRequirements, row: int, node: NodeState) -> Sequence[Reason]:
        """Why the pod cannot go to the row; empty if it can."""
        policy = self._merged_policy(requirements, node)
        if isinstance(policy, Reason):
            return (policy,)
        binds = requirements.binds or bool(node.rules.bind and requirements.cpu)
        if binds and requirements.cpu % MILLI:
            return (NOT_INTEGER,)
        reason = self._short_of_cpu(requirements, row, node, binds=binds) if requirements.cpu else None
        if reason is None and binds:
            reason = _unsuited(requirements, node)
        if reason is not None:
            return (reason,)
        if node.closed and (binds or policy):
            return (CLOSED,)
        if requirements.designated is not None and (binds or policy):
            found = self._granted(pod, row, self._choice(pod, requirements, row), None, assumed=False)
            return () if isinstance(found, PodAllocation) else found
        if binds and not policy:
            return self._short_of_cpus(pod, requirements, row, node)
        # Under BestEffort, too, the pod has to get at Reserve what it requests, from any NUMA nodes.
        return self.handle.numa_topology.admit(pod, row, reserving=True).reasons if policy else ()

    def _short_of_cpu(self, requirements: PodRequirements, row: int, node: NodeState, *, binds: bool) -> Reason | None:
        """The reason if the node has too little CPU when that of bound pods counts amplified."""
        ratio = node.rules.cpu_ratio
        if ratio is None:
            return _INVALID_RATIO
        if ratio <= 1:
            return None
        if node.topology is not None and not node.cpus:
            return INVALID_TOPOLOGY
        wanted = amplified(requirements.cpu, ratio) if binds else requirements.cpu
        numbers, bound = self.view.columns.numbers[row], node.bound_cpus * MILLI
        allocatable, requested = numbers.allocatable[CPU_INDEX], numbers.requested[CPU_INDEX]
        is_short = short_of_cpu(wanted, allocatable, requested, bound, node.added_cpu)
        return _SHORT_OF_AMPLIFIED if is_short else None

    def _short_of_cpus(
        self, pod: PodInfo, requirements: PodRequirements, row: int, node: NodeState
    ) -> Sequence[Reason]:
        """The reason if the node has too few CPUs to bind the pod to."""
        seen = self.seen(row)
        if seen is not None and seen.matched:
            found = self._choice(pod, requirements, row).from_any(None, ignoring=ignores_reservations(pod.pod))
            return () if isinstance(found, PodAllocation) else found
        required = requirements.required or node.rules.bind
        return (_NOT_ENOUGH,) if node.free_cpus(required) < requirements.cpu // MILLI else ()

    # The NUMA topology manager.

    def numa_alignment(self, pod: PodInfo, row: int) -> NUMAAlignment | Reason | None:
        requirements, node = self._requirements.of(pod), self.nodes.get(row, UNKNOWN_NODE)
        policy = self._merged_policy(requirements, node)
        if isinstance(policy, Reason) or policy is NUMATopologyPolicy.NONE or not requirements.amounts:
            return policy if isinstance(policy, Reason) else None
        if not node.rules.zones.amounts:
            return _NO_ZONES
        states = node.states if requirements.keeps_apart else None
        return NUMAAlignment(policy, node.rules.zones.numa_nodes, states)

    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        requirements, node = self._requirements.of(pod), self.nodes.get(row, UNKNOWN_NODE)
        policy = self._merged_policy(requirements, node)
        if isinstance(policy, Reason):
            return policy
        if not node.rules.zones.amounts:
            return _NO_HINTS
        if node.closed:
            return CLOSED
        choice, ignoring = self._choice(pod, requirements, row), ignores_reservations(pod.pod)
        narrow = (
            len(node.rules.zones.amounts) > FEW
            and not requirements.keeps_apart
            and self.handle.numa_topology.is_alone(pod, self)
        )
        return hints_of(choice, policy, self._numa_scorer, ignoring=ignoring, narrow=narrow)

    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        choice, ignoring = self._choice(pod, self._requirements.of(pod), row), ignores_reservations(pod.pod)
        if choice.fits(affinity.mask, ignoring=ignoring):
            return ()
        found = choice.from_any(affinity.mask, ignoring=ignoring)
        return () if isinstance(found, PodAllocation) else found

    # Reservations.

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        pod, uid = self.taker(pod, reservation, row)
        requirements, node = self._requirements.of(pod), self.nodes.get(row, UNKNOWN_NODE)
        policy = self._merged_policy(requirements, node)
        if isinstance(policy, Reason):
            return policy
        if not requirements.binds and not (node.rules.bind and requirements.cpu) and not policy:
            return None
        choice, affinity = self._choice(pod, requirements, row), self.handle.numa_topology.affinity(pod, row)
        if uid not in choice.restored.matched:
            return None
        if node.closed:
            return CLOSED
        found = choice.from_reservations([uid], affinity.mask if affinity is not None else None)
        if found is None:
            return _INCOMPATIBLE
        return None if isinstance(found, PodAllocation) else Reason(", ".join(reason.text for reason in found))

    # Explanations.

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        requirements, node = self._requirements.of(pod), self.nodes.get(row, UNKNOWN_NODE)
        if CLOSED in self._codes.reasons(code):
            closures = node.closed.of(CPUS).values()
            return [Lack(f"CPUs: what {each.pod} holds cannot be known: {each.fault}") for each in closures]
        if _NOT_ENOUGH not in self._codes.reasons(code):
            return ()
        wanted, required = requirements.cpu // MILLI, requirements.required or node.rules.bind
        free = node.free_cpus(required)
        what = {BindPolicy.FULL_PCPUS: " on free cores", BindPolicy.SPREAD_BY_PCPUS: " on cores of their own"}
        text = f"CPUs to bind{what.get(required, '')}: needs {wanted}, free {free}"
        return (Lack(text, max(0.0, (wanted - free) / wanted)),)

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        node = self.nodes.get(row)
        if node is None or node.topology is None:
            return None
        facts: dict[str, Any] = {
            "cpusFreeToBind": node.free_cpus(BindPolicy.NONE) if not node.closed else 0,
            "cpusBound": node.bound_cpus,
            **closed_by(node.closed.of_holders),
        }
        if node.rules.numa:
            facts["numaTopologyPolicy"] = node.rules.numa.value
        return facts


def _unsuited(requirements: PodRequirements, node: NodeState) -> Reason | None:
    """Why pods with these binding requirements cannot be bound on the node at all."""
    if not node.cpus:
        return INVALID_TOPOLOGY
    if requirements.required and node.rules.bind and requirements.required is not node.rules.bind:
        return _CONFLICT
    required = requirements.required or node.rules.bind
    if required is BindPolicy.FULL_PCPUS and requirements.cpu // MILLI % node.cpus.cpus_per_core:
        return _NOT_MULTIPLE
    return None


class _BatchFilter(BatchKernel):
    """Pods with requirements, and nodes with a policy, are few: each is evaluated by itself."""

    def __init__(self, plugin: NUMAFilter) -> None:
        self._plugin = plugin
        self._kinds: list[tuple[PodInfo, PodRequirements]] = []

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        self._kinds.append((pod, state))

    def evaluate(self, rows: Rows) -> Ints:
        return np.stack([self._plugin.filter(*kind, rows) for kind in self._kinds], axis=1)
