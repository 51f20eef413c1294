"""The extension points of the scheduling framework; Filter and Score are vectorised over columns of nodes.

The names and the order are the upstream framework's: QueueSort, PreEnqueue, PreFilter, Filter, PostFilter, PreScore,
Score, NormalizeScore, Reserve, Permit, PreBind, Bind, PostBind. A plugin is a class that derives from ``Plugin`` and
from the protocols of the points that it implements. One instance belongs to one profile.

Filter and Score work on many rows at once: they take an array of node indices and return an array of the same length.
The engine calls them with all rows when it meets a class of pods for the first time, and afterwards only with the rows
of which something that the plugin ``reads`` has changed. A plugin whose result for one node depends on others (topology
spread, pod affinity) returns the further rows that a change affects, see FilterPlugin.apply_delta.

PostFilter is in ``post_filter``, Reserve to PostBind in ``binding_points``, and Koordinator's own points, around and
between these, are in ``framework_hooks``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.columns import AnyAspect, Ints, Mask, Rows
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

MIN_NODE_SCORE: Final = 0
MAX_NODE_SCORE: Final = 100
ScoreType = type[np.int16] | type[np.int32] | type[np.int64]
FEASIBLE: Final = 0
"""The reason code of a row that passed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node was rejected, in the text shown to the user."""

    text: str
    unresolvable: bool = False
    """UnschedulableAndUnresolvable: evicting pods from the node would not help."""


class PluginError(Exception):
    """A plugin failed to decide; ends the attempt of this pod, not the program."""


class ScoreReports(Protocol):
    """What the engine's own modules use of a plugin's handle."""

    def unusable_score(self, plugin: str, subject: str, score: int) -> None:
        """Report a score out of range, which the plugin has given ``subject``, a node or a Reservation, and in place of
        which the lowest one counts."""


class Plugin(ABC):
    """A named member of one profile. ``args`` is the decoded ``pluginConfig`` entry, defaulted and validated."""

    name: ClassVar[str]
    watches: ClassVar[tuple[Kind[Any], ...]] = ()
    """The kinds, beside pods and nodes, that the plugin reads from ``view.objects``."""
    node_objects: ClassVar[tuple[Kind[Any], ...]] = ()
    """The kinds whose objects bear a node's name; the plugin gets them by EventHandler.on_node_object."""
    args_type: ClassVar[type[Any] | None] = None
    """The type that the ``args`` of a plugin of another package are decoded into, a msgspec.Struct or a dataclass;
    without it they are the mapping from the configuration file. Those of built-in plugins are in the configuration's
    own table."""
    part_types: ClassVar[tuple[type[Plugin], ...]] = ()
    """The classes of the plugin's parts. Each derives from the protocols of points that belong together, has the
    plugin's name, and is called where the profile lists the plugin, as if the plugin implemented these points itself.
    Only one of them, or the plugin, implements a point."""

    handle: ScoreReports
    """The plugin's access to the scheduler and to the other plugins of its profile (upstream: framework.Handle). Set
    once all plugins of the profile exist, so not yet in ``__init__``. It is a ``Handle``, which knows the whole engine
    above this module: a plugin that uses it has ``handle: Handle`` in its class."""

    def __init__(self, args: Any, view: ClusterView) -> None:
        self.args = args
        self.view = view

    @cached_property
    def parts(self) -> tuple[Plugin, ...]:
        """An instance of each of ``part_types``. A plugin whose parts share more than the arguments and the view, or
        whose arguments leave out some of them, sets this in ``__init__``."""
        return tuple(part(self.args, self.view) for part in self.part_types)

    @property
    def watched_kinds(self) -> tuple[Kind[Any], ...]:
        """Those of ``watches`` that this instance, with its arguments, reads; the default: all."""
        return self.watches

    def watch_scope(self, kind: Kind[Any]) -> tuple[str, str]:
        """The namespace and the field selector that restrict the watch of a kind in ``watches``; "" for all, the
        default. Worth implementing for a kind with many objects of which one is read, such as ConfigMaps."""
        return "", ""

    def class_key(self, pod: PodInfo) -> Hashable:
        """Everything of the pod itself that this plugin reads in PreFilter, Filter, PreScore and Score.

        Pods with equal keys share this plugin's results for nodes, however they differ otherwise. By default, nothing
        is shared. Called once for each pod (as long as its spec, labels and annotations stay the same).
        """
        return pod.uid

    def context_key(self, pod: PodInfo) -> Hashable:
        """Everything else that the results for the pod depend on and that is not reported as an event about a row: the
        state of its volume claims, whether pods elsewhere have anti-affinity to its labels. Called before every
        decision, so it must be quick."""
        return None

    def concerns(self, pod: PodInfo) -> bool:
        """Whether the plugin may have anything to do in an attempt of the pod beside PreFilter, Filter, PreScore and
        Score: at PreEnqueue, in ``context_key``, at PreFilter of the attempt, when the node is chosen, and from Reserve
        to PostBind. Where it is False, none of these is called, so that most plugins cost most pods nothing. May read
        of the pod what ``class_key`` may read, but neither its name nor its uid; called once for pods that are equal in
        that, and again when ``view.concerns_version`` has grown. The default is True."""
        return True

    @cached_property
    def _registering(self) -> list[Plugin]:
        return [part for part in self.parts if type(part).events_to_register is not Plugin.events_to_register]

    def events_to_register(self) -> frozenset[str]:
        """The event kinds that may make a node pass that this plugin rejected; the default: those of its parts."""
        return frozenset[str]().union(*[part.events_to_register() for part in self._registering])

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether ``event``, of a kind that ``events_to_register`` names, may make a node pass for ``pod`` that this
        plugin rejected (upstream: a QueueingHint). If uncertain, True. Identical pods share the result. The default is
        True, unless the parts that register such events say no."""
        registered = [part for part in self._registering if event.kind in part.events_to_register()]
        return not registered or any(part.queueing_hint(pod, event) for part in registered)


class EventHandler:
    """A plugin that keeps columns of its own. Called in the order of events, before the engine recomputes rows.

    One that fails at an event is rebuilt soon after: ``on_reset`` is called, and then its other methods for everything
    that is there."""

    @property
    def event_handler(self) -> EventHandler:
        """The object that is notified of events in its place: what several plugins derive from events may be derived
        once, for all of them."""
        return self

    handles_status_updates: ClassVar[bool] = True
    """Whether it is notified, too, of pods on nodes of which neither spec nor labels, annotations and owners have
    changed: confirmed bindings, status reports of the kubelet. There are many such changes."""

    def reads_pod(self, pod: PodInfo) -> bool:
        """Whether it derives anything from the pod. Where it is False, the methods about pods need not be called for
        it, so that most handlers cost most pods nothing. May read of the pod what ``Plugin.concerns`` may read; called
        once for pods that are equal in that, and only for pods that get a node here. The default is True."""
        return True

    def on_reset(self) -> None:
        """Forget everything that events have said, whatever state a failed method has left behind, and nothing else:
        what was decided about pods that are being bound stays. Versions in keys must not begin again. The default makes
        a plugin as its ``__init__`` does, and leaves another object as it is."""
        if isinstance(self, Plugin):
            type(self).__init__(self, self.args, self.view)

    def on_node(self, row: int, node: Node) -> None:
        """The node of ``row`` is new or changed."""
        return

    def on_node_removed(self, row: int, name: str) -> None:
        """``row`` is free now; drop what was kept for it."""
        return

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        """The pod counts on ``row`` from now on; called again (``assumed`` False) when its binding is confirmed and
        whenever a pod on the row has changed otherwise than in its size, see ``handles_status_updates``."""
        return

    def on_pod_resized(self, row: int, before: PodInfo, after: PodInfo) -> None:
        """The API shows the pod, which stays on ``row``, with other requests, and maybe with further changes. The
        default removes and adds it."""
        self.on_pod_removed(row, before)
        self.on_pod_assigned(row, after, False)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        """The pod no longer counts on ``row``: deleted, finished, or its binding failed."""
        return

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        """The API has a pod that has not finished, on a node (known or not) or with "" on none, whichever scheduler
        handles it: it is new, has moved, or has changed in more than its status. Pods that are only assumed are
        reported by ``on_pod_assigned`` alone. Also called for pseudo-pods, whose uids are in ``view.pseudo_pods``."""
        return

    def on_pod_gone(self, pod: PodInfo) -> None:
        """The pod of an ``on_pod`` is deleted or has finished; handlers of its node's events are called before."""
        return

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        """An object that bears the node's name (kind ``NodeMetric``, later ``Device``, ``NodeResourceTopology``) is
        new, changed or, with None, gone. Also called for a new node whose object arrived first."""
        return

    @property
    def keeps_time(self) -> bool:
        """Whether ``on_time`` has to be called."""
        return type(self).on_time is not EventHandler.on_time

    def on_time(self, now: datetime) -> None:
        """Called before every decision with its time: touch the rows that the passing of time alone has changed (an
        expired measurement). Must be quick when nothing is due."""
        return

    def next_time_event(self) -> float | None:
        """When the passing of time alone may next make a rejected node pass, in seconds since the epoch; None for
        never. May be too early. Called often."""
        return None

    def time_events(self, now: datetime) -> Sequence[ClusterEvent]:
        """The nodes that the passing of time alone may have made pass until ``now``, as events for unschedulable pods;
        each once."""
        return ()

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        """An object of a kind that the plugin ``watches`` is new (``old`` None), changed or gone (``new`` None);
        ``view.objects`` shows it already."""
        return


class QueueSortPlugin(Plugin):
    @abstractmethod
    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """The sort key: the smallest is scheduled first. ``queued_at`` is in seconds of the queue's clock."""


class PreEnqueuePlugin(Plugin):
    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Reason | None:
        """The reason to keep the pod out of the queue for now; None admits it."""


class PreFilterPlugin(Plugin):
    @abstractmethod
    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        """Called once for each class of pods, before its rows are filtered."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """``state`` is passed to Filter. ``skip``: the plugin's Filter is not run for this class of pods."""

    state: Any = None
    skip: bool = False
    rejection: Reason | None = None
    """Rejects every node, with this reason."""
    node_names: frozenset[str] | None = None
    """If set, only these nodes are considered at all."""


SKIP_FILTER: Final = PreFilterResult(skip=True)
"""The plugin's Filter is not run for this class of pods."""


class FilterPlugin(Plugin):
    """A Filter has its rule in one form, which its base class names: FilterPlugin, many rows in arrays;
    ElementwiseFilterPlugin, arithmetic that is the same for many rows and for one; RowFilterPlugin, one row."""

    reads: ClassVar[tuple[AnyAspect, ...]]
    monotone: ClassVar[bool] = False
    """Whether taking pods off a node never makes it fail here. Always so if the plugin reads neither pods nor load."""
    from_columns: ClassVar[bool] = False
    """Whether the result depends on the pod and NodeColumns alone, so that Filter can run on hypothetical columns."""

    @abstractmethod
    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        """A reason code for each of ``rows``, which ascend: FEASIBLE (0), or a number that ``reasons`` explains."""

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The same for a single row, the most frequent call, since a placement changes one row. Plain integers are
        several times as fast here as arrays of one: a plugin for which that matters derives from one of the classes
        of ``plugin_forms``, instead of implementing this beside ``filter``."""
        return int(self.filter(pod, state, np.array((row,), dtype=np.intp))[0])

    def filter_last(self, pod: PodInfo, state: Any, rows: Rows, numbers: Ints) -> Ints:
        """``filter`` for the last of ``numbers`` identical pods on each of ``rows``, when the others are there already.
        Only for plugins with which more pods never make a row pass. Worth implementing for gangs; without it (and
        without ``from_columns``) the pods are placed in a simulation."""
        raise NotImplementedError

    def batch_filter(self) -> BatchKernel | None:
        """``filter`` for many kinds of pods at once; worth implementing where many kinds alternate, and the result
        follows from the class key and the aspects that are read of the row. Without it (None) each kind is evaluated by
        itself."""
        return None

    def apply_delta(self, pod: PodInfo, state: Any, rows: Rows) -> Rows | None:
        """Something that the plugin ``reads`` has changed on ``rows`` (freed rows among them): refresh ``state``, and
        return the *other* rows whose result this changes; None for none. Called before ``filter`` for ``rows``. Only
        for plugins whose result for a node depends on other nodes."""
        return None

    @abstractmethod
    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        """The reasons that ``code`` stands for; a code may stand for several (too little cpu *and* memory)."""


class ScorePlugin(Plugin):
    """A Score has its rule in one form, as a Filter: ScorePlugin, ElementwiseScorePlugin or RowScorePlugin."""

    score_reads: ClassVar[tuple[AnyAspect, ...]]
    scales_zeros_alike: ClassVar[bool] = False
    """Whether ``normalize`` maps scores that are all 0 to the same result, whatever nodes are feasible and whatever
    ``state`` is."""

    def pre_score(self, pod: PodInfo) -> Any:
        """State for ``score``; None (the default) when there is nothing to prepare, SKIP_SCORE to be skipped."""
        return None

    @abstractmethod
    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        """An integer score for each of ``rows``: 0..100, or any scale that ``normalize`` brings to 0..100."""

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The same for a single row, see FilterPlugin.filter_one."""
        return int(self.score(pod, state, np.array((row,), dtype=np.intp))[0])

    def batch_score(self) -> BatchKernel | None:
        """As FilterPlugin.batch_filter for ``score``."""
        return None

    def apply_score_delta(self, pod: PodInfo, state: Any, rows: Rows) -> bool:
        """As FilterPlugin.apply_delta for the state of ``score`` and ``normalize``; returns whether scores of other
        rows may have changed."""
        return False

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        """Scores of all rows (only the feasible ones count) scaled to 0..100; None (default): they already are. Called
        whenever ``raw`` or ``feasible`` or, by ``apply_score_delta``, ``state`` has changed."""
        return None


def may_read(says: Callable[[PodInfo], bool], pod: PodInfo) -> bool:
    """Whether a plugin says so of the pod. One that fails is called, and what fails there is told."""
    try:
        return says(pod)
    except Exception:
        return True


def is_built_in(plugin: Plugin) -> bool:
    """Whether the plugin comes with this package, so that its results need no checks."""
    return type(plugin).__module__.startswith("koordinator.")


class SkipScore:
    """Type of SKIP_SCORE."""


SKIP_SCORE: Final = SkipScore()
"""Returned by pre_score when the plugin has no preference for this class of pods."""


def default_normalize(raw: Ints, feasible: Mask, *, reverse: bool) -> Ints:
    """Upstream's DefaultNormalizeScore: scale by the largest feasible score to 0..100; reversed, 100 minus that.

    All zero stays zero, or is 100 everywhere when reversed.
    """
    # Mostly all scores are 0. A product is several times as fast as selecting what is feasible.
    largest = int((raw * feasible).max()) if np.count_nonzero(raw) else 0
    if largest == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if reverse else raw
    scaled = raw * MAX_NODE_SCORE // largest
    return MAX_NODE_SCORE - scaled if reverse else scaled
