"""What holds for a rejected pod: whether an event may make it schedulable (a queueing hint), and by which pods on a
node the anti-affinity is violated, or which pods the affinity misses.

Upstream's hints miss three events, after which a pod waits for minutes although it fits: the deletion of a pod with a
required anti-affinity against it, of one of several pods that its own anti-affinity matches, and of the last pod that
its affinity matches, if that also matches itself, so that it may be the first pod of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Lack, selector_text, some
from koordinator.scheduler.plugins.inter_pod_affinity.class_states import FilterState
from koordinator.scheduler.plugins.inter_pod_affinity.term_counters import OwnTerm, OwnTerms
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term
from koordinator.scheduler.plugins.node_labels import NO_DOMAIN, Topologies


@dataclass(frozen=True, slots=True)
class Waiting:
    """The terms on which an unschedulable pod depends. Each method returns whether an event may make it schedulable."""

    own: OwnTerms
    blocking: frozenset[Term]

    def pod_added(self, new: PodInfo) -> bool:
        """A pod was added to a node."""
        return self._attracts(new)

    def pod_relabeled(self, old: PodInfo, new: PodInfo) -> bool:
        """The labels of a pod on a node have changed."""
        attracted, attracts = self._attracts(old), self._attracts(new)
        if attracts != attracted and (attracts or self.own.matches_itself):
            return True
        return any(_matches(own, old) and not _matches(own, new) for own in self.own.anti_affinity)

    def pod_removed(self, old: PodInfo, *, repelled: bool) -> bool:
        """A pod is no longer on a node; ``repelled``: its required anti-affinity matched the unschedulable pod."""
        if repelled or any(_matches(own, old) for own in self.own.anti_affinity):
            return True
        return self.own.matches_itself and self._attracts(old)

    def node_added(self, new: Node) -> bool:
        """A node was added. Without any of the topology keys it can neither take the pod nor change a domain."""
        labels = new.metadata.labels
        return not self.own.affinity or any(own.term.topology_key in labels for own in self.own.affinity)

    def node_relabeled(self, old: Node, new: Node) -> bool:
        """The labels of a node have changed."""
        before, after = old.metadata.labels, new.metadata.labels
        for own in self.own.affinity:
            key = own.term.topology_key
            if before.get(key) != after.get(key) and (key in after or self.own.matches_itself):
                return True
        keys = {own.term.topology_key for own in self.own.anti_affinity} | {term.topology_key for term in self.blocking}
        return any(key in before and before[key] != after.get(key) for key in keys)

    def namespace_changed(self, old: Object | None, new: Object | None) -> bool:
        """A namespace was added, deleted or relabeled, so that terms with a namespaceSelector may match other pods."""
        if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
            # It may be the pod's namespace, which the terms of any existing pod may select.
            return True
        selectors = (own.term.namespace_selector for own in (*self.own.affinity, *self.own.anti_affinity))
        there = [each.metadata.labels for each in (old, new) if each is not None]
        return old is not new and any(selector.matches(labels) for selector in selectors for labels in there)

    def _attracts(self, pod: PodInfo) -> bool:
        return bool(self.own.affinity) and all(_matches(own, pod) for own in self.own.affinity)


def _matches(own: OwnTerm, pod: PodInfo) -> bool:
    return own.matches(pod.pod.metadata.namespace, pod.pod.metadata.labels)


_Domain = tuple[str, int]
"""(topology key, domain number)."""


@dataclass(slots=True, weakref_slot=True)
class Explanation:
    """Explains the results of one pod for all nodes. What is found for a domain is cached for its other nodes."""

    view: ClusterView
    topologies: Topologies
    namespace: str
    """The pod's namespace."""
    own: OwnTerms
    blocking: frozenset[Term]
    """The required anti-affinity terms of existing pods that match the pod."""
    carries: Callable[[Term, PodInfo], bool]
    """Returns whether an existing pod carries the term."""
    _known: dict[_Domain, list[Lack]] = field(default_factory=dict)

    def lacks(self, state: FilterState, row: int) -> list[Lack]:
        """All reasons why the pod does not fit on ``row``; ``state`` is the one by which ``row`` was filtered."""
        found = self._missing(state, row)
        for key in sorted(
            {own.term.topology_key for own in self.own.anti_affinity} | {t.topology_key for t in self.blocking}
        ):
            found += self._conflicting(key, row)
        return found

    def _missing(self, state: FilterState, row: int) -> list[Lack]:
        """The reasons by the pod's own affinity: a missing topology label, or no matching pod in the row's domain."""
        found = []
        for key, places in state.near(row).items():
            if self.topologies[key].domain[row] == NO_DOMAIN:
                found.append(Lack(f"the node has no label {key}"))
            elif places is not None:
                where = f"such pods are where {key} is {some(places)}" if places else "there is no such pod on any node"
                found.append(Lack(f"no pod with {self._wanted()} where {self._place(key, row)}; {where}"))
        return found

    def _wanted(self) -> str:
        """The labels and namespaces that a pod must have to match all terms of the affinity, in words."""
        return " and ".join(dict.fromkeys(self._meant(own) for own in self.own.affinity))

    def _conflicting(self, key: str, row: int) -> list[Lack]:
        domain = int(self.topologies[key].domain[row])
        if domain == NO_DOMAIN:
            return []
        known = self._known.get((key, domain))
        if known is None:
            known = self._known[key, domain] = [*self._against_others(key, row), *self._against_this(key, row)]
        return known

    def _against_others(self, key: str, row: int) -> Iterator[Lack]:
        """The existing pods that match the pod's own anti-affinity."""
        for own in self.own.anti_affinity:
            if own.term.topology_key == key:
                names = self._pods_near(key, row, partial(_matches, own))
                if names:
                    place = self._place(key, row)
                    yield Lack(f"the pod wants none with {self._meant(own)} where {place}: there {_are(names)}")

    def _against_this(self, key: str, row: int) -> Iterator[Lack]:
        """The existing pods whose anti-affinity matches the pod."""
        terms = [term for term in self.blocking if term.topology_key == key]
        for term in sorted(terms, key=lambda term: selector_text(term.selector)):
            names = self._pods_near(key, row, partial(self.carries, term))
            if names:
                wants = "wants" if len(names) == 1 else "want"
                text = f"{some(names)} {wants} no pod with {selector_text(term.selector)} where {self._place(key, row)}"
                yield Lack(text)

    def _pods_near(self, key: str, row: int, wanted: Callable[[PodInfo], bool]) -> list[str]:
        """The keys of the pods in the row's domain for which ``wanted`` returns True."""
        topology, pods_on = self.topologies[key], self.view.pods_on
        rows = sorted(topology.rows(int(topology.domain[row])))
        return [pod.key for each in rows for pod in pods_on.get(each, {}).values() if wanted(pod)]

    def _place(self, key: str, row: int) -> str:
        node = self.view.columns.nodes[row]
        labels: Mapping[str, str] = node.metadata.labels if node is not None else {}
        return f"{key}={labels.get(key, '')}"

    def _meant(self, own: OwnTerm) -> str:
        text = selector_text(own.term.selector)
        if own.namespaces is None:
            return f"{text} of any namespace"
        others = own.namespaces != {self.namespace}
        return f"{text} of {', '.join(sorted(own.namespaces)) or 'no namespace'}" if others else text


def _are(names: Sequence[str]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {some(names)}"
