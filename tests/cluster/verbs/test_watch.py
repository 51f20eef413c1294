from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from koordinator.cluster.verbs.update import patch
from koordinator.cluster.verbs.watch import WatchEvent, WatchSession
from tests.cluster.embedded import Verbs, config_map

MERGE = "application/merge-patch+json"
Act = Callable[["Watching"], Awaitable[None]]


class Watching:
    """A watch of config maps and what it has sent so far."""

    def __init__(self, verbs: Verbs, **query: str) -> None:
        self.verbs = verbs
        self.events: list[WatchEvent] = []
        self.session = WatchSession(verbs.environment, verbs.target("configmaps"), ListOptions.parse(query))

    async def send(self, batch: Sequence[WatchEvent]) -> None:
        self.events += batch

    async def create(self, name: str, **labels: str) -> None:
        await self.verbs.create("configmaps", config_map(name, labels=labels))

    async def label(self, name: str, value: str) -> None:
        body = msgspec.json.encode({"metadata": {"labels": {"l": value}}})
        await patch(self.verbs.environment, self.verbs.target("configmaps", name), MERGE, body)

    async def delete(self, name: str) -> None:
        await delete(self.verbs.environment, self.verbs.target("configmaps", name), DeleteOptions())

    @property
    def seen(self) -> list[tuple[str, str, int]]:
        return [(event.type, event.stored.key[-1:], event.stored.revision) for event in self.events]


def _watch(act: Act, verbs: Verbs | None = None, **query: str) -> Watching:
    """Watch while ``act`` acts, until its time is over."""
    verbs = verbs or Verbs()

    async def main() -> Watching:
        watching = Watching(verbs, timeoutSeconds="300", **query)
        async with asyncio.TaskGroup() as group:
            group.create_task(watching.session.run(watching.send))
            await act(watching)
            await verbs.clock.advance(301)
        return watching

    return asyncio.run(main())


def _with_one() -> Verbs:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("a", labels={"l": "x"})))
    return verbs


async def _nothing(watching: Watching) -> None:
    """The time passes."""


async def _life(watching: Watching) -> None:
    await watching.create("b")
    await watching.label("b", "x")
    await watching.delete("b")


def test_changes_after_a_revision_are_seen() -> None:
    watching = _watch(_life, _with_one(), resourceVersion="1")
    assert watching.seen == [("ADDED", "b", 2), ("MODIFIED", "b", 3), ("DELETED", "b", 4)]


def test_without_a_revision_the_state_comes_first() -> None:
    assert _watch(_nothing, _with_one()).seen == [("ADDED", "a", 1)]


def test_a_selector_turns_changes_into_coming_and_going() -> None:
    async def act(watching: Watching) -> None:
        await watching.create("b", l="y")
        await watching.label("b", "x")
        await watching.label("b", "z")
        await watching.delete("b")

    watching = _watch(act, _with_one(), resourceVersion="1", labelSelector="l=x")
    assert watching.seen == [("ADDED", "b", 3), ("DELETED", "b", 4)]


def test_a_name_selects_one_object() -> None:
    async def act(watching: Watching) -> None:
        await watching.create("bb")
        await watching.create("b")

    assert _watch(act, fieldSelector="metadata.name=b").seen == [("ADDED", "b", 2)]


def test_bookmarks_tell_how_far_the_watch_is() -> None:
    async def act(watching: Watching) -> None:
        await watching.verbs.create(
            "pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )
        await watching.verbs.clock.advance(61)

    watching = _watch(act, _with_one(), resourceVersion="1", allowWatchBookmarks="true")
    assert watching.seen[0] == ("BOOKMARK", "", 2)


def test_without_being_requested_there_are_no_bookmarks() -> None:
    assert _watch(_nothing, _with_one(), resourceVersion="1").seen == []


def test_a_streaming_list_marks_the_end_of_the_state() -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    first, second, *_ = _watch(_nothing, _with_one(), **query).events
    assert (first.type, second.type, second.initial_events_end) == ("ADDED", "BOOKMARK", True)


def test_a_streaming_list_needs_no_bookmarks() -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    assert _watch(_nothing, _with_one(), **query).seen == [("ADDED", "a", 1)]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_the_end_of_a_state_that_comes_unasked_is_marked_too(query: dict[str, str]) -> None:
    first, second, *_ = _watch(_nothing, _with_one(), allowWatchBookmarks="true", **query).events
    assert (first.type, second.type, second.initial_events_end) == ("ADDED", "BOOKMARK", True)


def test_the_last_bookmark_comes_two_seconds_before_the_end() -> None:
    async def act(watching: Watching) -> None:
        await watching.verbs.clock.advance(297)
        before = len(watching.events)
        await watching.create("b")
        await watching.verbs.clock.advance(1)
        assert watching.seen[before:] == [("ADDED", "b", 2), ("BOOKMARK", "", 2)]

    _watch(act, _with_one(), resourceVersion="1", allowWatchBookmarks="true")


def test_a_watch_from_a_revision_to_come_waits_for_what_follows_it() -> None:
    assert _watch(_life, _with_one(), resourceVersion="3").seen == [("DELETED", "b", 4)]


def test_a_revision_to_come_has_no_bookmarks() -> None:
    assert _watch(_nothing, _with_one(), resourceVersion="3", allowWatchBookmarks="true").seen == []


def test_a_state_to_come_is_an_error_of_the_stream() -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "3"}

    async def main() -> ApiError | None:
        watching = Watching(verbs, **query)
        return await watching.session.run(watching.send)

    verbs = _with_one()
    error = asyncio.run(main())
    assert error is not None
    assert (error.code, error.reason, error.retry_after) == (504, "Timeout", 1)


def test_a_history_that_is_gone_ends_the_watch() -> None:
    verbs = Verbs(limits=HistoryLimits(changes=2))

    async def main() -> ApiError | None:
        for name in "abcd":
            await verbs.create("configmaps", config_map(name))
        watching = Watching(verbs, resourceVersion="1")
        return await watching.session.run(watching.send)

    error = asyncio.run(main())
    assert error is not None
    assert (error.code, error.reason) == (410, "Expired")


def test_a_client_that_went_away_ends_the_watch() -> None:
    async def gone(batch: Sequence[WatchEvent]) -> None:
        raise ConnectionResetError

    verbs = _with_one()

    async def main() -> ApiError | None:
        before, after = Watching(verbs), Watching(verbs, resourceVersion="1")
        await after.create("b")
        return await before.session.run(gone) or await after.session.run(gone)

    assert asyncio.run(main()) is None


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "NotOlderThan"},
        {"sendInitialEvents": "true", "allowWatchBookmarks": "true"},
    ],
)
def test_meaningless_options_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        Watching(Verbs(), **query)
    assert refused.value.code == 422


class Stalled:
    """A client that reads what it is sent in the first ``reads`` batches, and then nothing more."""

    def __init__(self, reads: int = 0) -> None:
        self.reads = reads
        self.batches: list[Sequence[WatchEvent]] = []
        self.cancelled = False

    async def send(self, batch: Sequence[WatchEvent]) -> None:
        self.batches.append(batch)
        if len(self.batches) <= self.reads:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def test_a_client_that_does_not_read_is_dropped() -> None:
    verbs = _with_one()
    client = Stalled()

    async def main() -> None:
        watching = Watching(verbs)
        running = asyncio.ensure_future(watching.session.run(client.send))
        await verbs.clock.advance(29)
        assert not running.done()
        await verbs.clock.advance(2)
        assert running.done()
        with pytest.raises(ConnectionAbortedError, match="did not read"):
            await running
        assert client.cancelled

    asyncio.run(main())


def test_a_client_that_stops_reading_later_is_dropped() -> None:
    verbs = _with_one()
    client = Stalled(reads=1)

    async def main() -> None:
        watching = Watching(verbs)
        running = asyncio.ensure_future(watching.session.run(client.send))
        await verbs.clock.advance(120)  # it may be quiet for as long as it likes
        assert not running.done()
        await watching.create("b")
        await verbs.clock.advance(31)
        assert isinstance(running.exception(), ConnectionAbortedError)

    asyncio.run(main())


def test_a_dropped_client_leaves_nothing_behind() -> None:
    verbs = _with_one()

    async def main() -> tuple[int, int]:
        watching = Watching(verbs)
        value = watching.session
        running = asyncio.ensure_future(value.run(Stalled().send))
        await verbs.clock.advance(31)
        await asyncio.wait((running,))
        running.exception()
        return len(value.pending), verbs.clock.sleepers

    assert asyncio.run(main()) == (0, 0)


def test_large_objects_go_out_in_small_batches() -> None:
    verbs = Verbs()

    async def main() -> list[int]:
        client = Stalled(reads=100)
        for number in range(5):
            await verbs.create("configmaps", config_map(f"a{number}", {"k": "x" * 500_000}))
        watching = Watching(verbs)
        running = asyncio.ensure_future(watching.session.run(client.send))
        await verbs.clock.advance(0)
        for number in range(5):
            await verbs.create("configmaps", config_map(f"b{number}", {"k": "x" * 500_000}))
        await verbs.clock.advance(0)
        running.cancel()
        await asyncio.wait((running,))
        return [sum(len(event.stored.value) for event in batch) for batch in client.batches]

    sizes = asyncio.run(main())
    assert sum(sizes) > 5_000_000
    assert max(sizes) < 1_600_000


def test_the_state_is_not_sent_on_when_the_history_after_it_is_gone() -> None:
    """What follows would be a 410 all the same, and the snapshot need not be held until then."""
    verbs = Verbs(limits=HistoryLimits(changes=2))

    async def main() -> tuple[ApiError | None, int]:
        for number in range(1_200):
            await verbs.create("configmaps", config_map(f"c{number}"))
        watching = Watching(verbs)

        async def slow(batch: Sequence[WatchEvent]) -> None:
            watching.events += batch
            for number in range(5):
                await verbs.create("configmaps", config_map("", generateName=f"later-{number}-"))

        return await watching.session.run(slow), len(watching.events)

    error, sent = asyncio.run(main())
    assert error is not None
    assert (error.code, sent) == (410, 500)
