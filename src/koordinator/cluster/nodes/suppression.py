"""CPU suppression in the coarse model: where the NodeSLO enables it, best-effort pods get what koordlet would leave.

koordlet lets best-effort pods have a share of the node less what others use, and gives back a tenth of the node a
second. In the time from one sample of the model to the next it has given back everything, so that the model needs no
memory. CPUs and quotas are the same to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.nodeslo import NodeSLO
from koordinator.api.resource_threshold import CPUSET_SUPPRESS_POLICY
from koordinator.cluster.nodes.usage import Floats, NodeColumns, PodColumns, Usage, per_node
from koordinator.kube.interface import Malformed, WatchEvent

_DEFAULT_PERCENT: Final = 65
_LEAST_CORES: Final = 0.02
"""What best-effort pods keep however busy the node is."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Below which share of its CPUs a node is kept, what best-effort pods have at least, and by which policy."""

    percent: int
    least_percent: int | None
    policy: str


class Thresholds:
    """Of the nodes whose NodeSLO enables suppression, by name: fed by a reflector of NodeSLOs. Nothing else of a
    NodeSLO is kept, since there may be thousands."""

    def __init__(self) -> None:
        self._by_node: dict[str, Threshold] = {}
        self._listed: set[str] = set()

    def get(self, node: str) -> Threshold | None:
        return self._by_node.get(node)

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def begin_replace(self, *, authoritative: bool) -> None:
        self._listed = set()

    def replace_page(self, items: Sequence[NodeSLO], malformed: Sequence[Malformed]) -> None:
        for item in items:
            self._listed.add(item.metadata.name)
            self._keep(item)
        self._listed.update(item.name for item in malformed)

    def end_replace(self, version: str) -> None:
        for name in self._by_node.keys() - self._listed:
            del self._by_node[name]

    def apply(self, event: WatchEvent[NodeSLO]) -> None:
        found = event.object
        if found is None:
            return
        if isinstance(found, Malformed):
            # As for an agent that cannot read it, what was said before stays in force; the reflector has named it.
            if event.type == "DELETED":
                self._by_node.pop(found.name, None)
        elif event.type == "DELETED":
            self._by_node.pop(found.metadata.name, None)
        else:
            self._keep(found)

    def _keep(self, slo: NodeSLO) -> None:
        given = slo.spec.resource_used_threshold_with_be
        if given is None or not given.enable:
            self._by_node.pop(slo.metadata.name, None)
            return
        percent = given.cpu_suppress_threshold_percent
        self._by_node[slo.metadata.name] = Threshold(
            _DEFAULT_PERCENT if percent is None else percent,
            given.cpu_suppress_min_percent,
            given.cpu_suppress_policy or CPUSET_SUPPRESS_POLICY,
        )


@dataclass(frozen=True, slots=True)
class HeldDown:
    """A node at one moment whose best-effort pods would use more than they have. Cores."""

    threshold: Threshold
    cores: float
    """What they have together."""
    capacity: float
    others: float
    system: float
    """Or what is reserved for it, if that is more."""


@dataclass(frozen=True, slots=True)
class SuppressedColumns:
    """Nodes, one an element: NaN for a node without suppression. CPU in cores."""

    share: Floats
    """Of its capacity, below which the node is kept."""
    least: Floats
    """Of its capacity, that best-effort pods have in any case."""
    reserved: Floats


def suppressed(
    usage: Usage, pods: PodColumns, nodes: NodeColumns, columns: SuppressedColumns
) -> tuple[Usage, Floats, NDArray[np.bool_]]:
    """The usage that is left, what best-effort pods may have on each node, and where they would use more."""
    count = len(nodes.cpu)
    wanted = per_node(np.where(pods.best_effort, usage.pod_cpu, 0.0), pods, count)
    limit = nodes.cpu * columns.share - others_of(usage, pods, count) - system_of(usage, columns)
    limit = np.maximum(np.maximum(limit, nodes.cpu * columns.least), _LEAST_CORES)
    # False where there is no limit, which is NaN.
    held = wanted > limit
    scale = np.where(held, limit / np.maximum(wanted, _LEAST_CORES), 1.0)
    cpu = np.where(pods.best_effort, usage.pod_cpu * scale[pods.node], usage.pod_cpu)
    return replace(usage, pod_cpu=cpu), limit, held


def others_of(usage: Usage, pods: PodColumns, count: int) -> Floats:
    """What pods use on each node that are not best-effort."""
    return per_node(np.where(pods.best_effort, 0.0, usage.pod_cpu), pods, count)


def system_of(usage: Usage, columns: SuppressedColumns) -> Floats:
    """What counts as the system's on each node."""
    return np.maximum(usage.system_cpu, columns.reserved)
