"""The lines of watch streams, each rendered once for all watchers that see the kind in the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.watch import WatchEvent

_KEPT: Final = 128
"""Lines of one kind and form: watchers that keep up are sent an event within one turn of the loop."""
_LARGE: Final = 64 << 10
"""Bytes of a line that is not kept: to write it costs much more than to render it."""

Render = Callable[[WatchEvent], bytes]


class SharedLines:
    """The newest lines of one kind in one form."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        """Held, so that no other has its identity."""
        self.watchers = 0
        self._lines: dict[tuple[str, int], tuple[Stored, bytes]] = {}

    def join(self, render: Render, batch: Sequence[WatchEvent]) -> bytes:
        """What a watcher is sent for a batch of events."""
        if self.watchers < 2:
            return b"".join([render(event) for event in batch])
        return b"".join([self._line(render, event) for event in batch])

    def _line(self, render: Render, event: WatchEvent) -> bytes:
        # Every watcher is handed the same object by the store, and a line here keeps it alive.
        key = (event.type, id(event.stored))
        found = self._lines.get(key)
        if found is not None:
            return found[1]
        line = render(event)
        if event.type != "BOOKMARK" and len(line) < _LARGE:
            if len(self._lines) >= _KEPT:
                self._lines.clear()
            self._lines[key] = (event.stored, line)
        return line


class EventLines:
    """Of all kinds and forms that are watched."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, int], SharedLines] = {}

    @contextmanager
    def watcher(self, form: str, resource: Resource) -> Iterator[SharedLines]:
        """While one more watches ``resource`` in a ``form`` that is the same for all who do."""
        key = (form, id(resource))
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedLines(resource)
        shared.watchers += 1
        try:
            yield shared
        finally:
            shared.watchers -= 1
            if not shared.watchers:
                del self._shared[key]
