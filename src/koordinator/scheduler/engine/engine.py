"""The engine of one profile: ``decide`` chooses a node for a pod, or explains why there is none."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Final, NoReturn, TypeVar

from koordinator.scheduler.engine.batch_evaluator import BatchEvaluator
from koordinator.scheduler.engine.binding_points import CycleState, Wait
from koordinator.scheduler.engine.cached_results import SharedResults
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation import Evaluation, RandomSource
from koordinator.scheduler.engine.event_listeners import OnError
from koordinator.scheduler.engine.failed_attempt import Attempt
from koordinator.scheduler.engine.framework import EventHandler, PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import ForgetHandler
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import UNTIMED, PodPoints, PointTimes, Profile
from koordinator.scheduler.engine.rejection import Rejections, no_nodes, refused_on_node
from koordinator.scheduler.engine.simulation import allocate

T = TypeVar("T")
_TOP_NODES: Final = 3
_MEASURED_ONE_IN: Final = 10
"""So many decisions, since measuring costs as much as the usual decision, which evaluates one row."""
_LEAST_ROWS: Final = 1024
"""What a class takes beside its rows, some 25 KiB, is less than so many rows take. Without this, a cluster of twenty
nodes on which each Job is a class kept tens of thousands of them."""


class _PodClass:
    def __init__(self, evaluation: Evaluation, number: int) -> None:
        self.evaluation = evaluation
        self._number = number

    @cached_property
    def rejections(self) -> Rejections:
        """Those of its pods, of which most classes have none."""
        return Rejections(self._number)


class Engine:
    """Schedules pods of one profile. Holds the evaluations of classes of pods; beyond ``cells`` matrix cells, the least
    recently used are evicted."""

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        random: RandomSource,
        *,
        cells: int = 16_000_000,
        batches: bool = True,
    ) -> None:
        """Without ``batches``, each class of pods evaluates dirty nodes by itself; decisions are the same."""
        self.profile = profile
        self._state = state
        self._random = random
        self._cells = cells
        self.refresh: Callable[[Evaluation], None] = Evaluation.refresh
        """Refreshes an evaluation before it is used; may be replaced by a function that does more."""
        self.measure: Callable[[Evaluation], None] | None = None
        """The same, and measures the plugins: called in its place in some decisions."""
        self._decisions = 0
        self.check_time: Callable[[], None] = lambda: None
        """Called at points where a decision may take long and nothing is half done; raises PluginError to end the
        decision."""
        self.on_error: OnError = _raise
        """Called with each plugin error that does not end the attempt."""
        self.times: PointTimes = UNTIMED
        """Is notified of how long the other extension points take."""
        self._classes: OrderedDict[Hashable, _PodClass] = OrderedDict()
        self._last: tuple[Hashable, _PodClass] | None = None
        """The key and the class that were used last: pods of one workload come one after the other."""
        self._engine_filters = state.view.engine_filters
        """Those by which all classes are evaluated."""
        self._resources = state.view.columns.resources.width
        """The number of resources with a column when the plans of all classes were made."""
        self._shared = SharedResults()
        self._batch = BatchEvaluator(state.view.columns, profile.score_type) if batches else None
        self._width = 0
        """The sum of the widths of all classes."""
        self._numbers = itertools.count(1)
        self._timed = [
            (part.name, part) for part in profile.parts if isinstance(part, EventHandler) and part.keeps_time
        ]
        self._forgetting = profile.all(ForgetHandler)
        self._memo = profile.memo
        self.handle = Handle(profile, state, lambda: self.check_time(), self._current)
        for part in profile.parts:
            part.handle = self.handle

    def gate(self, pod: PodInfo) -> str | None:
        """Why the queue must not hold the pod yet; None admits it. Raises PluginError when a plugin fails."""
        points: PodPoints | None = pod.memo.get(self._memo)
        if points is None or points.version != self._state.view.concerns_version:
            points = self.profile.points(pod)
        return ": ".join(points.profile.gate(pod) or ()) or None if points.profile.pre_enqueue else None

    def decide(self, pod: PodInfo, now: datetime) -> Placement | Rejection:
        """Evaluate all nodes for ``pod`` and choose among the best at random. Changes nothing that another decision
        sees.

        Raises PluginError when a plugin fails.
        """
        view = self._state.view
        view.now = now
        for name, handler in self._timed:
            self._notify(name, handler.on_time, now)
        if not view.columns.row_of:
            return no_nodes()
        state = CycleState(pod)
        only: str | None = None
        try:
            points: PodPoints | None = pod.memo.get(self._memo)
            if points is None or points.version != view.concerns_version:
                points = self.profile.points(pod)
            profile = points.profile
            refusal, finder = None, profile.finder
            for plugin in profile.pre_filter_cycle:
                reason = plugin.pre_filter_cycle(state, pod)
                if reason is not None:
                    refusal = plugin.name, reason
                    break
            if finder is not None and refusal is None:
                found = finder.find_one_node(pod)
                if isinstance(found, Reason):
                    refusal = finder.name, found
                else:
                    only = found
            key = points.key
            if key is None or points.contexts != [plugin.context_key(pod) for plugin in profile.contexts]:
                key = self.profile.class_key(pod)
            pod_class = self._class_of(key, pod)
        except Exception as error:
            _raise_as_plugin_error(error)
        try:
            return self._evaluate(pod_class, key, state, profile, only, refusal)
        except Exception as error:
            self._discard(key, pod_class)
            _raise_as_plugin_error(error)

    def assume(self, placement: Placement) -> Rejection | None:
        """Count the pod on its node and run Reserve. If a plugin rejects the node (the rejection is returned) or fails
        (PluginError), everything is undone."""
        self._state.assume(placement.pod, placement.node.name)
        if not placement.profile.reserve and not placement.profile.allocators:
            return None
        begun = self.times.begin()
        try:
            refusal = self._reserve(placement)
        except Exception as error:
            self.times.end("Reserve", begun, "Error")
            self.forget(placement)
            _raise_as_plugin_error(error)
        self.times.end("Reserve", begun, "Success" if refusal is None else "Unschedulable")
        if refusal is not None:
            self.forget(placement)
            return refused_on_node(self.profile, *refusal, placement.node_name)
        return None

    def _reserve(self, placement: Placement) -> tuple[str, Reason] | None:
        """The plugin that rejects the node and its reason; None if none does."""
        state, pod, node, profile = placement.state, placement.pod, placement.node, placement.profile
        for name, result in allocate(profile, state, pod, node):
            if isinstance(result, Reason):
                return name, result
            self._state.view.allocations.take(node.index, pod, name, result)
        for plugin in profile.reserve:
            reason = plugin.reserve(state, pod, node)
            if reason is not None:
                return plugin.name, reason
        return None

    def permit(self, placement: Placement) -> dict[str, float] | Rejection:
        """Run the Permit plugins for an assumed pod. Returns the plugins that delay the binding with their timeouts in
        seconds (none: the pod may be bound), or a rejection. After that, or a PluginError, ``assume`` is undone."""
        waits: dict[str, float] = {}
        plugins = placement.profile.permit
        if not plugins:
            return waits
        begun = self.times.begin()
        try:
            for plugin in plugins:
                result = plugin.permit(placement.state, placement.pod, placement.node)
                if isinstance(result, Wait):
                    waits[plugin.name] = float(result.seconds)
                elif result is not None:
                    self.times.end("Permit", begun, "Unschedulable")
                    self.forget(placement)
                    return refused_on_node(self.profile, plugin.name, result, placement.node_name)
        except Exception as error:
            self.times.end("Permit", begun, "Error")
            self.forget(placement)
            _raise_as_plugin_error(error)
        self.times.end("Permit", begun, "Wait" if waits else "Success")
        return waits

    def has_bind_work(self, placement: Placement) -> bool:
        """Whether any plugin has something to do before the binding, or does the binding itself. Raises PluginError."""
        state, pod, node, profile = placement.state, placement.pod, placement.node, placement.profile
        for plugin in profile.pre_bind:
            try:
                if plugin.pre_binds(state, pod, node):
                    return True
            except Exception as error:
                text = f"plugin {plugin.name} failed in pre_binds: {type(error).__name__}: {error}"
                raise PluginError(text) from error
        if not profile.bind and not profile.reservation_pre_bind:
            return False
        return profile.is_reserve_pod(pod) or profile.is_bound_by_plugin(pod)

    def forget(self, placement: Placement) -> None:
        """Undo ``assume``; only the plugins' reservations if the API has the pod on a node by now. A failing plugin
        does not prevent the rest from being undone."""
        for plugin in reversed(placement.profile.reserve):
            self._notify(plugin.name, plugin.unreserve, placement.state, placement.pod, placement.node)
        self._state.forget(placement.pod.uid)
        for handler in self._forgetting:
            self._notify(handler.name, handler.forget_pod, placement.pod)

    def post_bind(self, placement: Placement) -> None:
        """Run the PostBind plugins after the binding; their errors are reported and change nothing."""
        if plugins := placement.profile.post_bind:
            begun = self.times.begin()
            for plugin in plugins:
                self._notify(plugin.name, plugin.post_bind, placement.state, placement.pod, placement.node)
            self.times.end("PostBind", begun)

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        """Whether a plugin has handled the failed attempt; a plugin that raises has not."""
        return any(self._notify(each.name, each.before_failure, pod, message) for each in self.profile.failure_handlers)

    def after_failure(self, pod: PodInfo, message: str) -> None:
        """Notify the plugins that the pod is back in the queue."""
        for handler in self.profile.failure_handlers:
            self._notify(handler.name, handler.after_failure, pod, message)

    def _notify(self, plugin: str, method: Callable[..., T], *arguments: object) -> T | None:
        """Call a plugin whose error must not end the attempt; the error is reported, and the result is None."""
        try:
            return method(*arguments)
        except Exception as error:
            self.on_error(plugin, method.__name__, error)
            return None

    def _evaluate(
        self,
        pod_class: _PodClass,
        key: Hashable,
        state: CycleState,
        profile: Profile,
        only: str | None,
        refusal: tuple[str, Reason] | None,
    ) -> Placement | Rejection:
        evaluation, pod, finder = pod_class.evaluation, state.pod, profile.finder
        evaluation.incoming = pod
        self._decisions += 1
        if self._decisions % _MEASURED_ONE_IN or self.measure is None:
            self.refresh(evaluation)
        else:
            self.measure(evaluation)
        nominations = self._state.view.nominations
        if refusal is not None:
            attempt = self._attempt(pod_class, key, state)
            attempt.refusal = refusal
            if finder is not None and refusal[0] == finder.name:
                attempt.involved = finder.rejected_by(pod)
            return pod_class.rejections.reject(attempt, self.times)
        has_capacity = _always if nominations.is_empty else self._attempt(pod_class, key, state).has_capacity
        if only is not None:
            choice = evaluation.take(only, has_capacity)
        else:
            preferred = profile.preferring.prefer_nodes(pod) if profile.preferring is not None else ()
            if not nominations.is_empty and (nominated := nominations.node_of(pod.uid)):
                preferred = nominated, *preferred
            choice = evaluation.choose(preferred, has_capacity, self._random)
        row = choice.row
        if row is None:
            attempt = self._attempt(pod_class, key, state)
            if only is not None and finder is not None:
                attempt.only, attempt.chosen_by = only, finder.name
            attempt.nominated_to_others = choice.passed_over
            return pod_class.rejections.reject(attempt, self.times)
        state.node = node = self._state.view.columns.reference(row)
        for plugin in profile.resizing:
            resized = plugin.resize_pod(pod, row)
            if isinstance(resized, Reason):
                return refused_on_node(self.profile, plugin.name, resized, node.name)
            if resized is not None:
                state.pod = pod = resized
                profile = self.profile.for_pod(pod)
        columns = self._state.view.columns
        rows = [row, *evaluation.next_best(row, _TOP_NODES - 1)]
        evaluated, feasible = len(columns.row_of), evaluation.feasible_count
        return Placement(
            state,
            pod,
            profile,
            node,
            evaluated=evaluated,
            feasible=feasible,
            rejecting_plugins=evaluation.first_rejecting_plugins() if feasible < evaluated else (),
            best_nodes=tuple(map(columns.names.__getitem__, rows)),
            best_scores=evaluation.scores_of(rows),
            plugins=evaluation.score_names,
            tied=choice.tied,
        )

    def _attempt(self, pod_class: _PodClass, key: Hashable, state: CycleState) -> Attempt:
        rows = pod_class.rejections.row_cache
        return Attempt(self.profile, self._state, pod_class.evaluation, state, key, rows, self.check_time)

    def _current(self, pod: PodInfo) -> tuple[Hashable, Evaluation]:
        """The key of the pod's class and its current evaluation, for plugins that plan."""
        key = self.profile.class_key(pod)
        if self._state.view.columns.simulations:
            # It holds as long as the simulation.
            evaluation = Evaluation(self.profile, self._state.view, pod)
            evaluation.refresh()
            return key, evaluation
        pod_class = self._class_of(key, pod)
        pod_class.evaluation.incoming = pod
        try:
            self.refresh(pod_class.evaluation)
        except Exception:
            self._discard(key, pod_class)
            raise
        return key, pod_class.evaluation

    def _discard(self, key: Hashable, pod_class: _PodClass) -> None:
        """Some rows of the class may be half refreshed, so it must not be used again."""
        self._last = None
        if self._classes.pop(key, None) is not None:
            self._width -= pod_class.evaluation.width

    def _class_of(self, key: Hashable, pod: PodInfo) -> _PodClass:
        view = self._state.view
        if self._engine_filters is not view.engine_filters or self._resources != view.columns.resources.width:
            self._drop_plans()
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        pod_class = self._classes.get(key)
        if pod_class is not None:
            self._classes.move_to_end(key)
        else:
            evaluation = Evaluation(self.profile, view, pod, self.times, self._shared, self._batch)
            self._evict_classes(evaluation)
            pod_class = self._classes[key] = _PodClass(evaluation, next(self._numbers))
        self._last = key, pod_class
        return pod_class

    def _drop_plans(self) -> None:
        """The filters that belong to every plan have changed, or a node offers a resource that none offered before:
        plans name resources by their columns."""
        view = self._state.view
        self._engine_filters, self._resources = view.engine_filters, view.columns.resources.width
        self._classes.clear()
        self._last = None
        self._width = 0
        if self._batch is not None:
            self._batch.dissolve()
        self._shared = SharedResults()

    def _evict_classes(self, evaluation: Evaluation) -> None:
        """Evict classes, the least recently used first, if the limit would be exceeded with one more like this. Shared
        results are counted once; they are freed with the last class that uses them."""
        limit = self._cells // max(_LEAST_ROWS, self._state.view.columns.size)
        while self._classes and self._width + evaluation.width + len(self._shared) > limit:
            _, oldest = self._classes.popitem(last=False)
            self._width -= oldest.evaluation.width
        self._width += evaluation.width


def gate_of(engines: Mapping[str, Engine]) -> Callable[[PodInfo], str | None]:
    """The gate of the queue that the profiles share, by scheduler name."""
    return lambda pod: engines[pod.pod.spec.scheduler_name].gate(pod)


def _always(row: int) -> bool:
    """Without nominations, a pod fits on every feasible row."""
    return True


def _raise(plugin: str, method: str, error: Exception) -> None:
    raise error


def _raise_as_plugin_error(error: Exception) -> NoReturn:
    """Reraise ``error`` as PluginError, which ends the attempt of the pod, not the program. For ``except`` clauses,
    which cost nothing where nothing is raised; a context manager costs a decision several times a microsecond."""
    if isinstance(error, PluginError):
        raise error
    raise PluginError(f"{type(error).__name__}: {error}") from error
