"""Plugins that evaluate one node at a time: the adapter between plain Python for one node and rows of many nodes.

The author implements ``filter_node`` and ``score_node`` against a view of one node. The adapter calls them for each row
that the engine evaluates, which for a class of pods is every node once and then only the nodes that have changed. That
takes some microseconds for each node; a plugin that has to evaluate thousands of nodes for every single pod should
implement FilterPlugin and ScorePlugin directly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, Mask
from koordinator.scheduler.engine.events import EventKind, object_events
from koordinator.scheduler.engine.framework import FEASIBLE, Plugin, PluginError, Reason, ScorePlugin
from koordinator.scheduler.engine.plugin_forms import ReasonCodes, RowFilterPlugin, RowScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

_ALL_THAT_A_NODE_SHOWS: Final = (Aspect.NODE, Aspect.PODS, Aspect.LABELS)
_EVENTS: Final[Mapping[Aspect, frozenset[str]]] = {
    Aspect.NODE: frozenset(
        {EventKind.NODE_ALLOCATABLE, EventKind.NODE_LABEL, EventKind.NODE_TAINT, EventKind.NODE_CONDITION}
    ),
    Aspect.PODS: frozenset({EventKind.POD_ADD, EventKind.POD_DELETE, EventKind.POD_SCALE_DOWN}),
    Aspect.LABELS: frozenset({EventKind.POD_LABEL}),
    Aspect.LOAD: frozenset(),
}
_DIFFERENT_REASONS: Final = 10_000


class ScalarNode:
    """One node at the moment of the call. Amounts are integers: CPU in milli-CPU, everything else in whole units
    (bytes, counts)."""

    __slots__ = ("_row", "_view")

    def __init__(self, view: ClusterView, row: int) -> None:
        self._view = view
        self._row = row

    @property
    def name(self) -> str:
        return self._view.columns.names[self._row]

    @property
    def node(self) -> Node:
        """The Node object; must not be changed."""
        node = self._view.columns.nodes[self._row]
        assert node is not None
        return node

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        return self.node.metadata.labels

    @property
    def pods(self) -> list[Pod]:
        """The pods that are on the node, including assumed ones."""
        return [info.pod for info in self._view.pods_on[self._row].values()]

    def allocatable(self, resource: str) -> int:
        """The allocatable amount of a resource: ``allocatable("memory")``."""
        return self._view.columns.numbers[self._row].offered(resource)

    def requested(self, resource: str) -> int:
        """The amount that the pods on the node request; for ``pods``, their number."""
        return self.allocatable(resource) - self.free(resource)

    def free(self, resource: str) -> int:
        """Allocatable minus requested; negative on an overcommitted node."""
        return self._view.columns.numbers[self._row].free(resource)


class ScalarFilterPlugin(RowFilterPlugin):
    """Derive from it and implement ``filter_node``. ``reads`` names the aspects of a node that the result depends on;
    with fewer aspects, it is called less often."""

    reads: ClassVar[tuple[AnyAspect, ...]] = _ALL_THAT_A_NODE_SHOWS

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._of_nodes_alone = set(self.reads) <= {Aspect.NODE}
        self._codes = ReasonCodes()
        self._too_many = Reason(f"node(s) were rejected by plugin {self.name}, which gives too many different reasons")

    @abstractmethod
    def filter_node(self, pod: Pod, node: ScalarNode) -> str | Reason | None:
        """Why the pod cannot go to the node, or None. Nodes are counted by reason, so the text should be the same for
        many nodes: do not put the node's name or an amount in it. Preemption on the node is assumed to help unless the
        plugin ``reads`` the Node object alone; a Reason can set this itself."""

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        node = ScalarNode(self.view, row)
        try:
            result = self.filter_node(pod.pod, node)
        except Exception as error:
            raise _failure(self, "filter_node", node.name, error) from error
        return FEASIBLE if result is None else self._code(result, node.name)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return self._codes.reasons(code)

    def events_to_register(self) -> frozenset[str]:
        """All events that can change what ``filter_node`` sees."""
        return frozenset({EventKind.NODE_ADD, EventKind.POD_UPDATE}).union(
            object_events(*self.watches, *self.node_objects),
            *(_EVENTS[aspect] for aspect in self.reads if isinstance(aspect, Aspect)),
        )

    def _code(self, result: object, node: str) -> int:
        reason = Reason(result, self._of_nodes_alone) if isinstance(result, str) else result
        if not isinstance(reason, Reason) or not reason.text:
            raise _wrong(self, "filter_node", node, result, "None or a reason, a text that is not empty")
        return self._codes.of(reason if self._codes.has_room(_DIFFERENT_REASONS, reason) else self._too_many)


class ScalarScorePlugin(RowScorePlugin):
    """Derive from it and implement ``score_node``, and ``normalize_scores`` where scores are only comparable with each
    other. ``score_reads`` names the aspects of a node that the score depends on."""

    score_reads: ClassVar[tuple[AnyAspect, ...]] = _ALL_THAT_A_NODE_SHOWS

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.normalize_scores is not ScalarScorePlugin.normalize_scores and cls.normalize is ScorePlugin.normalize:
            # The engine checks whether a class overrides normalize, and saves a pass over all nodes for those that do
            # not.
            cls.normalize = cls._normalize_by_name  # type: ignore[assignment, method-assign]

    @abstractmethod
    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        """0 to 100, higher for a better node; any integer if there is a ``normalize_scores``."""

    def normalize_scores(self, pod: Pod, scores: Mapping[str, int]) -> Mapping[str, int]:
        """``scores`` (name of a feasible node -> score_node) scaled to 0..100, for the same nodes."""
        return scores

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        node = ScalarNode(self.view, row)
        try:
            score = self.score_node(pod.pod, node)
        except Exception as error:
            raise _failure(self, "score_node", node.name, error) from error
        return _whole(self, "score_node", node.name, score)

    def _normalize_by_name(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        names, rows = self.view.columns.names, np.flatnonzero(feasible).tolist()
        if not rows:
            return None
        try:
            result = self.normalize_scores(pod.pod, {names[row]: int(raw[row]) for row in rows})
        except Exception as error:
            raise _failure(self, "normalize_scores", "", error) from error
        if not isinstance(result, Mapping):
            raise _wrong(self, "normalize_scores", "", result, "a mapping from names of nodes to scores")
        scores = np.zeros_like(raw)
        for row in rows:
            scores[row] = _whole(self, "normalize_scores", names[row], result.get(names[row]))
        return scores


def _whole(plugin: Plugin, method: str, node: str, score: object) -> int:
    """The score as far as a column holds it: whether it is in range the engine sees, as of any plugin."""
    if not isinstance(score, int | np.integer) or isinstance(score, bool):
        raise _wrong(plugin, method, node, score, "a whole number")
    return max(-(2**63), min(int(score), 2**63 - 1))


def _wrong(plugin: Plugin, method: str, node: str, result: object, expected: str) -> PluginError:
    return PluginError(f"{_call(plugin, method, node)} returned {result!r}; expected is {expected}")


def _failure(plugin: Plugin, method: str, node: str, error: Exception) -> PluginError:
    return PluginError(f"{_call(plugin, method, node)} fails: {type(error).__name__}: {error}")


def _call(plugin: Plugin, method: str, node: str) -> str:
    return f"plugin {plugin.name}: {method}" + (f" of node {node}" if node else "")
