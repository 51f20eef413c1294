"""Explains a rejected node: by which pods there the anti-affinity is violated, or which pods the affinity misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.explain.wording import selector_text, some
from koordinator.scheduler.plugins.inter_pod_affinity.class_states import FilterState
from koordinator.scheduler.plugins.inter_pod_affinity.term_counters import OwnTerm
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term
from koordinator.scheduler.plugins.topologies import NO_DOMAIN, Topologies

_Domain = tuple[str, int]
"""(topology key, domain number)."""


@dataclass(slots=True, weakref_slot=True)
class Explanation:
    """Explains the results of one pod for all nodes. What is found for a domain is cached for its other nodes."""

    view: ClusterView
    topologies: Topologies
    namespace: str
    """The pod's namespace."""
    affinity: Sequence[OwnTerm]
    anti_affinity: Sequence[OwnTerm]
    blocking: frozenset[Term]
    """The required anti-affinity terms of existing pods that match the pod."""
    carries: Callable[[PodInfo, Term], bool]
    """Returns whether an existing pod carries the term."""
    _known: dict[_Domain, list[Lack]] = field(default_factory=dict)

    def lacks(self, state: FilterState, row: int) -> list[Lack]:
        """All reasons why the pod does not fit on ``row``; ``state`` is the one by which ``row`` was filtered."""
        found = self._missing(state, row)
        for key in sorted(
            {own.term.topology_key for own in self.anti_affinity} | {t.topology_key for t in self.blocking}
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
        return " and ".join(dict.fromkeys(self._meant(own) for own in self.affinity))

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
        for own in self.anti_affinity:
            if own.term.topology_key == key:
                names = self._pods_near(key, row, _matching(own))
                if names:
                    place = self._place(key, row)
                    yield Lack(f"the pod wants none with {self._meant(own)} where {place}: there {_are(names)}")

    def _against_this(self, key: str, row: int) -> Iterator[Lack]:
        """The existing pods whose anti-affinity matches the pod."""
        terms = [term for term in self.blocking if term.topology_key == key]
        for term in sorted(terms, key=lambda term: selector_text(term.selector)):
            names = self._pods_near(key, row, self._carriers(term))
            if names:
                wants = "wants" if len(names) == 1 else "want"
                text = f"{some(names)} {wants} no pod with {selector_text(term.selector)} where {self._place(key, row)}"
                yield Lack(text)

    def _carriers(self, term: Term) -> Callable[[PodInfo], bool]:
        return lambda pod: self.carries(pod, term)

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


def _matching(own: OwnTerm) -> Callable[[PodInfo], bool]:
    return lambda pod: own.matches(pod.pod.metadata.namespace, pod.pod.metadata.labels)


def _are(names: Sequence[str]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {some(names)}"
