"""The expectations of a controller: what it wrote and its cache does not show yet, so that it is not decided on again
and written twice."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object
from koordinator.base.clock import Clock
from koordinator.kube.object_cache import is_older

_PATIENCE: Final = 10.0
"""Seconds by which the cache may be behind; later than that it has another history."""
_ABSENT: Final = "0"


class Expectations:
    """By the name of the object: the version that the last write has made, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, tuple[str, float]] = {}

    def expect(self, name: str, response: Object) -> None:
        """``response`` is the server's to a write: the cache will show that version, or a later one."""
        self._expected[name] = response.metadata.resource_version, self._clock.monotonic()

    def are_satisfied(self, name: str, cached: Object | None) -> bool:
        """Whether ``cached`` (None: absent) is not from before the last write."""
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
        """The object is gone, or nobody asks any more."""
        self._expected.pop(name, None)
