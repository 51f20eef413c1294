"""Where pods go by the network topology.

Gangs are planned: the first member that is tried plans the nodes of all members at once, the others follow. A plan
prepares the solver's input, and assigns members to its result.

Single pods are scored: a pod with a topology selector prefers nodes near to pods with the same one. As in Koordinator
1.8, pkg/scheduler/plugins/coscheduling/core/network_topology_workflow.go, the feasible nodes are ordered as in the
solver, each with one slot, and the scores go down from 100 in equal steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.annotations import GANG_NETWORK_TOPOLOGY_INDEX, NETWORK_TOPOLOGY_SELECTOR
from koordinator.api.explanations import DomainSlots
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.model.gang_declaration import TopologySpec
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, Rows
from koordinator.scheduler.engine.decision import fit_error
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import SKIP_SCORE, PluginError, Reason, default_normalize
from koordinator.scheduler.engine.framework_hooks import FindOneNodePlugin
from koordinator.scheduler.engine.plugin_forms import RankingScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.simulation import Simulation
from koordinator.scheduler.engine.slots import Slots, slots_on, statuses_of
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.gang import MemberState, Wave
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart
from koordinator.scheduler.plugins.coscheduling.job_preemption import Job
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import NO_TOPOLOGY
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import (
    Demand,
    Distribution,
    NodeSlots,
    TopologyPlan,
    Tree,
    demand_of,
    distribute,
)
from koordinator.scheduler.plugins.preemption import Placements

NO_PLANNED_PODS: Final = "no planned pods"
NO_PENDING_PODS: Final = "no pending pods"
INVALID_PLAN: Final = "plan become invalid, wait for the next round"
_DOMAINS_KEPT: Final = 20


def in_turn(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Members in the order in which they are given nodes: by their index, those without one last, then by name."""

    def key(pod: PodInfo) -> tuple[bool, int, str, str]:
        index = index_of(pod)
        return index < 0, max(index, 0), pod.pod.metadata.name, pod.pod.metadata.namespace

    return sorted(pods, key=key)


def index_of(pod: PodInfo) -> int:
    """The pod's index among the members, such as its rank; -1 if its annotation has no valid one."""
    text = pod.pod.metadata.annotations.get(GANG_NETWORK_TOPOLOGY_INDEX, "")
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


def topology_plan(
    view: ClusterView,
    tree: Tree,
    spec: TopologySpec,
    pods: Sequence[PodInfo],
    slots: Slots,
    scores: Mapping[int, int] | None = None,
) -> TopologyPlan:
    """Plan the nodes of all members, ``pods``, which are in the order of ``in_turn``. ``slots``: how many fit on each
    node; ``scores``: node row -> score."""
    demand, by_row, names = demand_of(spec, len(pods), tree), slots.by_row, view.columns.names
    kind = pods[0].pod.metadata.annotations.get(NETWORK_TOPOLOGY_SELECTOR)
    existing = existing_pods(view, kind, by_row) if kind else {}
    by_leaf = [tree.by_leaf(names, each) for each in (by_row, scores or {}, existing)]
    found = distribute(tree, demand, NodeSlots(*by_leaf))
    # A stable sort keeps domains with equally many slots in the order of their names.
    fullest = found.gathered[np.argsort(-found.slots[found.gathered], kind="stable")][:_DOMAINS_KEPT]
    plan = TopologyPlan(
        len(pods),
        demand,
        domain_slots=tuple(
            DomainSlots(domain=tree.text(domain, found.gather_depth), slots=int(found.slots[domain]))
            for domain in fullest.tolist()
        ),
        domains=found.gathered.shape[0],
        layers=tree.layers,
        left_out=tuple(tree.left_out.values())[:_DOMAINS_KEPT],
    )
    if found.domain is None:
        refusal, by_name = _refusal(tree, found, demand, slots), {names[row]: count for row, count in by_row.items()}
        return replace(plan, refusal=refusal, slots=by_name, statuses=slots.statuses)
    left = {tree.names[leaf]: count for leaf, count in found.by_node}
    return replace(plan, nodes=_assigned(view, pods, left), domain=tree.text(found.domain, found.depth))


def _assigned(view: ClusterView, pods: Sequence[PodInfo], left: dict[str, int]) -> dict[str, str]:
    """Uid -> node. ``left``: how many members each node gets. Members that are nominated to one of them get that."""
    found: dict[str, str] = {}
    for pod in pods:
        node = view.nominations.node_of(pod.uid)
        if left.get(node):
            left[node] -= 1
            found[pod.uid] = node
    free = (node for node, count in left.items() for _ in range(count))
    for pod in pods:
        if pod.uid not in found:
            found[pod.uid] = next(free)
    return found


def _refusal(tree: Tree, found: Distribution, demand: Demand, slots: Slots) -> str:
    domains = sorted(
        f"topology topologyNode {tree.text(domain, found.gather_depth)}: {found.slots[domain]}"
        for domain in found.gathered.tolist()
    )
    reasons: Counter[str] = Counter()
    for status in slots.statuses:
        for reason in status.reasons:
            reasons[reason.text] += status.rows.shape[0]
    text = (
        f"no candidate topology nodes can accommodate job, desiredOfferSlot: {demand.count}, {';'.join(domains)}, "
        f"{fit_error(slots.rows.shape[0], reasons)}"
    )
    if demand.multiples:
        multiples = sorted(f"{layer}={multiple}" for layer, multiple in demand.multiples.items())
        text += f"; podCountMultiple constraints: {', '.join(multiples)}"
    return text


def existing_pods(view: ClusterView, kind: str, rows: Iterable[int]) -> dict[int, int]:
    """Node row -> how many pods on it have this topology selector; rows without any are left out."""
    found = {
        row: sum(pod.pod.metadata.annotations.get(NETWORK_TOPOLOGY_SELECTOR) == kind for pod in on_row.values())
        for row in rows
        if (on_row := view.pods_on[row])
    }
    return {row: count for row, count in found.items() if count}


_TOPOLOGY_EVENTS: Final = object_events(CLUSTER_NETWORK_TOPOLOGIES)
_EVENTS: Final = _TOPOLOGY_EVENTS | {EventKind.NODE_ADD, EventKind.NODE_LABEL}


class GangPlacement(GangPart, FindOneNodePlugin):
    """Plans nodes for the members of the current wave. Only in profiles that respect the network topology requirements
    of gangs."""

    def refusal(self, pod: PodInfo) -> Reason | None:
        """Why no attempt can begin with the pod: its gang has topology requirements, but the network is not known."""
        if self._spec_of(pod) is None or self.gangs.network is not None:
            return None
        if self.cache.admission_error(pod.pod) or self.cache.wave_of(pod.uid) is not None:
            return None
        return Reason(NO_TOPOLOGY, unresolvable=True)

    def begun(self, pod: PodInfo) -> None:
        """The attempt of the pod began. The topology requirements of the first pod's gang hold for the whole wave."""
        wave = self.cache.wave_of(pod.uid)
        if wave is not None and wave.attempted == {pod.uid}:
            wave.topology = self._spec_of(pod)

    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        """The node that is planned for the pod, or why there is none; None if it has no topology requirements. Raises
        PluginError for a member that the plan of its wave lacks."""
        wave = self.cache.wave_of(pod.uid)
        if wave is None or wave.topology is None:
            return None
        if wave.plan is None:
            wave.plan = wave.group.plan = self._planned(pod, wave, wave.topology)
        if wave.plan is None:
            return None
        if wave.plan.refusal:
            return Reason(wave.plan.refusal)
        node = wave.plan.nodes.get(pod.uid)
        if node is None:
            raise PluginError(NO_PLANNED_PODS)
        return node

    def rejected_by(self, pod: PodInfo) -> Collection[str]:
        """The plugins that rejected nodes for the members, if ``find_one_node`` returned a reason."""
        wave = self.cache.wave_of(pod.uid)
        return wave.plan.rejected_by if wave is not None and wave.plan is not None else ()

    def job(self, job: Job, wave: Wave) -> Job:
        """The job with its topology requirements, for preemption. All members are planned when the first one is tried,
        and only then."""
        if wave.topology is None:
            return job
        tree = self.gangs.network
        spec, pods = wave.topology, in_turn(job.pending)

        def place(simulation: Simulation, scores: Mapping[int, int]) -> Placements | str:
            if tree is None or len(wave.attempted) > 1:
                return INVALID_PLAN
            found = self._slots_in(simulation, pods, sorted(scores), job.uids)
            plan = topology_plan(self.view, tree, spec, pods, found, scores)
            row_of = self.view.columns.row_of
            return plan.refusal or [(pod, row_of[plan.nodes[pod.uid]]) for pod in pods]

        refused = wave.plan if wave.plan is not None and wave.plan.refusal else None
        return replace(job, in_network=place, statuses=refused.statuses if refused is not None else None)

    @staticmethod
    def _slots_in(
        simulation: Simulation, pods: Sequence[PodInfo], rows: Sequence[int], ignoring: Collection[str]
    ) -> Slots:
        counted = [(row, *slots_on(simulation, pods, row, ignoring)) for row in rows]
        counts = np.array([count for _, count, _ in counted], dtype=np.int64)
        failures = [(row, failure) for row, _, failure in counted if failure is not None]
        return Slots(np.array(rows, dtype=np.intp), counts, statuses_of(pods[0], failures))

    def events_to_register(self) -> frozenset[str]:
        """Those that may make a gang fit in the network, beside those of the plugins that rejected its nodes."""
        return _EVENTS

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the event may make the gang of an unschedulable pod fit in the network. True for one member only."""
        if self._spec_of(pod) is None:
            return False
        member = self.cache.by_uid.get(pod.uid)
        group = member.gang.group if member is not None else None
        if group is None or group.failed_member not in ("", pod.uid):
            return False
        return event.kind not in _TOPOLOGY_EVENTS or _spec(event.old) != _spec(event.new)

    def _planned(self, pod: PodInfo, wave: Wave, spec: TopologySpec) -> TopologyPlan | None:
        """The plan for all members to be placed; None if the pod fits on no node at all, which other plugins report."""
        tree = self.gangs.network
        if tree is None:
            raise PluginError(NO_TOPOLOGY)
        pods = in_turn(self._to_place(pod, wave))
        if not pods:
            raise PluginError(NO_PENDING_PODS)
        found = self.handle.slots(pods)
        return topology_plan(self.view, tree, spec, pods, found) if found is not None else None

    def _to_place(self, pod: PodInfo, wave: Wave) -> list[PodInfo]:
        """The pending members, without those that were tried already."""
        pending = [each for each in wave.group.members(MemberState.PENDING) if each.is_schedulable]
        left = [each.uid for each in pending if each.uid == pod.uid or each.uid not in wave.attempted]
        return [found for uid in left if (found := pod if uid == pod.uid else self.gangs.pending.get(uid)) is not None]

    def _spec_of(self, pod: PodInfo) -> TopologySpec | None:
        """The topology requirements of the pod's gang; None also for a gang whose members are placed one by one."""
        member = self.cache.by_uid.get(pod.uid)
        declaration = member.gang.declaration if member is not None and not member.gang.is_released else None
        return declaration.network_topology if declaration is not None else None


def _spec(topology: Any) -> Any:
    return topology.spec if topology is not None else None


@dataclass(slots=True)
class _Kind:
    """The pods with one topology selector, here called a kind. ``existing``: node row -> how many there are, if any."""

    name: str
    tree: Tree
    existing: dict[int, int]


class NetworkScore(GangPart, RankingScorePlugin):
    """Scores depend only on the pods of the kind and on which nodes are feasible, so ``normalize`` computes them."""

    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def class_key(self, pod: PodInfo) -> Hashable:
        return _kind_of(pod) if self.gangs.topology is not None else None

    def concerns(self, pod: PodInfo) -> bool:
        return bool(_kind_of(pod))

    def context_key(self, pod: PodInfo) -> Hashable:
        """The version of the network, since the scores depend on it."""
        network = self.gangs.topology
        return network.version if network is not None and _kind_of(pod) else None

    def pre_score(self, pod: PodInfo) -> Any:
        kind, network = _kind_of(pod), self.gangs.topology
        tree = network.tree if network is not None and kind else None
        if tree is None:
            return SKIP_SCORE
        return _Kind(kind, tree, existing_pods(self.view, kind, self.view.columns.alive_rows.tolist()))

    def apply_score_delta(self, pod: PodInfo, state: Any, rows: Rows) -> bool:
        kind: _Kind = state
        for row in rows.tolist():
            kind.existing.pop(row, None)
        alive = [row for row in rows.tolist() if self.view.columns.alive[row]]
        kind.existing.update(existing_pods(self.view, kind.name, alive))
        return True

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints:
        kind: _Kind = state
        places = np.zeros_like(raw)
        rows = np.flatnonzero(feasible)
        order = _in_order(kind.tree, self.view.columns.names, rows, kind.existing)
        places[rows[order]] = np.arange(rows.shape[0])
        return default_normalize(places, feasible, reverse=True)


def _kind_of(pod: PodInfo) -> str:
    return pod.pod.metadata.annotations.get(NETWORK_TOPOLOGY_SELECTOR, "")


def _in_order(tree: Tree, names: list[str], rows: Rows, existing: dict[int, int]) -> NDArray[np.intp]:
    """The indices of ``rows``, the best first: by pods of the kind, the most first, then by feasible nodes, the fewest
    first, each compared in the node's domain, the one around it and so on. Nodes that are in no domain come last."""
    leaves = np.array([tree.leaf_of.get(names[row], -1) for row in rows.tolist()], dtype=np.intp)
    pods = tree.sums(tree.by_leaf(names, existing))
    slots = tree.sums({leaf: 1 for leaf in leaves.tolist() if leaf >= 0})
    keys: list[NDArray[Any]] = [np.array([names[row] for row in rows.tolist()])]
    chains: list[NDArray[np.intp]] = [leaves]
    for _ in tree.layers[1:]:
        chains.append(np.where(chains[-1] >= 0, tree.parents[chains[-1]], -1))
    # The last key of lexsort is its primary one.
    keys += [np.where(chain >= 0, slots[chain], 0) for chain in reversed(chains)]
    keys += [np.where(chain >= 0, -pods[chain], 0) for chain in reversed(chains)]
    keys.append(leaves < 0)
    return np.lexsort(keys)
