"""WATCH: every change of a collection from a revision on, once and in order, seen through the selectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal

import msgspec

from koordinator.cluster.errors import ApiError, expired
from koordinator.cluster.storage.interface import Change, Compacted, Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.read import check_not_too_new
from koordinator.cluster.verbs.selection import Selection
from koordinator.cluster.verbs.target import Target, shown

_BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0
"""Before the timeout, so that the client resumes from a revision that is fresh, however quiet its watch was."""
_BATCH_EVENTS = 500
_BATCH_BYTES = 1 << 20
"""A batch ends with the event that reaches it."""
_STALLED_SECONDS = 30.0


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
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
        self._resource = target.resource
        self._failure = _impossible_start(environment, options)
        self._storage = environment.storage
        self._clock = environment.clock
        self._bookmarks = options.allow_bookmarks
        # Half an hour to an hour spreads the reconnects of many clients, as the real server does.
        self._timeout = options.timeout_seconds or environment.random.uniform(1800, 3600)
        self._selection = Selection.parse(
            target, environment.selector_cache, options.label_selector, options.field_selector
        )
        prefix = self._selection.prefix(target)
        self.pending: list[WatchEvent] = []
        """What of the state at the start has not been sent."""
        self._sending_since: float | None = None
        after = options.revision or environment.storage.revision()
        if _starts_with_state(options) and self._failure is None:
            snapshot = environment.storage.list(prefix)
            after = snapshot.revision
            self.pending = [WatchEvent("ADDED", s) for s in snapshot.items if self._selection.matches(s)]
            if self._bookmarks:
                self.pending.append(WatchEvent("BOOKMARK", Stored("", b"", after), initial_events_end=True))
        self._cursor = environment.storage.watch(prefix, after)

    async def run(self, send: Send) -> ApiError | None:
        """Send events until the timeout or the end of the store (None), or until the history is lost (the 410).

        The state at a revision that is still to come is a 504 at once, and not the refusal of the watch.
        Raises ConnectionAbortedError when the client has not taken a batch for half a minute: what it was sent, and the
        snapshot of the state, are not held for a reader that is not there.
        """
        try:
            async with asyncio.timeout(None) as scope, asyncio.TaskGroup() as group:
                timer = group.create_task(self._tick(scope), name="watch timer")
                failure = self._failure or await self._stream(send)
                timer.cancel()
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise ConnectionAbortedError(f"the client did not read for {_STALLED_SECONDS:.0f} s") from error
        else:
            return failure
        finally:
            self._cursor.close()
            self.pending.clear()

    async def _stream(self, send: Send) -> ApiError | None:
        cursor = self._cursor
        try:
            for batch in _batches(self.pending):
                # The cursor would say so in the end; until then the snapshot is held for nothing.
                cursor.check()
                await self._send(send, batch)
            self.pending.clear()
            while (changes := await cursor.next()) is not None:
                events = [e for change in changes if (e := seen_through(self._selection, change)) is not None]
                if not changes and self._bookmarks and cursor.revision <= self._storage.revision():
                    events.append(WatchEvent("BOOKMARK", Stored("", b"", cursor.revision)))
                for batch in _batches(events):
                    await self._send(send, batch)
        except Compacted as error:
            return expired(f"too old resource version: {cursor.revision} ({error.oldest})")
        except ApiError as error:
            return error  # of a conversion webhook
        except ConnectionError:
            return None  # the client closed the connection; no event can be sent
        return None

    async def _send(self, send: Send, batch: Sequence[WatchEvent]) -> None:
        if self._resource.conversion is not None:
            batch = await self._converted(batch)
        self._sending_since = self._clock.monotonic()
        await send(batch)
        self._sending_since = None

    async def _converted(self, batch: Sequence[WatchEvent]) -> Sequence[WatchEvent]:
        states = [event.stored for event in batch if event.type != "BOOKMARK"]
        converted = iter(await shown(self._resource, states))
        return [
            event if event.type == "BOOKMARK" else msgspec.structs.replace(event, stored=next(converted))
            for event in batch
        ]

    async def _tick(self, scope: asyncio.Timeout) -> None:
        """Wake the cursor for each bookmark, end it at its time, and end the watch of a client that does not read."""
        now = self._clock.monotonic()
        end = now + self._timeout
        bookmark = _next_bookmark(now, end)
        while now < end:
            await self._clock.sleep(min(end, bookmark, now + _STALLED_SECONDS / 3) - now)
            now = self._clock.monotonic()
            if self._sending_since is not None and now - self._sending_since >= _STALLED_SECONDS:
                scope.reschedule(asyncio.get_running_loop().time())
                return
            if now >= bookmark:
                bookmark = _next_bookmark(now, end)
                self._cursor.wake()
        self._cursor.close()


def _next_bookmark(now: float, end: float) -> float:
    """On the clock of the watch, whose timeout is ``end``."""
    last = end - _LAST_BOOKMARK_SECONDS
    return last if now < last < now + _BOOKMARK_SECONDS else now + _BOOKMARK_SECONDS


def _impossible_start(environment: Environment, options: ListOptions) -> ApiError | None:
    """Why the watch cannot start with the state that it requests; changes after a revision to come are waited for."""
    if options.send_initial_events:
        try:
            check_not_too_new(environment, options.revision)
        except ApiError as error:
            return error
    return None


def _batches(events: Sequence[WatchEvent]) -> Iterator[Sequence[WatchEvent]]:
    """Parts that are small enough to be rendered at once: a slow client holds one of them, not all."""
    if len(events) == 1:
        yield events
        return
    first = size = 0
    for index, event in enumerate(events):
        if index > first and (size >= _BATCH_BYTES or index - first >= _BATCH_EVENTS):
            yield events[first:index]
            first, size = index, 0
        size += len(event.stored.value)
    if first < len(events):
        yield events[first:]


def _starts_with_state(options: ListOptions) -> bool:
    if options.send_initial_events is not None:
        return options.send_initial_events
    return not options.revision


def seen_through(selection: Selection, change: Change) -> WatchEvent | None:
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
