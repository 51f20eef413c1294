"""NodeNUMAResource: exclusive CPUs for pods, and alignment of all that a pod requests on the same NUMA nodes.

This module has events, Score, Reserve and PreBind; Filter and hints are in ``filtering``, Reservations in ``reserved``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.resource_names import CPU
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.allocations import Unknown
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.binding_points import (
    CycleState,
    PodChanges,
)
from koordinator.scheduler.engine.columns import AnyAspect, Ints, NodeReference, Rows
from koordinator.scheduler.engine.events import EventKind, object_events
from koordinator.scheduler.engine.framework import SKIP_SCORE, Reason
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.numa_topology import TOPOLOGY_HINTS
from koordinator.scheduler.engine.plugin_forms import ElementwiseScorePlugin, SomeRows, each_row
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_numa_resource.allocation import MILLI, PodAllocation, amplified
from koordinator.scheduler.plugins.node_numa_resource.filtering import (
    CLOSED,
    INVALID_TOPOLOGY,
    NUMAFilter,
    amplified_requests,
)
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState, node_document
from koordinator.scheduler.plugins.node_numa_resource.node_topology import read_topology
from koordinator.scheduler.plugins.node_numa_resource.pod_requirements import (
    PodRequirements,
    allocation_of,
    completed_spec,
    status_text,
)
from koordinator.scheduler.plugins.node_numa_resource.reserved import READS, TOPOLOGY, Choice
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer
from koordinator.scheduler.plugins.node_resources.allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    Allocation,
    AllocationScorer,
    BatchAllocation,
)


@dataclass(frozen=True, slots=True)
class Scored:
    """The PreScore state of a class of pods."""

    requirements: PodRequirements
    allocation: Allocation
    """How the pod is scored where it gets no allocation of the plugin."""


class NodeNUMAResource(NUMAFilter, ElementwiseScorePlugin, ServiceProvider):
    node_objects: ClassVar = (NODE_RESOURCE_TOPOLOGIES,)
    score_reads: ClassVar[tuple[AnyAspect, ...]] = READS
    handles_status_updates = False

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._topology_changed = view.columns.aspect(TOPOLOGY)
        self._hints_changed = view.columns.aspect(TOPOLOGY_HINTS)
        strategy = args.scoring_strategy
        most = strategy.type == "MostAllocated"
        scorer = MOST_ALLOCATED if most else LEAST_ALLOCATED
        self._node_scorer = AllocationScorer(view.columns, strategy.resources, scorer)
        self._scorer = NUMAScorer(strategy.resources, most=most)

    def concerns(self, pod: PodInfo) -> bool:
        return bool(self._special) or not self._requirements.of(pod).is_plain

    # Events.

    def events_to_register(self) -> frozenset[str]:
        node = {EventKind.NODE_ADD, EventKind.NODE_LABEL, EventKind.NODE_ALLOCATABLE}
        pods = {EventKind.POD_DELETE, EventKind.POD_UPDATE, EventKind.POD_READABLE}
        return object_events(NODE_RESOURCE_TOPOLOGIES) | node | pods

    def on_node(self, row: int, node: Node) -> None:
        state = self.nodes.get(row) or NodeState()
        if state.set_node(node) or row in self.nodes:
            self.nodes[row] = state
            self._note_special(row, state)

    def on_node_removed(self, row: int, name: str) -> None:
        self.nodes.pop(row, None)
        self._note_special(row, None)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind != NODE_RESOURCE_TOPOLOGIES.name:
            return
        self.known_node(row).set_topology(read_topology(obj) if isinstance(obj, NodeResourceTopology) else None)
        self.changed(row)
        self.view.columns.touch(row, self._topology_changed)

    def changed(self, row: int) -> None:
        super().changed(row)
        self._note_special(row, self.nodes[row])
        self.view.columns.touch(row, self._hints_changed)

    def _note_special(self, row: int, node: NodeState | None) -> None:
        before = bool(self._special)
        self._special.note(row, node)
        self.view.concerns_version += bool(self._special) is not before

    def known_node(self, row: int) -> NodeState:
        node = self.nodes.get(row)
        if node is None:
            node = self.nodes[row] = NodeState()
            known = self.view.columns.nodes[row]
            if known is not None:
                node.set_node(known)
        return node

    # Score.

    def pre_score(self, pod: PodInfo) -> Any:
        requirements = self._requirements.of(pod)
        return (
            Scored(requirements, self._node_scorer.prepare(pod, non_zero=False)) if requirements.amounts else SKIP_SCORE
        )

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        scored: Scored = state
        if isinstance(rows, int):
            node = self.nodes.get(rows)
            if node is None or (scored.requirements.is_plain and node.is_plain):
                return 0 if scored.requirements.binds else self._node_scorer.score(scored.allocation, rows)
            return self._score_on(pod, scored, rows, node)
        of_one = partial(self.score, pod, state)
        if not scored.requirements.is_plain:
            return each_row(rows, of_one)
        scores = self._node_scorer.score(scored.allocation, rows)
        for index in self.special_among(rows):
            scores[index] = of_one(int(rows[index]))
        return scores

    def batch_score(self) -> BatchKernel:
        return _BatchScores(self, self._node_scorer)

    def special_among(self, rows: Rows) -> list[int]:
        """The indices in ``rows`` of nodes that apply a policy to pods without requirements of their own."""
        return [index for index, row in enumerate(rows.tolist()) if row in self._special] if self._special else []

    def _score_on(self, pod: PodInfo, scored: Scored, row: int, node: NodeState) -> int:
        requirements, policy = scored.requirements, self._merged_policy(scored.requirements, node)
        if isinstance(policy, Reason) or (
            (requirements.binds or (node.rules.bind and requirements.cpu)) and not node.cpus
        ):
            return 0
        if not policy and (node.rules.zones.cpu_ratio <= 1 or not requirements.cpu):
            plain: int = self._node_scorer.score(scored.allocation, row)
            return plain
        choice = self._choice(pod, requirements, row)
        requested, allocatable = self._of_node(row)
        if not policy:
            requested["cpu"] += self._more_by_bound(node)
        else:
            affinity = self.handle.numa_topology.affinity(pod, row)
            found = self._granted(pod, row, choice, affinity, assumed=False)
            if not isinstance(found, PodAllocation):
                return 0
            if found.resources:
                requested, allocatable = _of_zones(found, choice, node)
            if found.cpus:
                others = node.taken.cpus & ~found.cpus
                requested["cpu"] = amplified(others.bit_count() * MILLI, node.rules.zones.cpu_ratio)
        return self._scorer.score(requested, allocatable, amplified_requests(choice))

    def _more_by_bound(self, node: NodeState) -> int:
        bound = node.bound_cpus * MILLI
        return amplified(bound, node.rules.zones.cpu_ratio) - bound

    def _of_node(self, row: int) -> tuple[dict[str, int], dict[str, int]]:
        amounts = self.view.columns.numbers[row].by_name()
        return {name: each[0] for name, each in amounts.items()}, {name: each[1] for name, each in amounts.items()}

    # Reserve.

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> PodAllocation | Reason | None:
        requirements, known = self._requirements.of(pod), self.nodes.get(node.index)
        if not requirements.amounts or (requirements.is_plain and (known is None or known.is_plain)):
            return None
        known = self.known_node(node.index)
        policy = self._merged_policy(requirements, known)
        if isinstance(policy, Reason):
            return policy
        binds = requirements.binds or bool(known.rules.bind and requirements.cpu)
        if not binds and not policy:
            return None
        if known.closed:
            return CLOSED
        if binds and not known.cpus:
            return INVALID_TOPOLOGY
        admission = self.handle.numa_topology.admit(pod, node.index, reserving=True)
        if admission.reasons and requirements.designated is None:
            return _joined(admission.reasons)
        choice = self._choice(pod, requirements, node.index)
        found = self._granted(pod, node.index, choice, admission.affinity, assumed=True)
        return found if isinstance(found, PodAllocation) else _joined(found)

    def recorded(self, pod: PodInfo) -> PodAllocation | Unknown | None:
        found = allocation_of(pod.pod.metadata.annotations)
        return None if isinstance(found, Unknown) and not pod.request.amounts.get(CPU) else found

    # PreBind.

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return self.held(pod.uid) is not None

    def record(self, pod: PodInfo, annotations: Mapping[str, str], node: NodeReference, changes: PodChanges) -> None:
        """Add the pod's allocation and its bind policy to ``changes``."""
        held = self.held(pod.uid)
        if held is None:
            return
        changes.annotations[annotation_keys.RESOURCE_STATUS] = status_text(held)
        if not held.cpus or not self.view.columns.is_current(node):
            return
        request = self.known_node(node.index).request(self._requirements.of(pod), self._packs)
        text = annotations.get(annotation_keys.RESOURCE_SPEC)
        completed = completed_spec(text, request.bind.value, required=request.required)
        if completed is not None:
            changes.annotations[annotation_keys.RESOURCE_SPEC] = completed

    # Services.

    def services(self) -> Mapping[str, Service]:
        return {"/nodes/:nodeName": self._on_node}

    def _on_node(self, parameters: Mapping[str, str]) -> Any:
        name = parameters["nodeName"]
        row = self.view.columns.row_of.get(name)
        if row is None:
            raise ServiceError(500, f'node "{name}" not found')
        node = self.nodes.get(row)
        if node is None or not node.cpus:
            raise ServiceError(500, "invalid topology, please check the NodeResourceTopology object")
        return node_document(name, node, self.view.pods_on[row])


def _joined(reasons: Sequence[Reason]) -> Reason:
    unresolvable = all(reason.unresolvable for reason in reasons)
    return Reason(", ".join(reason.text for reason in reasons), unresolvable=unresolvable)


def _of_zones(found: PodAllocation, choice: Choice, node: NodeState) -> tuple[dict[str, int], dict[str, int]]:
    """The requested and the total amounts of the NUMA nodes of an allocation."""
    zones, capacity = node.rules.zones.amounts, choice.shared_capacity
    requested: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    for numa_node, _ in found.resources:
        left = capacity.left(numa_node)
        for name, amount in zones.get(numa_node, {}).items():
            allocatable[name] = allocatable.get(name, 0) + amount
            requested[name] = requested.get(name, 0) + amount - left[name]
    return requested, allocatable


class _BatchScores(BatchAllocation):
    """Pods with requirements and nodes with a policy are few: each of them is scored by itself."""

    def __init__(self, plugin: NodeNUMAResource, scorer: AllocationScorer) -> None:
        super().__init__(scorer)
        self._plugin = plugin
        self._pods: list[tuple[PodInfo, Scored]] = []
        self._demanding: list[int] = []
        """The slots of pods with requirements of their own."""

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        scored: Scored = state
        self._pods.append((pod, scored))
        if not scored.requirements.is_plain:
            self._demanding.append(slot)
        super().put(slot, pod, scored.allocation)

    def evaluate(self, rows: Rows) -> Ints:
        scores = super().evaluate(rows)
        for index in self._plugin.special_among(rows):
            row = int(rows[index])
            scores[index] = [self._plugin.score(pod, scored, row) for pod, scored in self._pods]
        for slot in self._demanding:
            scores[:, slot] = self._plugin.score(*self._pods[slot], rows)
        return scores
