"""Score: prefers nodes near to pods with the same topology selector, for pods that have one and are placed one by one.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/network_topology_workflow.go: the feasible nodes are ordered as
in the solver, each with one slot, and the scores go down from 100 in equal steps.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from koordinator.api.annotations import NETWORK_TOPOLOGY_SELECTOR
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, Rows
from koordinator.scheduler.engine.framework import SKIP_SCORE, default_normalize
from koordinator.scheduler.engine.plugin_forms import RankingScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart
from koordinator.scheduler.plugins.coscheduling.network_topology.gang_placement import existing_pods
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import Tree


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
