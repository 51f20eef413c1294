"""What the day concludes from how far a program says that it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from koordinator.api.kinds import NODE_METRICS, NODES
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.cli.demo.progress import Page, Program, Round, newest, page_at
from tests.free_ports import free_ports

METRICS = str(NODE_METRICS.qualified)


def program(*pages: Page | str) -> Program:
    left: Iterator[Page | str] = iter(pages)

    async def read() -> Page | str:
        return next(left)

    return Program("koord-manager", read, "manager")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Page({METRICS: "9", "nodes": "4"}, {"keys": 0}, {}), ""),
        (Page({METRICS: "7", "nodes": "3"}, {"keys": 0}, {}), ""),
        (Page({METRICS: "6", "nodes": "3"}, {"keys": 5}, {}), "koord-manager has not read the last NodeMetric"),
        (Page({METRICS: "6", "nodes": ""}, {}, {}), "koord-manager has not read the last NodeMetric and Node"),
        (Page({"nodes": "3"}, {}, {}), "koord-manager has not read the last NodeMetric"),
        (Page({METRICS: "7", "nodes": "3"}, {"keys": 5, "pods": 0}, {}), "koord-manager works on 5 keys"),
        ("ClientError: refused", "koord-manager does not respond: ClientError: refused"),
    ],
)
def test_a_program_lags_until_it_has_read_everything_and_dealt_with_it(page: Page | str, expected: str) -> None:
    assert asyncio.run(program(page).lags({NODE_METRICS: "7", NODES: "3"})) == expected


def _cycles(seen: str, running: int, ended: int) -> Page:
    return Page({METRICS: seen}, {"cycles": running}, {"cycles": ended})


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([_cycles("7", 0, 3), _cycles("7", 1, 3), _cycles("7", 0, 4)], [False, False, True]),
        # The one that runs may have begun before it read the last report.
        ([_cycles("7", 1, 3), _cycles("7", 0, 4), _cycles("7", 0, 5)], [False, False, True]),
        ([_cycles("6", 0, 3), _cycles("6", 0, 4), _cycles("7", 0, 5), _cycles("7", 0, 6)], [False, False, False, True]),
        ([_cycles("7", 0, 3), "TimeoutError: ", _cycles("7", 0, 4)], [False, False, True]),
    ],
)
def test_a_round_counts_that_has_begun_since_everything_was_read(pages: list[Page | str], expected: list[bool]) -> None:
    async def scenario() -> list[bool]:
        reported = Round(program(*pages), "cycles", {NODE_METRICS: "7"})
        return [not await reported.missing() for _ in pages]

    assert asyncio.run(scenario()) == expected


def test_a_program_that_is_away_is_no_error() -> None:
    async def scenario() -> Page | str:
        async with aiohttp.ClientSession() as session:
            return await page_at(session, free_ports(1)[0])()

    assert "Connect" in str(asyncio.run(scenario()))


def test_the_last_change_is_the_largest_number_not_the_last_word() -> None:
    nodes = [Node(metadata=ObjectMeta(name=version, resource_version=version)) for version in ("9", "10", "2")]
    assert (newest(nodes), newest([])) == ("10", "0")
