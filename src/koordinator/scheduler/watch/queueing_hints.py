"""What may free a pod that is parked: something that happened, if a plugin says so, or time alone.

Room on a node that was promised to a pod is room for that pod alone, until it is there or its promise is taken back:
waking all others for it, each time that somebody leaves, would be in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.scheduler.engine.adjustment import adjusted, difference
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import Observer, Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.simulation import nominated_before
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import QueuedPod


class Hints:
    """``profile_of`` is asked by scheduler name."""

    def __init__(self, state: ClusterState, profile_of: Callable[[str], Profile], errors: PluginErrors) -> None:
        self._state = state
        self._profile_of = profile_of
        self._errors = errors

    def may_help(self, entry: QueuedPod, event: ClusterEvent) -> bool:
        """Ask the plugins that ruled out the pod's nodes; one that cannot say counts as a yes."""
        plugins = self._profile_of(entry.pod.pod.spec.scheduler_name).plugins
        with self._promises_kept(entry.pod, event):
            for name in entry.plugins:
                plugin = plugins.get(name)
                if plugin is None:
                    return True
                try:
                    if event.kind in plugin.wakes_on() and plugin.may_help(entry.pod, event):
                        return True
                except Exception as error:
                    self._errors.of_plugin(name, "may_help", error)
                    return True
        return not entry.plugins

    def promised_to(self, event: ClusterEvent) -> Collection[str]:
        """The uids of the pods that were promised the node that the event is about."""
        nominations = self._state.view.nominations
        return [pod.uid for pod in nominations.on(_node_name(event))] if len(nominations) else ()

    @contextmanager
    def _promises_kept(self, pod: PodInfo, event: ClusterEvent) -> Iterator[None]:
        view = self._state.view
        row = view.columns.row_of.get(_node_name(event)) if len(view.nominations) else None
        promised = nominated_before(self._state, pod, row) if row is not None else []
        if not promised or row is None:
            yield
            return
        with adjusted(view.columns, {row: difference((), promised)}):
            yield


def _node_name(event: ClusterEvent) -> str:
    """The node that has more room now, perhaps; empty when it is not one node."""
    about = event.new if event.new is not None else event.old
    if isinstance(about, Node):
        return about.metadata.name
    return about.pod.spec.node_name if isinstance(about, PodInfo) else ""


class PassingTime:
    """``announce`` tells parked pods of it, ``next_deadline`` when there will be something to tell."""

    def __init__(
        self, profiles: Iterable[Profile], clock: Clock, tell: Callable[[ClusterEvent], None], errors: PluginErrors
    ) -> None:
        observers = [observer for profile in profiles for observer in profile.observers]
        self._observers = [each for each in observers if type(each).wakes_at is not Observer.wakes_at]
        self._clock = clock
        self._tell = tell
        self._errors = errors

    def announce(self) -> None:
        """Tell what is due by now."""
        for observer in self._observers:
            point = "wakes_at"
            try:
                moment = observer.wakes_at()
                if moment is not None and moment <= (now := self._clock.now()).timestamp():
                    point = "passed_by_time"
                    for event in observer.passed_by_time(now):
                        self._tell(event)
            except Exception as error:
                self._failed(observer, point, error)

    def next_deadline(self) -> float | None:
        """In monotonic seconds; None when nothing is to be expected."""
        moments = []
        for observer in self._observers:
            try:
                if (moment := observer.wakes_at()) is not None:
                    moments.append(float(moment))
            except Exception as error:
                self._failed(observer, "wakes_at", error)
        return self._clock.monotonic() + min(moments) - self._clock.now().timestamp() if moments else None

    def _failed(self, observer: Observer, point: str, error: Exception) -> None:
        """A plugin may raise anything; the others, and scheduling, go on."""
        name = observer.name if isinstance(observer, Plugin) else type(observer).__name__
        self._errors.of_plugin(name, point, error)
