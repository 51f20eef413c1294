"""Ends a decision that takes far too long: a plugin that loops for ever costs its pod an attempt, not the cluster its
scheduler.

Decisions are plain code in the main thread, which nothing but a signal interrupts. A timer raises inside whatever runs
when the time is up; the engine treats that as any other error of a plugin.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Self

from koordinator.scheduler.engine.framework import PluginError

_AGAIN: Final = 0.05


class DecisionLimit:
    """``with limit:`` around a decision. To be made in the main thread, once a process, as it owns SIGALRM.

    ``is_safe`` tells whether the cluster state is whole at the moment; while it is being changed, the end is put off.
    """

    def __init__(self, seconds: float, is_safe: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._is_safe = is_safe
        self._armed = False
        signal.signal(signal.SIGALRM, self._time_is_up)

    def __enter__(self) -> Self:
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _time_is_up(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or not self._is_safe():
            return
        self._armed = False
        place = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}" if frame is not None else "unknown code"
        raise PluginError(f"no decision within {self._seconds:g} s; it was in {place}")
