"""Whether an event may free a pod that was rejected.

Upstream's hints forget three things, after which a pod waits for minutes although it fits: the pod that had a required
anti-affinity against it goes, one of several pods that it stays away from goes, and the last pod near which it had to
be goes, so that it is the first of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.inter_pod_affinity.term_counters import OwnTerm
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an unschedulable pod waits for."""

    affinity: Sequence[OwnTerm]
    anti_affinity: Sequence[OwnTerm]
    blocking: frozenset[Term]
    matches_itself: bool

    def pod_came(self, new: PodInfo) -> bool:
        """A pod has appeared on a node."""
        return self._attracts(new)

    def pod_changed(self, old: PodInfo, new: PodInfo) -> bool:
        """The labels of a pod on a node are others now."""
        attracted, attracts = self._attracts(old), self._attracts(new)
        if attracts != attracted and (attracts or self.matches_itself):
            return True
        return any(_matches(own, old) and not _matches(own, new) for own in self.anti_affinity)

    def pod_went(self, old: PodInfo, *, minded: bool) -> bool:
        """A pod is no longer on a node; ``minded``: it had a required anti-affinity against the unschedulable one."""
        if minded or any(_matches(own, old) for own in self.anti_affinity):
            return True
        return self.matches_itself and self._attracts(old)

    def node_came(self, new: Node) -> bool:
        """A new node: one that has none of the topologies can neither take the pod nor change where others are."""
        labels = new.metadata.labels
        return not self.affinity or any(own.term.topology_key in labels for own in self.affinity)

    def node_changed(self, old: Node, new: Node) -> bool:
        """The labels of a node are others now."""
        before, after = old.metadata.labels, new.metadata.labels
        for own in self.affinity:
            key = own.term.topology_key
            if before.get(key) != after.get(key) and (key in after or self.matches_itself):
                return True
        keys = {own.term.topology_key for own in self.anti_affinity} | {term.topology_key for term in self.blocking}
        return any(key in before and before[key] != after.get(key) for key in keys)

    def namespace_changed(self, old: Object | None, new: Object | None) -> bool:
        """A namespace is new, gone, or has other labels: terms that select namespaces may be about others now."""
        if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
            # It may be that of the pod, and what minds pods of such namespaces is anybody's.
            return True
        selectors = (own.term.namespace_selector for own in (*self.affinity, *self.anti_affinity))
        there = [each.metadata.labels for each in (old, new) if each is not None]
        return old is not new and any(selector.matches(labels) for selector in selectors for labels in there)

    def _attracts(self, pod: PodInfo) -> bool:
        return bool(self.affinity) and all(_matches(own, pod) for own in self.affinity)


def _matches(own: OwnTerm, pod: PodInfo) -> bool:
    return own.matches(pod.pod.metadata.namespace, pod.pod.metadata.labels)
