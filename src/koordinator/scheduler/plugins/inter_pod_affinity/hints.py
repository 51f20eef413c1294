"""Queueing hints: whether an event may make a rejected pod schedulable.

Upstream's hints miss three events, after which a pod waits for minutes although it fits: the deletion of a pod with a
required anti-affinity against it, of one of several pods that its own anti-affinity matches, and of the last pod that
its affinity matches, if that also matches itself, so that it may be the first pod of its group.
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
    """The terms on which an unschedulable pod depends. Each method returns whether an event may make it schedulable."""

    affinity: Sequence[OwnTerm]
    anti_affinity: Sequence[OwnTerm]
    blocking: frozenset[Term]
    matches_itself: bool

    def pod_added(self, new: PodInfo) -> bool:
        """A pod was added to a node."""
        return self._attracts(new)

    def pod_relabeled(self, old: PodInfo, new: PodInfo) -> bool:
        """The labels of a pod on a node have changed."""
        attracted, attracts = self._attracts(old), self._attracts(new)
        if attracts != attracted and (attracts or self.matches_itself):
            return True
        return any(_matches(own, old) and not _matches(own, new) for own in self.anti_affinity)

    def pod_removed(self, old: PodInfo, *, repelled: bool) -> bool:
        """A pod is no longer on a node; ``repelled``: its required anti-affinity matched the unschedulable pod."""
        if repelled or any(_matches(own, old) for own in self.anti_affinity):
            return True
        return self.matches_itself and self._attracts(old)

    def node_added(self, new: Node) -> bool:
        """A node was added. Without any of the topology keys it can neither take the pod nor change a domain."""
        labels = new.metadata.labels
        return not self.affinity or any(own.term.topology_key in labels for own in self.affinity)

    def node_relabeled(self, old: Node, new: Node) -> bool:
        """The labels of a node have changed."""
        before, after = old.metadata.labels, new.metadata.labels
        for own in self.affinity:
            key = own.term.topology_key
            if before.get(key) != after.get(key) and (key in after or self.matches_itself):
                return True
        keys = {own.term.topology_key for own in self.anti_affinity} | {term.topology_key for term in self.blocking}
        return any(key in before and before[key] != after.get(key) for key in keys)

    def namespace_changed(self, old: Object | None, new: Object | None) -> bool:
        """A namespace was added, deleted or relabeled, so that terms with a namespaceSelector may match other pods."""
        if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
            # It may be the pod's namespace, which the terms of any existing pod may select.
            return True
        selectors = (own.term.namespace_selector for own in (*self.affinity, *self.anti_affinity))
        there = [each.metadata.labels for each in (old, new) if each is not None]
        return old is not new and any(selector.matches(labels) for selector in selectors for labels in there)

    def _attracts(self, pod: PodInfo) -> bool:
        return bool(self.affinity) and all(_matches(own, pod) for own in self.affinity)


def _matches(own: OwnTerm, pod: PodInfo) -> bool:
    return own.matches(pod.pod.metadata.namespace, pod.pod.metadata.labels)
