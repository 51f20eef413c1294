"""What a browser would have of the stream of the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest


class Rows(dict[str, dict[str, Any]]):
    """The rows by table and key. ``lacks`` and ``problems`` are what the tables say instead."""

    def __init__(self) -> None:
        super().__init__()
        self.lacks: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def take(self, turn: dict[str, Any]) -> None:
        for name, table in turn["tables"].items():
            known = {} if turn["whole"] else self.get(name, {})
            known |= table["rows"]
            self[name] = {key: row for key, row in known.items() if row is not None}
            self.lacks[name], self.problems[name] = table["lacks"], table["problem"]


async def read_until(browser: aiohttp.ClientSession, holds: Callable[[Rows], bool]) -> Rows:
    """The rows as soon as it ``holds``."""
    rows = Rows()
    async with asyncio.timeout(60), browser.get("/api/stream") as response:
        assert response.content_type == "text/event-stream", await response.text()
        async for line in response.content:
            if line.startswith(b"data: "):
                rows.take(json.loads(line[6:]))
                if holds(rows):
                    return rows
    raise AssertionError(f"the stream ended at {rows}")


async def printed_link(serving: asyncio.Future[int], capsys: pytest.CaptureFixture[str]) -> str:
    """The address that the command prints once it serves."""
    async with asyncio.timeout(60):
        while True:
            said = capsys.readouterr().out
            if "://" in said:
                return next(word for word in said.split() if "://" in word)
            if serving.done():
                serving.result()
            await asyncio.sleep(0.01)
