"""Ends a decision that takes far too long: a plugin that loops for ever costs its pod an attempt, and does not stop the
scheduler.

Decisions are synchronous code in the main thread, which only a signal can interrupt. When the time limit is exceeded, a
timer raises an error inside the code of a plugin of another package that runs at that moment. Such a plugin may raise
anything at any time, so all its callers can handle that. The code of this package is never interrupted: it changes
columns, caches and the state of the built-in plugins in several steps, and all decisions share these. Its parts that
may take long call ``check``.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Collection, Iterable
from types import FrameType, TracebackType
from typing import Final, Self

from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.event_listeners import EventListeners
from koordinator.scheduler.engine.framework import PluginError, is_built_in
from koordinator.scheduler.engine.profile import Profile

_OURS: Final = __name__.partition(".")[0]
_NOTING: Final = frozenset({ClusterState._notify.__code__, EventListeners.notify_one.__code__, Engine._notify.__code__})
"""Within these functions a plugin updates its state from the cluster, so they are not interrupted."""
_FINALIZING: Final = frozenset({"_weakrefset", "weakref"})
"""The modules whose functions Python calls when an object dies."""
_AGAIN: Final = 0.05
"""Seconds until the next signal, if the code that ran must not be interrupted, or if the plugin catches the error."""


class DecisionLimit:
    """``with limit:`` around a decision. Must be created in the main thread, once for each process, as it owns SIGALRM.

    ``packages`` are the top-level packages whose code may be interrupted, see ``packages_of``.
    """

    def __init__(self, seconds: float, packages: Collection[str]) -> None:
        self._seconds = seconds
        self._packages = frozenset(packages)
        self._armed = False
        self._ends = 0.0
        """When the time of the present decision is up, in monotonic seconds."""
        self._is_running = False
        """Whether the timer runs. It runs on after a decision: to set it for each one takes longer than all else."""
        self._over_in = ""
        """The code that ran when the time limit was exceeded; empty before."""
        signal.signal(signal.SIGALRM, self._on_timer)

    def __enter__(self) -> Self:
        # In this order: the timer of an earlier decision may end in between.
        self._ends = time.monotonic() + self._seconds
        self._armed = True
        if not self._is_running:
            self._is_running = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._armed = False
        self._over_in = ""

    def check(self) -> None:
        """Raises PluginError when the time limit is exceeded. For code of this package, where nothing is half done."""
        if self._over_in:
            raise self._error()

    def _on_timer(self, number: int, frame: FrameType | None) -> None:
        if not self._armed:
            self._is_running = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        left = self._ends - time.monotonic()
        if left > 0:
            # It was set for an earlier decision.
            signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        elif frame is not None:
            self._time_is_up(frame)

    def _time_is_up(self, frame: FrameType) -> None:
        self._over_in = f"{_module_of(frame)}.{frame.f_code.co_qualname}"
        if self._is_interruptible(frame):
            raise self._error()

    def _is_interruptible(self, frame: FrameType | None) -> bool:
        """Whether ``frame`` is of a plugin of another package, or of a library that such a plugin calls, and the plugin
        is not processing an event. An error in what Python itself calls, as objects die, would be lost."""
        collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        is_plugin = False
        while frame is not None:
            package = _module_of(frame).partition(".")[0]
            if frame.f_code in _NOTING or frame.f_code in collecting:
                return False
            if frame.f_code.co_name == "__del__" or package in _FINALIZING:
                return False
            if package == _OURS and not is_plugin:
                return False
            is_plugin = is_plugin or package in self._packages
            frame = frame.f_back
        return is_plugin

    def _error(self) -> PluginError:
        return PluginError(f"no decision within {self._seconds:g} s; it was in {self._over_in}")


def packages_of(profiles: Iterable[Profile]) -> frozenset[str]:
    """The top-level packages of all plugins that are not part of this package."""
    plugins = [plugin for profile in profiles for plugin in profile.parts if not is_built_in(plugin)]
    packages = {base.__module__.partition(".")[0] for plugin in plugins for base in type(plugin).__mro__}
    return frozenset(packages - {_OURS} - sys.stdlib_module_names)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
