from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.hub import HistoryLimits
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from koordinator.cluster.verbs.patch import patch
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


def test_without_being_asked_for_there_are_no_bookmarks() -> None:
    assert _watch(_nothing, _with_one(), resourceVersion="1").seen == []


def test_a_streaming_list_marks_the_end_of_the_state() -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    first, second, *_ = _watch(_nothing, _with_one(), **query).events
    assert (first.type, second.type, second.initial_events_end) == ("ADDED", "BOOKMARK", True)


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
        {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
    ],
)
def test_meaningless_options_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        Watching(Verbs(), **query)
    assert refused.value.code == 422
