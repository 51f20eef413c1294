"""Profiles over HTTP, under the paths of Go programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.profile_pages import ProfilePages
from koordinator.kube.serving import HealthServer
from tests.base.profiling.pprof_file import read_pprof

Get = Callable[[str], Awaitable[tuple[int, bytes]]]


def with_pages(check: Callable[[Get, ManualClock], Awaitable[None]]) -> None:
    async def scenario() -> None:
        server, clock = HealthServer(Metrics()), ManualClock()
        ProfilePages(clock).add_to(server)
        await server.start()
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.bound_port}") as session:

                async def get(path: str) -> tuple[int, bytes]:
                    async with session.get(path) as response:
                        return response.status, await response.read()

                await check(get, clock)
        finally:
            await server.stop()

    asyncio.run(scenario())


async def after(clock: ManualClock, seconds: float, requested: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """The response to what was requested, when so much time has passed."""
    response = asyncio.ensure_future(requested)
    while not clock.sleepers:
        await asyncio.sleep(0)
    await clock.advance(seconds)
    return await response


@pytest.mark.parametrize(
    ("path", "seconds", "units"),
    [
        ("profile", 30, [("samples", "count"), ("cpu", "nanoseconds")]),
        ("profile?seconds=2", 2, [("samples", "count"), ("cpu", "nanoseconds")]),
        ("heap", 10, [("inuse_objects", "count"), ("inuse_space", "bytes")]),
        ("heap?seconds=300", 300, [("inuse_objects", "count"), ("inuse_space", "bytes")]),
    ],
)
def test_a_profile_takes_as_long_as_it_was_told_to(path: str, seconds: int, units: list[tuple[str, str]]) -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await after(clock, seconds, get(f"/debug/pprof/{path}"))
        assert status == 200
        assert (read_pprof(body).duration_nanos, read_pprof(body).units) == (seconds * 10**9, units)

    with_pages(check)


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "1.5", "x", "٣", "99999999999"])
def test_other_times_are_refused(seconds: str) -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await get(f"/debug/pprof/profile?seconds={seconds}")
        assert status == 400
        assert b"a whole number from 1 to 300 is allowed" in body

    with_pages(check)


def test_one_profile_is_taken_at_a_time() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        first = asyncio.ensure_future(get("/debug/pprof/profile"))
        while not clock.sleepers:
            await asyncio.sleep(0)
        status, body = await get("/debug/pprof/heap")
        assert (status, body) == (500, b"Could not enable profiling: another profile is being taken\n")
        await clock.advance(30)
        assert (await first)[0] == 200
        assert (await after(clock, 1, get("/debug/pprof/heap?seconds=1")))[0] == 200

    with_pages(check)


def test_stacks_are_reported_as_a_profile() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await get("/debug/pprof/goroutine")
        assert (status, read_pprof(body).units) == (200, [("goroutine", "count")])
        assert sum(values[0] for values in read_pprof(body).samples.values()) >= 2

    with_pages(check)


def test_stacks_are_reported_as_text() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await get("/debug/pprof/goroutine?debug=2")
        assert status == 200
        assert b"thread MainThread:\n  koordinator.base.profiling.running_stacks\n" in body

    with_pages(check)


def test_the_command_line_is_reported() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        assert await get("/debug/pprof/cmdline") == (200, "\0".join(sys.argv).encode())

    with_pages(check)


def test_the_index_names_every_profile() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await get("/debug/pprof")
        assert status == 200
        for name in (b"cmdline", b"goroutine", b"heap", b"profile"):
            assert b'<a href="' + name + b'">' in body

    with_pages(check)


def test_what_python_does_not_have_is_said() -> None:
    async def check(get: Get, clock: ManualClock) -> None:
        status, body = await get("/debug/pprof/mutex")
        assert status == 404
        assert body == b"Unknown profile 'mutex': a Python program has cmdline, goroutine, heap, profile\n"

    with_pages(check)
