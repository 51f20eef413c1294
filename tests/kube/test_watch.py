"""Watches that go well, break off, stall, expire, or carry what nobody should have written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api import kinds
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import Malformed, WatchEvent
from koordinator.kube.watch import EventReader, LineSplitter
from tests.kube.clients import client_of, run
from tests.kube.scripted_server import (
    ScriptedServer,
    Step,
    config_map,
    cut,
    event,
    failure,
    status_document,
    stream,
)


def watched(step: Step, events: list[WatchEvent[Any]] | None = None, **options: Any) -> tuple[list[Any], str]:
    """All events of one watch, also appended to ``events``, and the target that was requested."""
    seen: list[WatchEvent[Any]] = [] if events is None else events

    async def work() -> tuple[list[Any], str]:
        async with ScriptedServer(step) as server, client_of(server.url) as client:
            async for item in client.watch(kinds.CONFIG_MAPS, "default", **options):
                seen.append(item)
            return seen, server.received[0].target

    return run(work())


def names(events: list[Any]) -> list[tuple[str, str]]:
    return [(item.type, item.object.metadata.name) for item in events]


def test_events_are_typed() -> None:
    events, _ = watched(
        stream(
            event("ADDED", config_map("a", "1")),
            event("MODIFIED", config_map("a", "2", data={"x": "1"})),
            event("DELETED", config_map("a", "3")),
        )
    )
    assert names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [item.resource_version for item in events] == ["1", "2", "3"]
    assert events[1].object.data == {"x": "1"}


def test_duplicates_are_passed_on() -> None:
    line = event("MODIFIED", config_map("a", "2"))
    events, _ = watched(stream(line, line))
    assert names(events) == [("MODIFIED", "a"), ("MODIFIED", "a")]


def test_lines_may_arrive_in_any_pieces() -> None:
    line = event("ADDED", config_map("a", "1"))
    events, _ = watched(stream(line[:5], line[5:] + line + line[:3], line[3:]))
    assert len(events) == 3


def test_bookmarks_carry_only_a_version() -> None:
    # The API server sends an empty object of the kind, with its nulls.
    events, _ = watched(stream(event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}, "data": None})))
    assert events == [WatchEvent("BOOKMARK", None, "9")]


def test_the_request_requests_bookmarks_and_a_time() -> None:
    _, target = watched(stream(), resource_version="5", timeout_seconds=120, label_selector="a=b")
    assert target == (
        "/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&labelSelector=a%3Db"
        "&resourceVersion=5&timeoutSeconds=120"
    )


def test_without_a_time_it_is_random() -> None:
    _, target = watched(stream())
    expected = round(300 * random.Random(1).uniform(1.0, 2.0))
    assert target.endswith(f"timeoutSeconds={expected}")


def test_an_expired_version_is_recognised_in_an_event() -> None:
    with pytest.raises(ApiStatusError, match="too old") as caught:
        watched(stream(event("ERROR", status_document(410, "Expired", "too old resource version: 1 (9)"))))
    assert caught.value.is_expired


def test_an_expired_version_is_recognised_in_the_response() -> None:
    with pytest.raises(ApiStatusError) as caught:
        watched(failure(410, "Expired"))
    assert caught.value.is_expired


@pytest.mark.parametrize("kind", [kinds.CONFIG_MAPS, kinds.PODS, kinds.LEASES, kinds.CUSTOM_RESOURCE_DEFINITIONS])
def test_an_error_is_never_taken_for_an_object(kind: Any) -> None:
    with pytest.raises(ApiStatusError):
        next(EventReader(kind).feed(event("ERROR", status_document(500, "InternalError"))))


def test_a_malformed_object_is_an_event() -> None:
    events, _ = watched(
        stream(event("ADDED", config_map("bad", "4", data=[])), event("ADDED", config_map("good", "5")))
    )
    bad = events[0].object
    assert isinstance(bad, Malformed)
    assert (bad.name, bad.namespace, events[0].resource_version) == ("bad", "default", "4")
    assert events[1].object.metadata.name == "good"


def test_a_watch_cut_in_the_middle_of_a_line_is_an_error() -> None:
    events: list[WatchEvent[Any]] = []
    with pytest.raises(TransportError, match="broke off"):
        watched(cut(event("ADDED", config_map("a")), b'{"type":"ADD'), events)
    assert names(events) == [("ADDED", "a")]


def test_a_watch_that_ends_within_a_line_is_an_error() -> None:
    with pytest.raises(TransportError, match="middle of a line"):
        watched(stream(event("ADDED", config_map("a")), b'{"type":"ADD'))


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type":"ADDED"}\n', b'{"type":"NEWS","object":{}}\n', b"[]\n"])
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    with pytest.raises(TransportError, match="watch"):
        watched(stream(line))


def test_a_silent_watch_stalls() -> None:
    async def work() -> TransportError:
        clock = ManualClock()
        async with (
            ScriptedServer(stream(event("ADDED", config_map("a")), end=False)) as server,
            client_of(server.url, clock=clock, watch_stall_seconds=20) as client,
            asyncio.TaskGroup() as group,
        ):
            events = client.watch(kinds.CONFIG_MAPS)
            await anext(events)
            group.create_task(clock.advance(21))
            with pytest.raises(TransportError, match="stalled: nothing for 20 s") as caught:
                await anext(events)
        return caught.value

    assert run(work()).timed_out


def test_a_watch_that_speaks_does_not_stall() -> None:
    async def work() -> list[str]:
        clock, more = ManualClock(), asyncio.Event()
        seen = []

        async def two_events(request: Any) -> Any:
            response = await stream(event("ADDED", config_map("a")), end=True)(request)
            await more.wait()
            await response.write(event("ADDED", config_map("b")))
            return response

        async with (
            ScriptedServer(two_events) as server,
            client_of(server.url, clock=clock, watch_stall_seconds=20) as client,
        ):
            async for item in client.watch(kinds.CONFIG_MAPS):
                seen.append(item.object.metadata.name)  # type: ignore[union-attr]
                await clock.advance(15)
                more.set()
        return seen

    assert run(work()) == ["a", "b"]


def test_leaving_a_watch_closes_its_connection() -> None:
    async def work() -> None:
        left = asyncio.Event()

        async def step(request: Any) -> Any:
            try:
                return await stream(event("ADDED", config_map("a")), end=False)(request)
            finally:
                left.set()

        async with ScriptedServer(step, handler_cancellation=True) as server, client_of(server.url) as client:
            events = client.watch(kinds.CONFIG_MAPS)
            await anext(events)
            await events.aclose()
            await left.wait()

    run(work())


@given(st.lists(st.binary(max_size=12).filter(lambda line: line and b"\n" not in line)), st.data())
def test_splitting_does_not_depend_on_the_pieces(lines: list[bytes], data: st.DataObject) -> None:
    body = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    got = [line for piece in pieces(body, data) for line in splitter.feed(piece)]
    assert got == lines
    assert splitter.pending == 0


def pieces(body: bytes, data: st.DataObject) -> Iterator[bytes]:
    while body:
        size = data.draw(st.integers(1, len(body)))
        yield body[:size]
        body = body[size:]


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(limit=10)
    list(splitter.feed(b"12345"))
    with pytest.raises(TransportError, match="longer than 10 bytes"):
        list(splitter.feed(b"123456"))
