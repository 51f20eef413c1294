"""May this pod be evicted? The policies that say so, one after the other.

The cycle, MigrationController and drains ask in the same way: a policy says why a pod may not be evicted now, and a
pipeline is a policy again. Policies do no I/O, since they are asked about every candidate; what they count is kept
current by events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordinator.api.pod import Pod
from koordinator.descheduler.framework import NOTHING_REFUSED, Evictor, EvictPlugin, FilterPlugin, Refusals

Policy = Callable[[Pod], Refusals]
"""Why a pod may not be evicted; nothing if it may."""


class EvictionPipeline:
    """Policies in the order in which they are asked; the first that refuses decides."""

    def __init__(self, *policies: Policy) -> None:
        self._policies = policies

    def evaluate(self, pod: Pod) -> Refusals:
        """The reasons of the first policy that refuses; empty if none does."""
        for policy in self._policies:
            refusals = policy(pod)
            if refusals:
                return refusals
        return NOTHING_REFUSED


class ProfileEvictor(Evictor):
    """The evictor of one profile. Plugins get it before all of them exist; they call it only afterwards."""

    plugin: EvictPlugin
    """Carries evictions out."""

    def connect(self, filters: Sequence[FilterPlugin], plugin: EvictPlugin) -> None:
        """Set the plugins that are called from here on."""
        self.filters, self.plugin = filters, plugin
        self._filter = EvictionPipeline(*(each.filter for each in filters))
        self._pre_eviction_filter = EvictionPipeline(*(each.pre_eviction_filter for each in filters))

    def filter(self, pod: Pod) -> Refusals:
        return self._filter.evaluate(pod)

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        return self._pre_eviction_filter.evaluate(pod)


class EvictionLimiter:
    """How many pods may be evicted in one cycle; None is no limit, 0 forbids every eviction."""

    def __init__(self, per_node: int | None = None, per_namespace: int | None = None, total: int | None = None) -> None:
        self._per_node = per_node
        self._per_namespace = per_namespace
        self._limit = total
        self._nodes: dict[str, int] = {}
        self._namespaces: dict[str, int] = {}
        self.total = 0
        """Evictions in this cycle."""

    def refusals(self, pod: Pod) -> Refusals:
        """Why the pod would be one too many."""
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        if self._per_node is not None and node and self._nodes.get(node, 0) >= self._per_node:
            return ["maximum number of evicted pods per node reached"]
        if self._per_namespace is not None and self._namespaces.get(namespace, 0) >= self._per_namespace:
            return ["maximum number of evicted pods per namespace reached"]
        if self._limit is not None and self.total >= self._limit:
            return ["maximum number of evicted pods total reached"]
        return NOTHING_REFUSED

    def done(self, pod: Pod) -> None:
        """The pod has been evicted."""
        if pod.spec.node_name:
            self._nodes[pod.spec.node_name] = self._nodes.get(pod.spec.node_name, 0) + 1
        self._namespaces[pod.metadata.namespace] = self._namespaces.get(pod.metadata.namespace, 0) + 1
        self.total += 1
