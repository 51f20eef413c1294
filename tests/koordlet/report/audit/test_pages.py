"""Paging through the audit log, as a client of ``/events`` sees it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.options import AuditOptions
from koordinator.koordlet.report.audit.log import AuditEvent, AuditLog
from koordinator.koordlet.report.audit.pages import AuditPages, handler, lines_backwards
from koordinator.kube.serving import HealthServer


class Served:
    """An audit log with its pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.log = AuditLog(folder, AuditOptions(), self.clock, UTC)
        numbers = count()
        options = AuditOptions(readers=2, events_per_page=300)
        self.pages = AuditPages(self.log, options, self.clock, lambda: f"t{next(numbers)}")

    def record(self, *names: int) -> None:
        for name in names:
            self.log.record(AuditEvent(name=str(name)), 0)

    def play(self, story: Callable[[ClientSession], Awaitable[None]], *, pages: bool = True) -> None:
        async def run() -> None:
            server = HealthServer(Metrics())
            server.add_route("/events", handler(self.pages if pages else None))
            await server.start()
            try:
                async with ClientSession(f"http://127.0.0.1:{server.bound_port}") as client:
                    await story(client)
            finally:
                await server.stop()

        asyncio.run(run())
        self.pages.close()
        self.log.close()


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


async def names(client: ClientSession, query: str) -> tuple[list[int], str]:
    """Of one page, and the token of the next."""
    async with client.get(f"/events{query}", headers={"Accept": "application/json"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        body = await response.json()
    return [int(event["name"]) for event in body["Events"]], body["NextPageToken"]


def test_the_newest_event_comes_first_and_the_end_has_no_token(served: Served) -> None:
    served.record(*range(5))

    async def story(client: ClientSession) -> None:
        page, token = await names(client, "?size=2")
        assert page == [4, 3]
        assert await names(client, f"?size=2&pageToken={token}") == ([2, 1], token)
        assert await names(client, f"?size=2&pageToken={token}") == ([0], "")

    served.play(story)


def test_who_pages_sees_the_log_as_it_was_at_the_first_page(served: Served) -> None:
    served.record(*range(4))

    async def story(client: ClientSession) -> None:
        _, token = await names(client, "?size=2")
        served.record(99)
        served.log.flush()
        (served.folder / "audit.log").rename(served.folder / "audit-2026-01-01-00-00-00-0.log")
        assert await names(client, f"?size=9&pageToken={token}") == ([1, 0], "")

    served.play(story)


def test_rotated_files_follow_newest_first(served: Served) -> None:
    for day in (1, 2):
        (served.folder / f"audit-2025-12-0{day}-00-00-00-0.log").write_text(f'{{"name":"{day}"}}\n')
    served.record(3)

    async def story(client: ClientSession) -> None:
        assert await names(client, "") == ([3, 2, 1], "")

    served.play(story)


def test_text_has_the_token_in_a_header(served: Served) -> None:
    served.record(*range(3))

    async def story(client: ClientSession) -> None:
        async with client.get("/events?size=2") as response:
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert response.headers["Next-Page-Token"] == "t0"
            lines = (await response.text()).splitlines()
        assert [json.loads(line)["name"] for line in lines] == ["2", "1"]

    served.play(story)


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("?size=301", 400, "size(301) exceeds the limit(300)\n"),
        ("?size=-1", 400, "size(-1) is negative\n"),
        ("?pageToken=x", 409, "invalid pageToken x\n"),
    ],
)
def test_what_is_refused(served: Served, query: str, status: int, text: str) -> None:
    async def story(client: ClientSession) -> None:
        async with client.get(f"/events{query}") as response:
            assert (response.status, await response.text()) == (status, text)

    served.play(story)


def test_a_size_that_is_no_number_is_the_default(served: Served) -> None:
    served.record(*range(260))

    async def story(client: ClientSession) -> None:
        page, _ = await names(client, "?size=many")
        assert len(page) == 256

    served.play(story)


def test_a_line_that_is_no_event_is_left_out_and_counts(served: Served) -> None:
    (served.folder / "audit.log").write_text('{"name":"1"}\nnonsense\n{"name":"2"}\n')

    async def story(client: ClientSession) -> None:
        assert await names(client, "?size=2") == ([2], "t0")

    served.play(story)


def test_the_oldest_of_too_many_is_closed(served: Served) -> None:
    served.record(*range(9))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        served.pages.page("", 1)
    assert len(os.listdir("/proc/self/fd")) == before + 2

    async def story(client: ClientSession) -> None:
        async with client.get("/events?pageToken=t0") as response:
            assert response.status == 409
        assert await names(client, "?size=1&pageToken=t4") == ([7], "t4")

    served.play(story)


def test_who_does_not_request_ten_minutes_is_closed(served: Served) -> None:
    served.record(1)

    async def story(client: ClientSession) -> None:
        await names(client, "?size=1")
        await served.clock.advance(601)
        async with client.get("/events?pageToken=t0") as response:
            assert response.status == 200
        await served.clock.advance(601)
        served.pages.drop_expired()
        async with client.get("/events?pageToken=t0") as response:
            assert response.status == 409

    served.play(story)


def test_without_an_audit_log_the_response_is_empty(served: Served) -> None:
    async def story(client: ClientSession) -> None:
        async with client.get("/events") as response:
            assert (response.status, await response.read()) == (200, b"")

    served.play(story, pages=False)


def test_a_folder_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    served = Served(tmp_path / "absent")

    async def story(client: ClientSession) -> None:
        assert await names(client, "") == ([], "")

    served.play(story)


@given(st.lists(st.binary(max_size=90_000).map(lambda line: line.replace(b"\n", b"")), max_size=6), st.booleans())
def test_lines_backwards_are_the_lines(lines: list[bytes], ends_with_newline: bool) -> None:
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, b"\n".join(lines) + (b"\n" if ends_with_newline else b""))
        assert list(lines_backwards(descriptor)) == [line for line in reversed(lines) if line]
    finally:
        os.close(descriptor)


def test_a_line_that_is_too_long_is_left_out() -> None:
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, b"first\n" + b"x" * (3 << 20) + b"\nlast\n")
        assert list(lines_backwards(descriptor)) == [b"last", b"first"]
    finally:
        os.close(descriptor)
