"""The order of the queue by a QueueSort plugin that may fail: an error costs a pod its place at most, never the queue.

If a key cannot be computed, or cannot be compared with another one, that is an error of the plugin; the pod's priority
decides then. Plugins of this package need none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import total_ordering
from typing import Any

from koordinator.scheduler.engine.event_dispatch import OnError
from koordinator.scheduler.engine.framework import QueueSortPlugin
from koordinator.scheduler.engine.pod_info import PodInfo


def checked_sort_key(plugin: QueueSortPlugin, on_error: OnError) -> Callable[[PodInfo, float], tuple[Any, ...]]:
    """The keys of ``plugin`` in a form that can always be compared; their last item is the age."""

    def notified(error: Exception) -> None:
        on_error(plugin.name, "sort_key", error)

    def sort_key(pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        try:
            *importance, age = plugin.sort_key(pod, queued_at)
            return _Importance(tuple(importance), pod.priority, notified), float(age)
        except Exception as error:
            notified(error)
            return _Importance(None, pod.priority, notified), queued_at

    return sort_key


@total_ordering
class _Importance:
    """The smallest is scheduled first; pods without a key of the plugin come after those that have one."""

    __slots__ = ("_key", "_notified", "_priority")

    def __init__(self, key: tuple[Any, ...] | None, priority: int, notified: Callable[[Exception], None]) -> None:
        self._key = key
        self._priority = priority
        self._notified = notified

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Importance):
            return NotImplemented
        return self._compare(other, lambda one, another: one == another)

    def __lt__(self, other: _Importance) -> bool:
        return self._compare(other, lambda one, another: one < another)

    def __hash__(self) -> int:
        return hash(self._priority)

    def _compare(self, other: _Importance, compare: Callable[[Any, Any], Any]) -> bool:
        if self._key is not None and other._key is not None:
            try:
                return bool(compare(self._key, other._key))
            except Exception as error:
                self._notified(error)
        has_none = self._key is None, other._key is None
        return bool(compare((has_none[0], -self._priority), (has_none[1], -other._priority)))
