"""Objects as they will be when what was decided is written: claims with their node, volumes with their claim.

An assumption holds until the API shows another version of its object: what the API says always wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from koordinator.api.meta import Object

T = TypeVar("T", bound=Object)


class Assumptions(Generic[T]):
    """Assumed objects of one kind over those that the API has (``stored``), both by key."""

    def __init__(self, stored: Callable[[], Mapping[str, T]]) -> None:
        self._stored = stored
        self._assumed: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """The object as assumed, or else as the API has it."""
        return self._assumed.get(key) or self._stored().get(key)

    def stored(self, key: str) -> T | None:
        """The object as the API has it."""
        return self._stored().get(key)

    def is_assumed(self, key: str) -> bool:
        return key in self._assumed

    def assume(self, obj: T) -> bool:
        """Suppose that the object is like this; False when the API has another version of it, so that it cannot be."""
        key = obj.metadata.key
        stored = self.stored(key)
        if stored is None or stored.metadata.resource_version != obj.metadata.resource_version:
            return False
        self._assumed[key] = obj
        return True

    def restore(self, obj: T) -> bool:
        """Give up what was assumed of this version; returns whether there was anything to give up."""
        key = obj.metadata.key
        assumed = self._assumed.get(key)
        if assumed is None or assumed.metadata.resource_version != obj.metadata.resource_version:
            return False
        del self._assumed[key]
        return True

    def observe(self, key: str, new: T | None) -> None:
        """The API shows the object like this now, or (None) not any more."""
        assumed = self._assumed.get(key)
        if assumed is None:
            return
        if new is None or new.metadata.resource_version != assumed.metadata.resource_version:
            del self._assumed[key]
