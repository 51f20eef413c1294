"""The expectations of a writer: its writes that the object it holds does not show yet, so that it does not write twice.

For koord-scheduler alone, whose reports of failures compare what they write with the pod of the attempt. That pod is as
old as the attempt, whatever the informers know by now, so that their write-through cache cannot tell. The scheduler's
informers have none, besides: its columns, its queue and its bindings change in the order in which the server shows
events, and a pod whose condition came ahead of them would be taken for one that somebody has changed.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object
from koordinator.base.clock import Clock
from koordinator.kube.object_cache import is_older

_PATIENCE: Final = 10.0
"""Seconds by which the cache may lag behind; then the expectation is void, as the server may have been restored."""
_ABSENT: Final = "0"


class Expectations:
    """By object name: the resourceVersion of the controller's last write, and its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, tuple[str, float]] = {}

    def expect(self, name: str, response: Object) -> None:
        """Record ``response``, the server's response to a write: the cache will show that version or a later one."""
        self._expected[name] = response.metadata.resource_version, self._clock.monotonic()

    def are_satisfied(self, name: str, cached: Object | None) -> bool:
        """Return whether ``cached`` (None: absent) is at least as recent as the last write."""
        expected = self._expected.get(name)
        if expected is None:
            return True
        version, moment = expected
        shown = cached.metadata.resource_version if cached is not None else _ABSENT
        if is_older(shown, version) and self._clock.monotonic() - moment < _PATIENCE:
            return False
        del self._expected[name]
        return True

    def forget(self, name: str) -> None:
        """Remove the expectation, because the object is deleted or no longer reconciled."""
        self._expected.pop(name, None)
