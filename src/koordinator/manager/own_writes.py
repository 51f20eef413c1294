"""What a controller wrote and its cache does not show yet: decided on again, the same would be written again."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object
from koordinator.base.clock import Clock
from koordinator.kube.versions import is_older

_PATIENCE: Final = 10.0
"""Seconds by which the cache may be behind; later than that it has another history."""
_ABSENT: Final = "0"


class OwnWrites:
    """By the name of the object: the version that the last write has made, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[str, tuple[str, float]] = {}

    def wrote(self, name: str, answer: Object) -> None:
        """The server's answer to a write."""
        self._made[name] = answer.metadata.resource_version, self._clock.monotonic()

    def are_ahead(self, name: str, cached: Object | None) -> bool:
        """Whether ``cached`` (None: absent) is from before the last write."""
        made = self._made.get(name)
        if made is None:
            return False
        version, moment = made
        shown = cached.metadata.resource_version if cached is not None else _ABSENT
        if is_older(shown, version) and self._clock.monotonic() - moment < _PATIENCE:
            return True
        del self._made[name]
        return False

    def forget(self, name: str) -> None:
        """The object is gone, or nobody asks any more."""
        self._made.pop(name, None)
