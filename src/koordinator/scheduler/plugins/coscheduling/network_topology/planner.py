"""Plans nodes for all members of a gang at once: prepares the solver's input, and assigns members to its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from koordinator.api.annotations import GANG_NETWORK_TOPOLOGY_INDEX, NETWORK_TOPOLOGY_SELECTOR
from koordinator.scheduler.engine.decision import fit_error
from koordinator.scheduler.engine.framework_hooks import JobDiagnosis
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.slots import Slots
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.declaration import TopologySpec
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import (
    Demand,
    Distribution,
    NodeSlots,
    Tree,
    demand_of,
    distribute,
)

NO_PLANNED_PODS: Final = "no planned pods"
NO_PENDING_PODS: Final = "no pending pods"
INVALID_PLAN: Final = "plan become invalid, wait for the next round"
_DOMAINS_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class DomainSlots:
    """How many members fit in a domain (``layer/name``)."""

    domain: str
    slots: int


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """The plan for ``wanted`` members. ``nodes``: uid -> node; empty, with ``refusal``, if no domain can take all of
    them."""

    wanted: int
    demand: Demand
    nodes: Mapping[str, str] = field(default_factory=dict)
    domain: str = ""
    """The smallest domain that takes all of them, as ``layer/name``."""
    refusal: str = ""
    domain_slots: tuple[DomainSlots, ...] = ()
    """The domains one of which had to take all of them, those with the most slots first; not all if there are many."""
    domains: int = 0
    """How many such domains there are."""
    layers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why nodes are in no domain, for some of these nodes; they take no members."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """With ``refusal``: node -> how many members fit on it."""
    statuses: tuple[NodeStatus, ...] = ()
    """With ``refusal``: why no more fit."""

    @property
    def rejected_by(self) -> frozenset[str]:
        """The plugins that rejected nodes for members."""
        return frozenset(status.plugin for status in self.statuses if status.plugin)

    @property
    def diagnosis(self) -> JobDiagnosis | None:
        """Why there is no plan, for the diagnosis of the attempt; None if there is one."""
        if not self.refusal:
            return None
        return JobDiagnosis(self.refusal, self.demand.gather_in, self.slots, self.statuses)


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


class Planner:
    """Plans for one gang in one network."""

    def __init__(self, view: ClusterView, tree: Tree, spec: TopologySpec, pods: Sequence[PodInfo]) -> None:
        """``pods``: the members to place, in the order of ``in_turn``."""
        self._view = view
        self._tree = tree
        self._pods = pods
        self._demand = demand_of(spec, len(pods), tree)

    def plan(self, slots: Slots, scores: Mapping[int, int] | None = None) -> TopologyPlan:
        """Plan the nodes of all members. ``slots``: how many fit on each node; ``scores``: node row -> score."""
        by_row = slots.by_row
        existing = self._existing(by_row)
        nodes = NodeSlots(self._by_leaf(by_row), self._by_leaf(scores or {}), self._by_leaf(existing))
        found = distribute(self._tree, self._demand, nodes)
        if found.domain is None:
            return self._failed(found, slots)
        return TopologyPlan(
            len(self._pods),
            self._demand,
            nodes=self._assigned(found.by_node),
            domain=self._tree.text(found.domain, found.depth),
            domain_slots=self._domain_slots(found),
            domains=found.gathered.shape[0],
            layers=self._tree.layers,
            left_out=self._left_out(),
        )

    def _by_leaf(self, of_rows: Mapping[int, int]) -> dict[int, int]:
        """The amounts by the domain number of the node instead of its row, without nodes that are in no domain."""
        names, leaf_of = self._view.columns.names, self._tree.leaf_of
        return {leaf_of[names[row]]: amount for row, amount in of_rows.items() if names[row] in leaf_of}

    def _existing(self, rows: Iterable[int]) -> dict[int, int]:
        """Node row -> how many pods with the members' topology selector are on it."""
        kind = self._pods[0].pod.metadata.annotations.get(NETWORK_TOPOLOGY_SELECTOR)
        return existing_pods(self._view, kind, rows) if kind else {}

    def _assigned(self, by_node: Sequence[tuple[int, int]]) -> dict[str, str]:
        """Uid -> node. Members that are nominated to a node get that one, if members are to be placed there."""
        tree, nominations = self._tree, self._view.nominations
        left = {tree.names[leaf]: count for leaf, count in by_node}
        found: dict[str, str] = {}
        for pod in self._pods:
            node = nominations.node_of(pod.uid)
            if left.get(node):
                left[node] -= 1
                found[pod.uid] = node
        free = (node for node, count in left.items() for _ in range(count))
        for pod in self._pods:
            if pod.uid not in found:
                found[pod.uid] = next(free)
        return found

    def _failed(self, found: Distribution, slots: Slots) -> TopologyPlan:
        tree, demand = self._tree, self._demand
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
        return TopologyPlan(
            len(self._pods),
            demand,
            refusal=text,
            domain_slots=self._domain_slots(found),
            domains=found.gathered.shape[0],
            layers=tree.layers,
            left_out=self._left_out(),
            slots={self._view.columns.names[row]: count for row, count in slots.by_row.items()},
            statuses=slots.statuses,
        )

    def _domain_slots(self, found: Distribution) -> tuple[DomainSlots, ...]:
        # A stable sort keeps domains with equally many slots in the order of their names.
        fullest = found.gathered[np.argsort(-found.slots[found.gathered], kind="stable")][:_DOMAINS_KEPT]
        return tuple(
            DomainSlots(self._tree.text(domain, found.gather_depth), int(found.slots[domain]))
            for domain in fullest.tolist()
        )

    def _left_out(self) -> tuple[str, ...]:
        return tuple(self._tree.left_out.values())[:_DOMAINS_KEPT]


def existing_pods(view: ClusterView, kind: str, rows: Iterable[int]) -> dict[int, int]:
    """Node row -> how many pods on it have this topology selector; rows without any are left out."""
    found = {
        row: sum(pod.pod.metadata.annotations.get(NETWORK_TOPOLOGY_SELECTOR) == kind for pod in on_row.values())
        for row in rows
        if (on_row := view.pods_on[row])
    }
    return {row: count for row, count in found.items() if count}
