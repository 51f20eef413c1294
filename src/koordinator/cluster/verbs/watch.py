"""WATCH: every change of a collection from a revision on, once and in order, seen through the selectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from koordinator.base.clock import Clock
from koordinator.cluster.errors import ApiError, expired
from koordinator.cluster.storage.interface import Change, Compacted, Stored, Watch
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.list import check_not_too_new
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.selection import Selection
from koordinator.cluster.verbs.target import Target

_BOOKMARK_SECONDS = 60.0
_INITIAL_BATCH = 500


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of the stream; a bookmark's ``stored`` carries a revision and no value."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    stored: Stored
    initial_events_end: bool = False


Send = Callable[[Sequence[WatchEvent]], Awaitable[None]]


class WatchSession:
    """One watch between its checks, which may refuse it, and its stream."""

    def __init__(self, environment: Environment, target: Target, options: ListOptions) -> None:
        """Fixes the revision from which the stream starts. Raises ApiError when the options are wrong."""
        options.check_watch()
        check_not_too_new(environment, options.revision)
        self._clock = environment.clock
        self._bookmarks = options.allow_bookmarks
        # Half an hour to an hour spreads the reconnects of many clients, as the real server does.
        self._timeout = options.timeout_seconds or environment.random.uniform(1800, 3600)
        self._selection = Selection.parse(target, environment.facts, options.label_selector, options.field_selector)
        prefix = self._selection.prefix(target)
        self._initial: list[WatchEvent] = []
        after = options.revision or environment.storage.revision()
        if _starts_with_state(options):
            snapshot = environment.storage.list(prefix)
            after = snapshot.revision
            self._initial = [WatchEvent("ADDED", s) for s in snapshot.items if self._selection.matches(s)]
        if options.send_initial_events:
            self._initial.append(WatchEvent("BOOKMARK", Stored("", b"", after), initial_events_end=True))
        self._cursor = environment.storage.watch(prefix, after)

    async def run(self, send: Send) -> ApiError | None:
        """Send events until the timeout or the end of the store (None), or until the history is lost (the 410)."""
        try:
            for first in range(0, len(self._initial), _INITIAL_BATCH):
                await send(self._initial[first : first + _INITIAL_BATCH])
            self._initial.clear()
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(_tick(self._clock, self._cursor, self._timeout), name="watch timer")
                failure = await self._follow(send)
                timer.cancel()
        except ConnectionError:
            return None  # the client went away; there is nobody to tell
        else:
            return failure
        finally:
            self._cursor.close()

    async def _follow(self, send: Send) -> ApiError | None:
        cursor = self._cursor
        try:
            while (changes := await cursor.next()) is not None:
                events = [e for change in changes if (e := _seen_through(self._selection, change)) is not None]
                if not changes and self._bookmarks:
                    events.append(WatchEvent("BOOKMARK", Stored("", b"", cursor.revision)))
                if events:
                    await send(events)
        except Compacted as error:
            return expired(f"too old resource version: {cursor.revision} ({error.oldest})")
        except ConnectionError:
            return None  # raised through the task group it would come out as a group
        return None


def _starts_with_state(options: ListOptions) -> bool:
    if options.send_initial_events is not None:
        return options.send_initial_events
    return not options.revision


async def _tick(clock: Clock, cursor: Watch, timeout: float) -> None:
    """Wake the cursor for each bookmark and end it at its time."""
    end = clock.monotonic() + timeout
    while (left := end - clock.monotonic()) > 0:
        await clock.sleep(min(left, _BOOKMARK_SECONDS))
        cursor.poke()
    cursor.close()


def _seen_through(selection: Selection, change: Change) -> WatchEvent | None:
    """For a reader with a selector an object appears when it starts to match and is deleted when it stops."""
    current, previous = change.current, change.previous
    if change.type == "deleted":
        return WatchEvent("DELETED", current) if previous and selection.matches(previous) else None
    matched = previous is not None and selection.matches(previous)
    if selection.matches(current):
        return WatchEvent("MODIFIED" if matched else "ADDED", current)
    if matched and previous is not None:
        return WatchEvent("DELETED", Stored(previous.key, previous.value, current.revision))
    return None
