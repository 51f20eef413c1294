"""The extension points of the scheduling framework, with the vectorised ones over columns of nodes.

The names and the order are the upstream framework's: QueueSort, PreEnqueue, PreFilter, Filter, PostFilter, PreScore,
Score, NormalizeScore, Reserve, Permit, PreBind, Bind, PostBind. A plugin is a class that derives from ``Plugin`` and
from the protocols of the points that it implements. One instance belongs to one profile.

Filter and Score work on many rows at once: they get an array of row numbers and answer with an array of the same
length. The engine calls them with all rows when it meets a class of pods for the first time, and afterwards only
with the rows of which something that the plugin ``reads`` has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows

MAX_NODE_SCORE: Final = 100
FEASIBLE: Final = 0
"""The reason code of a row that passed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node was ruled out, in the words that the user reads."""

    text: str
    unresolvable: bool = False
    """UnschedulableAndUnresolvable: evicting pods from the node would not help."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod takes of a node. Columns are those of NodeColumns.resources."""

    amounts: Mapping[int, int]
    """Column -> amount, without zeros, without the pod itself."""
    non_zero: tuple[int, int]
    """CPU and memory with the upstream defaults (100 milli-CPU, 200 MiB per container) where nothing is requested."""


@dataclass(slots=True)
class PodInfo:
    """A pod with all that is derived from it once."""

    pod: Pod
    request: PodRequest
    key: str
    """``namespace/name``."""
    uid: str
    priority: int
    memo: dict[str, Any] = field(default_factory=dict)
    """What plugins have derived from the pod, by names of their own. It lives as long as spec (but for the node's
    name), labels and annotations stay the same, so through assuming and binding."""


class EventKind:
    """Names of what may free a parked pod, as plugins list them (upstream: resource/action)."""

    NODE_ADD: Final = "Node/Add"
    NODE_ALLOCATABLE: Final = "Node/UpdateNodeAllocatable"
    NODE_LABEL: Final = "Node/UpdateNodeLabel"
    NODE_TAINT: Final = "Node/UpdateNodeTaint"
    NODE_CONDITION: Final = "Node/UpdateNodeCondition"
    POD_DELETE: Final = "Pod/Delete"
    """An assigned pod went away, finished, or shrank."""
    POD_ADD: Final = "Pod/Add"
    """An assigned pod appeared."""
    POD_UPDATE: Final = "Pod/Update"
    """The parked pod itself changed."""
    NODE_METRIC: Final = "NodeMetric"


class PluginError(Exception):
    """A plugin could not decide; ends the attempt of this pod, not the program."""


@dataclass(slots=True)
class ClusterView:
    """What decisions read. The engine owns it; plugins may keep columns of their own beside it (see Observer)."""

    columns: NodeColumns
    pods_on: dict[int, dict[str, PodInfo]] = field(default_factory=dict)
    """Row -> uid -> pod, assumed pods included."""
    now: datetime | None = None
    """The moment of the decision or the event, set before each one."""


class Plugin(ABC):
    """A named member of one profile. ``args`` is the decoded ``pluginConfig`` entry, defaulted and validated."""

    name: ClassVar[str]

    def __init__(self, args: Any, view: ClusterView) -> None:
        self.args = args
        self.view = view

    def class_key(self, pod: Pod) -> Hashable:
        """All of the pod that this plugin reads in PreFilter, Filter, PreScore and Score.

        Pods for which every plugin gives equal keys share masks and scores. The default shares nothing.
        """
        return pod.metadata.uid

    def wakes_on(self) -> frozenset[str]:
        """The event kinds that may make a node pass that this plugin ruled out."""
        return frozenset()


class Observer:
    """A plugin that keeps columns of its own. Called in the order of events, before the engine recomputes rows."""

    def on_node(self, row: int, node: Node) -> None:
        """The node of ``row`` is new or changed."""
        return

    def on_node_removed(self, row: int, name: str) -> None:
        """``row`` is free now; what was kept for it must go."""
        return

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        """The pod counts on ``row`` from now on; called again (assumed False) when its binding is confirmed and
        whenever a pod on the row has changed."""
        return

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        """The pod no longer counts on ``row``: deleted, finished, or its binding failed."""
        return

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        """An object that bears the node's name (kind ``NodeMetric``, later ``Device``, ``NodeResourceTopology``) is
        new, changed or, with None, gone. Also called for a new node whose object was there first."""
        return

    def on_time(self, now: datetime) -> None:
        """A decision is about to be made at ``now``: touch the rows that time alone has changed (a measurement that
        has expired). Called before every decision, so it must be quick when nothing is due."""
        return


class QueueSortPlugin(Plugin):
    @abstractmethod
    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smaller is scheduled first. ``queued_at`` is in seconds of the queue's clock."""


class PreEnqueuePlugin(Plugin):
    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Reason | None:
        """Why the pod must not be queued yet; None lets it in."""


class PreFilterPlugin(Plugin):
    @abstractmethod
    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        """Once for each class of pods, before its rows are filtered."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """``state`` is handed to Filter. ``skip``: the plugin's Filter has nothing to say about this class of pods."""

    state: Any = None
    skip: bool = False
    rejection: Reason | None = None
    """Rules out every node, with this reason."""
    node_names: frozenset[str] | None = None
    """If set, only these nodes are considered at all."""


class FilterPlugin(Plugin):
    reads: ClassVar[tuple[Aspect, ...]]

    @abstractmethod
    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        """A reason code for each of ``rows``: FEASIBLE (0), or a positive number that ``reasons`` explains."""

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The same for a single row: what most decisions ask for, since a placement changes one row. Plain integers
        are several times as fast here as arrays of one; worth writing where it is measured to matter."""
        return int(self.filter(pod, state, np.array((row,), dtype=np.intp))[0])

    @abstractmethod
    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        """The reasons that ``code`` stands for; a code may stand for several (too little cpu *and* memory)."""


class ScorePlugin(Plugin):
    score_reads: ClassVar[tuple[Aspect, ...]]

    def pre_score(self, pod: PodInfo) -> Any:
        """State for ``score``; None (the default) when there is nothing to prepare, SKIP_SCORE to be left out."""
        return None

    @abstractmethod
    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        """An integer score for each of ``rows``: 0..100, or any scale that ``normalize`` brings to 0..100."""

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The same for a single row, see FilterPlugin.filter_one."""
        return int(self.score(pod, state, np.array((row,), dtype=np.intp))[0])

    def normalize(self, raw: Ints, feasible: Mask) -> Ints | None:
        """Scores of all rows (only the feasible ones count) brought to 0..100; None (default): they already are."""
        return None


class SkipScore:
    """Type of SKIP_SCORE."""


SKIP_SCORE: Final = SkipScore()
"""Returned by pre_score when the plugin has no preference about this class of pods."""


class ReservePlugin(Plugin):
    @abstractmethod
    def reserve(self, pod: PodInfo, row: int) -> None:
        """The pod will go to ``row``. Raises PluginError to refuse; then, as after any later failure, all reserve
        plugins' ``unreserve`` run in reverse order."""

    @abstractmethod
    def unreserve(self, pod: PodInfo, row: int) -> None:
        """Undo ``reserve``; must also work when it never ran."""


class PreBindPlugin(Plugin):
    @abstractmethod
    async def pre_bind(self, pod: PodInfo, node_name: str) -> None:
        """I/O that must be done before the binding. Raises to fail it."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, pod: PodInfo, node_name: str) -> None:
        """The pod is bound."""


def default_normalize(raw: Ints, feasible: Mask, *, reverse: bool) -> Ints:
    """Upstream's DefaultNormalizeScore: scale by the largest feasible score to 0..100; reversed, 100 minus that.

    All zero stays zero, or is 100 everywhere when reversed.
    """
    largest = int(raw[feasible].max()) if feasible.any() else 0
    if largest == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if reverse else raw
    scaled = raw * MAX_NODE_SCORE // largest
    return MAX_NODE_SCORE - scaled if reverse else scaled
