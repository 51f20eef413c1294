"""NodeAffinity: nodeSelector, required and preferred node affinity, and the affinity that the profile adds to all
pods."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import NodeAffinity as NodeAffinityTerms
from koordinator.model.node_selector import (
    NodePredicate,
    node_names,
    preferred_score,
    required_predicate,
    selector_predicate,
)
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import (
    SKIP_FILTER,
    SKIP_SCORE,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    default_normalize,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.unmet_selector import unmet

_CELLS: Final = 2_000_000
_NEVER: Final = -1


class _Results:
    """The results of one key: for each row, with the version of the node that it was computed from."""

    def __init__(self) -> None:
        self.values: Ints = np.zeros(0, dtype=np.int64)
        self.versions: Ints = np.zeros(0, dtype=np.int64)

    def fit(self, rows: int) -> None:
        known = self.values.shape[0]
        if known < rows:
            self.values = np.concatenate([self.values, np.zeros(rows - known, dtype=np.int64)])
            self.versions = np.concatenate([self.versions, np.full(rows - known, _NEVER, dtype=np.int64)])


class NodeResults:
    """Results by key; the least recently used keys are dropped first."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._by_key: OrderedDict[Hashable, _Results] = OrderedDict()

    def evaluate(self, key: Hashable, compute: Callable[[Node | None], int], rows: Rows) -> Ints:
        """The results of ``compute`` for the node of each of ``rows`` (None: a free row), recomputed only where the
        node has changed. ``key`` is equal for functions that return the same."""
        columns = self._columns
        known = self._of(key)
        versions = columns.versions(Aspect.NODE)
        stale = rows[known.versions[rows] != versions[rows]]
        if stale.shape[0]:
            known.values[stale] = [compute(columns.nodes[row]) for row in stale.tolist()]
            known.versions[stale] = versions[stale]
        return known.values[rows]

    def _of(self, key: Hashable) -> _Results:
        size = self._columns.size
        known = self._by_key.get(key)
        if known is None:
            while self._by_key and (len(self._by_key) + 1) * size > _CELLS:
                self._by_key.popitem(last=False)
            known = self._by_key[key] = _Results()
        else:
            self._by_key.move_to_end(key)
        known.fit(size)
        return known


_ENFORCED: Final = 1
_OF_POD: Final = 2
_REASONS: Final = {
    _ENFORCED: Reason("node(s) didn't match scheduler-enforced node affinity", unresolvable=True),
    _OF_POD: Reason("node(s) didn't match Pod's node affinity/selector", unresolvable=True),
}
_CONFLICT: Final = Reason("pod affinity terms conflict", unresolvable=True)


@dataclass(frozen=True, slots=True)
class _Terms:
    key: Hashable
    added: NodePredicate | None
    of_pod: NodePredicate | None


@dataclass(frozen=True, slots=True)
class _Preferences:
    key: Hashable
    scores: tuple[Callable[[Node], int], ...]


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin, Explainer):
    name = "NodeAffinity"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._results = NodeResults(view.columns)
        added: NodeAffinityTerms | None = getattr(args, "added_affinity", None)
        required = added.required_during_scheduling_ignored_during_execution if added else None
        self._added = selector_predicate(required) if required else None
        self._added_preference = (
            preferred_score(added.preferred_during_scheduling_ignored_during_execution) if added else None
        )

    def class_key(self, pod: PodInfo) -> Hashable:
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is None and not spec.node_selector:
            return None
        return tuple(sorted(spec.node_selector.items())), msgspec.json.encode(affinity)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        of_pod = required_predicate(pod.pod)
        if of_pod is None and self._added is None:
            return SKIP_FILTER
        state = _Terms(("required", self.class_key(pod)), self._added, of_pod)
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        if required is None or not required.node_selector_terms:
            return PreFilterResult(state)
        names = node_names(required)
        if names is not None and not names:
            return PreFilterResult(state, rejection=_CONFLICT)
        return PreFilterResult(state, node_names=names)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        def code(node: Node | None) -> int:
            if node is None:
                return 0
            if state.added is not None and not state.added(node):
                return _ENFORCED
            return 0 if state.of_pod is None or state.of_pod(node) else _OF_POD

        return self._results.evaluate(state.key, code, rows)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_REASONS[code],)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        node = self.view.columns.nodes[row]
        return [Lack(text) for text in unmet(pod.pod, node)] if code == _OF_POD and node is not None else []

    def pre_score(self, pod: PodInfo) -> Any:
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        preferred = preferred_score(affinity.preferred_during_scheduling_ignored_during_execution) if affinity else None
        preferences = tuple(score for score in (self._added_preference, preferred) if score is not None)
        return _Preferences(("preferred", self.class_key(pod)), preferences) if preferences else SKIP_SCORE

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        preferences: _Preferences = state

        def sum_of(node: Node | None) -> int:
            return sum(score(node) for score in preferences.scores) if node is not None else 0

        return self._results.evaluate(preferences.key, sum_of, rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=False)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_LABEL})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        if event.new is None:
            return True
        of_pod = required_predicate(pod.pod)
        enforced = self._added is None or self._added(event.new)
        return enforced and (of_pod is None or of_pod(event.new))
