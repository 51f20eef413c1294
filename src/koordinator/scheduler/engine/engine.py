"""``decide``: which node a pod goes to, or why it goes nowhere. One engine serves one profile."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import Observer, PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.rejection import no_nodes, reject

_TOP_NODES: Final = 3


class RandomSource(Protocol):
    """What is needed of ``random.Random``."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(slots=True)
class _PodClass:
    evaluation: Evaluation
    rejections: dict[tuple[int, str | None], Rejection] = field(default_factory=dict)
    """By priority and preemption policy, valid for ``rejected_at``."""
    rejected_at: int = -1


class Engine:
    """Evaluations by class of pods, the least recently used given up beyond ``cells`` matrix cells."""

    def __init__(self, profile: Profile, state: ClusterState, random: RandomSource, *, cells: int = 8_000_000) -> None:
        self.profile = profile
        self._state = state
        self._random = random
        self._cells = cells
        self._classes: OrderedDict[Hashable, _PodClass] = OrderedDict()
        self._timed = [observer for observer in profile.observers if type(observer).on_time is not Observer.on_time]

    def decide(self, pod: PodInfo, now: datetime) -> Placement | Rejection:
        """Judge all nodes for ``pod`` and choose among the best at random. Changes nothing that another decision sees.

        Raises PluginError when a plugin fails.
        """
        columns = self._state.view.columns
        self._state.view.now = now
        for observer in self._timed:
            observer.on_time(now)
        if not columns.row_of:
            return no_nodes()
        key = self._class_key(pod)
        pod_class = self._classes.get(key)
        try:
            if pod_class is None:
                pod_class = self._add_class(key, pod)
            else:
                self._classes.move_to_end(key)
            pod_class.evaluation.refresh()
        except Exception as error:
            # Half of its rows may be current: nobody may use it again.
            self._classes.pop(key, None)
            raise (
                error if isinstance(error, PluginError) else PluginError(f"{type(error).__name__}: {error}")
            ) from error
        best = pod_class.evaluation.best()
        if not best.shape[0]:
            return self._reject(pod_class, pod)
        row = int(best[self._random.randrange(best.shape[0])])
        return self._placement(pod, pod_class.evaluation, row)

    def assume(self, placement: Placement) -> None:
        """Count the pod on its node and let the Reserve plugins prepare. Raises PluginError, with all undone."""
        pod = placement.pod
        self._state.assume(pod, placement.node_name)
        try:
            for plugin in self.profile.reserve:
                plugin.reserve(pod, placement.row)
        except Exception as error:
            self.forget(placement)
            raise (
                error if isinstance(error, PluginError) else PluginError(f"{type(error).__name__}: {error}")
            ) from error

    def forget(self, placement: Placement) -> None:
        """Undo ``assume``; nothing but the plugins' reservation when the API has the pod on a node by now."""
        for plugin in reversed(self.profile.reserve):
            plugin.unreserve(placement.pod, placement.row)
        self._state.forget(placement.pod.uid)

    def _class_key(self, pod: PodInfo) -> Hashable:
        try:
            return self.profile.class_key(pod)
        except Exception as error:
            raise PluginError(f"{type(error).__name__}: {error}") from error

    def _add_class(self, key: Hashable, pod: PodInfo) -> _PodClass:
        rows = max(1, self._state.view.columns.alive.shape[0])
        points = len(self.profile.filter) + 2 * len(self.profile.score) + 2
        while self._classes and (len(self._classes) + 1) * rows * points > self._cells:
            self._classes.popitem(last=False)
        pod_class = self._classes[key] = _PodClass(Evaluation(self.profile, self._state.view.columns, pod))
        return pod_class

    def _reject(self, pod_class: _PodClass, pod: PodInfo) -> Rejection:
        """The explanation, kept for like pods that are tried before anything has changed."""
        version = self._state.view.columns.version
        if pod_class.rejected_at != version:
            pod_class.rejected_at = version
            pod_class.rejections.clear()
        variant = pod.priority, pod.pod.spec.preemption_policy
        rejection = pod_class.rejections.get(variant)
        if rejection is None:
            rejection = reject(self.profile, self._state, pod_class.evaluation, pod)
            pod_class.rejections[variant] = rejection
        return rejection

    def _placement(self, pod: PodInfo, evaluation: Evaluation, row: int) -> Placement:
        columns = self._state.view.columns
        names = columns.names
        rows = [row, *evaluation.next_best((row,), _TOP_NODES - 1)]
        evaluated, feasible = len(columns.row_of), evaluation.feasible_count
        return Placement(
            pod,
            row,
            names[row],
            evaluated=evaluated,
            feasible=feasible,
            kept_off_by=evaluation.first_to_rule_out() if feasible < evaluated else (),
            best_nodes=tuple([names[each] for each in rows]),
            best_scores=tuple([evaluation.scores_of(each) for each in rows]),
            plugins=evaluation.score_names,
        )
