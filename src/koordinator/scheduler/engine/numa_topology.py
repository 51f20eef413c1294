"""The NUMA topology manager: what a pod gets on a node, of all plugins that allocate, comes from the same NUMA nodes.

Plugins that allocate resources of NUMA nodes return hints: sets of NUMA nodes that would suffice. The manager merges
the hints by the node's or the pod's policy into one affinity, which those plugins then keep to. No state is kept
between extension points: the affinity follows from the pod and the row as it is seen, so that Filter, Score and Reserve
compute the same as long as nothing on the row has changed.

    affinity = self.handle.numa_topology.affinity(pod, row)                     # in Filter and Score
    affinity = self.handle.numa_topology.affinity(pod, row, reserving=True)     # in AllocatorPlugin.allocate

A plugin that calls it in Filter or Score ``reads`` TOPOLOGY_HINTS, Aspect.NODE and the NodeResourceTopology, and has
``handle.numa_topology.key(pod)`` in its ``class_key``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.model.numa_topology.hints import Hints, NUMANodeState, NUMATopologyHint, NUMATopologyPolicy
from koordinator.model.numa_topology.merging import Machine, merge
from koordinator.scheduler.engine.columns import NamedAspect
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView

TOPOLOGY_HINTS: Final = NamedAspect("TopologyHints")
"""What hints depend on and pods change. Providers touch a row with it when something is allocated or released there."""
_KEPT: Final = 1 << 16


class NUMATopologyHintProvider(Plugin):
    """A plugin that allocates resources of NUMA nodes. Its hints follow from the pod's ``topology_key`` and the row as
    Filter sees it, Reservations included; they are computed in Filter, in Score and in ``allocate``."""

    @abstractmethod
    def topology_key(self, pod: PodInfo) -> Hashable:
        """Everything of the pod itself that its hints depend on; None if it has no hints on any node."""

    @abstractmethod
    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        """The sets of NUMA nodes that would suffice for the pod, for each resource of this plugin, in the order of
        ``Hints``; empty if the pod requests nothing of this plugin; a reason, whose text the user sees, if none would
        suffice."""

    @abstractmethod
    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        """Why the pod cannot be given what it requests from the NUMA nodes of ``affinity``, which is the merged hint of
        all providers; empty if it can. (Allocate in the original, where nothing is allocated either.)"""


@dataclass(frozen=True, slots=True)
class NUMAAlignment:
    """How a pod is aligned on a node."""

    policy: NUMATopologyPolicy
    """Not NONE."""
    numa_nodes: tuple[int, ...]
    """The IDs of the node's NUMA nodes, ascending; at least one."""
    states: Mapping[int, NUMANodeState] | None = None
    """Set if a NUMA node must not be shared by pods on it alone and pods across several."""


class NUMATopologyPolicySource(NUMATopologyHintProvider):
    """Decides which pods are aligned on which nodes, and has hints of its own; only the first one of a profile is
    called."""

    @abstractmethod
    def numa_alignment(self, pod: PodInfo, row: int) -> NUMAAlignment | Reason | None:
        """The alignment of the pod on the row; None if it is not aligned; a reason if it ought to be and cannot."""


@dataclass(frozen=True, slots=True)
class Admission:
    """``affinity`` is the set of NUMA nodes that the pod has to keep to, None if it need not keep to any. With
    ``reasons``, the pod is rejected."""

    affinity: NUMATopologyHint | None = None
    reasons: tuple[Reason, ...] = ()


_UNALIGNED: Final = Admission()


class NUMATopologyManager:
    """One for each profile, as ``handle.numa_topology``."""

    def __init__(self, profile: Profile, view: ClusterView) -> None:
        self._view = view
        self._source = profile.first(NUMATopologyPolicySource)
        self._providers = profile.all(NUMATopologyHintProvider)
        self._known: dict[Hashable, tuple[int, Admission]] = {}

    def key(self, pod: PodInfo) -> Hashable:
        """Equal for pods that are aligned alike on every node."""
        return tuple([provider.topology_key(pod) for provider in self._providers])

    def is_alone(self, pod: PodInfo, provider: NUMATopologyHintProvider) -> bool:
        """Whether no other plugin has hints for the pod."""
        return all(other is provider or other.topology_key(pod) is None for other in self._providers)

    def affinity(self, pod: PodInfo, row: int, *, reserving: bool = False) -> NUMATopologyHint | None:
        """The NUMA nodes that the pod has to keep to on ``row``: None if there is no policy, or none that applies at
        this point, or if the pod is rejected. A hint without a mask allows all NUMA nodes."""
        return self.admit(pod, row, reserving=reserving).affinity

    def admit(self, pod: PodInfo, row: int, *, reserving: bool = False) -> Admission:
        """The same with the reasons why the pod is rejected. The policy BestEffort, which rejects no pod, applies only
        with ``reserving``, in ``allocate``."""
        if self._source is None:
            return _UNALIGNED
        alignment = self._source.numa_alignment(pod, row)
        if alignment is None:
            return _UNALIGNED
        if isinstance(alignment, Reason):
            return Admission(reasons=(alignment,))
        if alignment.policy is NUMATopologyPolicy.BEST_EFFORT and not reserving:
            return _UNALIGNED
        return self._remembered(pod, row, alignment)

    def _remembered(self, pod: PodInfo, row: int, alignment: NUMAAlignment) -> Admission:
        if any(seen == row for _, _, seen in self._view.restored):
            # The row is seen adjusted.
            return self._admit(pod, row, alignment)
        key = row, self.key(pod)
        version = self._view.columns.row_version(row)
        known = self._known.get(key)
        if known is not None and known[0] == version:
            return known[1]
        if len(self._known) >= _KEPT:
            self._known.clear()
        admission = self._admit(pod, row, alignment)
        self._known[key] = version, admission
        return admission

    def _admit(self, pod: PodInfo, row: int, alignment: NUMAAlignment) -> Admission:
        provided: list[Hints] = []
        failures: list[Reason] = []
        for provider in self._providers:
            hints = provider.get_pod_topology_hints(pod, row)
            if isinstance(hints, Reason):
                failures.append(Reason(hints.text))
            else:
                provided.append(hints)
        if failures:
            return Admission(reasons=tuple(failures))
        merged = merge(alignment.policy, Machine(alignment.numa_nodes, alignment.states), provided)
        if merged.reasons:
            return Admission(reasons=tuple([Reason(text) for text in merged.reasons]))
        for provider in self._providers:
            reasons = provider.filter_affinity(pod, merged.hint, row)
            if reasons:
                return Admission(reasons=tuple(reasons))
        return Admission(merged.hint)
