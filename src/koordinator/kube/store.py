"""The objects of an informer by key and by named indexes.

Objects are immutable and shared: nothing is copied in or out. Every index costs one dict entry per object and value; an
update whose index values stay the same (nearly all of them) replaces the entries in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import Generic, TypeVar

from koordinator.api.meta import Object

T = TypeVar("T", bound=Object)

IndexFunction = Callable[[T], Iterable[str]]
"""The values under which the index has an object; none excludes it from the index."""


class _Index(Generic[T]):
    """One index: value -> key -> object."""

    __slots__ = ("buckets", "function")

    def __init__(self, function: IndexFunction[T]) -> None:
        self.function = function
        self.buckets: dict[str, dict[str, T]] = {}

    def values_of(self, obj: T | None) -> tuple[str, ...]:
        return tuple(self.function(obj)) if obj is not None else ()

    def replace(self, key: str, before: tuple[str, ...], new: T | None, after: tuple[str, ...]) -> None:
        if before != after:
            for value in before:
                self._discard(value, key)
        if new is None:
            return
        for value in after:
            bucket = self.buckets.get(value)
            if bucket is None:
                bucket = self.buckets[value] = {}
            bucket[key] = new

    def _discard(self, value: str, key: str) -> None:
        bucket = self.buckets.get(value)
        if bucket is None:
            return
        bucket.pop(key, None)
        if not bucket:
            del self.buckets[value]


class Store(Generic[T]):
    """Objects by ``namespace/name``; written by the informer only, read by any code on the event loop."""

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[str, T] = {}
        self._indexes = {name: _Index(function) for name, function in (indexes or {}).items()}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def get(self, key: str) -> T | None:
        """Return the object with this ``namespace/name`` (the name alone for cluster-scoped kinds); None if absent."""
        return self._objects.get(key)

    def find(self, name: str, namespace: str = "") -> T | None:
        """Return the object with this name; None if absent."""
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def values(self) -> ValuesView[T]:
        """Return a live view of all objects: do not await while iterating over it."""
        return self._objects.values()

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that the index ``name`` has under ``value``; KeyError for an unknown index."""
        bucket = self._indexes[name].buckets.get(value)
        return list(bucket.values()) if bucket else []

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index; ValueError if an index of that name has a different function."""
        if name in self._indexes:
            if self._indexes[name].function is not function:
                raise ValueError(f"index {name!r} exists with another function")
            return
        index = self._indexes[name] = _Index(function)
        for key, obj in self._objects.items():
            index.replace(key, (), obj, index.values_of(obj))

    def put(self, key: str, obj: T) -> None:
        """Add or replace an object. If an index function raises, the store is unchanged."""
        if self._indexes:
            old = self._objects.get(key)
            # Call all index functions first: if one raises, every index must stay as it was.
            after = [index.values_of(obj) for index in self._indexes.values()]
            for index, values in zip(self._indexes.values(), after, strict=True):
                index.replace(key, index.values_of(old), obj, values)
        self._objects[key] = obj

    def remove(self, key: str) -> T | None:
        """Remove and return the object; None if absent."""
        old = self._objects.pop(key, None)
        if old is not None:
            for index in self._indexes.values():
                index.replace(key, index.values_of(old), None, ())
        return old
