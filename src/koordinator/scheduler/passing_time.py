"""What time alone does: from some moment on a node may pass a filter without anything having happened to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from koordinator.base.clock import Clock
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import Observer, Plugin
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.plugin_errors import PluginErrors


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
