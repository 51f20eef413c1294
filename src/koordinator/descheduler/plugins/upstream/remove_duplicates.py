"""RemoveDuplicates: pods of one owner spread over the nodes that could have them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.framework import BalancePlugin, Eviction, Plan, Snapshot
from koordinator.descheduler.node_fit import selects_node, tolerates_node
from koordinator.descheduler.plugins.selection import Strategy, StrategyArguments
from koordinator.model.node_selector import required_affinity

_Owner = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind, name, and the images that the pods run: one owner may have pods for different purposes."""


class RemoveDuplicatesArgs(StrategyArguments):
    exclude_owner_kinds: list[str] = []


class RemoveDuplicates(Strategy, BalancePlugin):
    """A node keeps as many pods of an owner as each would have, if all had the same, rounded up."""

    name = "RemoveDuplicates"
    args_type = RemoveDuplicatesArgs
    args: RemoveDuplicatesArgs

    def balance(self, snapshot: Snapshot) -> Plan:
        total: Counter[_Owner] = Counter()
        duplicates: dict[_Owner, dict[str, list[Pod]]] = defaultdict(dict)
        for node in snapshot.nodes:
            for owners, pods in self._alike(snapshot.pods_on(node.metadata.name)):
                for owner in owners:
                    total[owner] += len(pods)
                    if len(pods) > 1:
                        duplicates[owner].setdefault(node.metadata.name, []).extend(pods[1:])
        for owner, by_node in duplicates.items():
            targets = _count_targets((pod for pods in by_node.values() for pod in pods), snapshot.nodes)
            if targets < 2:
                continue
            most = -(-total[owner] // targets)
            for name, pods in by_node.items():
                reason = f"node {name} has {len(pods) + 1} pods of {owner[1]} {owner[0]}/{owner[2]}"
                kept = max(most - 1, 0)
                surplus = len(pods) - kept
                # One may not be evicted, for a PodDisruptionBudget say: then one of those that would stay goes.
                for pod in (*pods[kept:], *reversed(pods[:kept])):
                    if surplus <= 0:
                        break
                    surplus -= yield Eviction(pod, reason)

    def _alike(self, pods: Sequence[Pod]) -> Iterable[tuple[tuple[_Owner, ...], list[Pod]]]:
        """The evictable pods of a node by their owners and images."""
        groups: dict[tuple[_Owner, ...], list[Pod]] = defaultdict(list)
        for pod in pods:
            references = pod.metadata.owner_references
            if not references or any(owner.kind in self.args.exclude_owner_kinds for owner in references):
                continue
            if self._allows(pod):
                images = tuple(sorted(container.image for container in pod.spec.containers))
                owners = ((pod.metadata.namespace, owner.kind, owner.name, images) for owner in references)
                groups[tuple(sorted(owners))].append(pod)
        return groups.items()


def _count_targets(pods: Iterable[Pod], nodes: Sequence[Node]) -> int:
    """How many nodes could have pods like these; a kind of pod that fits one node only does not count."""
    kinds: dict[bytes, Pod] = {}
    for pod in pods:
        key = msgspec.json.encode(
            (pod.spec.tolerations, required_affinity(pod), sorted(pod.spec.node_selector.items()))
        )
        kinds.setdefault(key, pod)
    found: set[str] = set()
    for pod in kinds.values():
        matching = {node.metadata.name for node in nodes if tolerates_node(pod, node) and selects_node(pod, node)}
        if len(matching) > 1:
            found |= matching
    return len(found)
