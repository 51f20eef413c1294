"""Turns of the board, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from koordinator.base.clock import ManualClock
from koordinator.cli.page.board import ALL, Board, Sight, Table, sees_all
from koordinator.cli.page.broadcast import Broadcast
from koordinator.cli.page.viewers import Viewer


def broadcast() -> tuple[Table, Broadcast]:
    table = Table("t")
    return table, Broadcast(Board([table]), lambda: None, ManualClock())


def viewer() -> Viewer:
    nobody: Any = None
    return Viewer(sees_all, nobody, nobody, lambda folder: ())


async def news(events: Any) -> dict[str, Any]:
    found = json.loads((await anext(events)).removeprefix(b"data: "))
    return {"whole": found["whole"], **found["tables"]["t"]["rows"]}


def test_a_viewer_gets_the_whole_and_then_each_turn() -> None:
    async def story() -> None:
        table, told = broadcast()
        table.put("a", {"n": 1})
        told.turn()
        events = told.events(viewer())
        assert await news(events) == {"whole": True, "a": {"n": 1}}
        waiting = asyncio.ensure_future(news(events))
        await asyncio.sleep(0)
        table.put("b", {"n": 2})
        told.turn()
        assert await waiting == {"whole": False, "b": {"n": 2}}

    asyncio.run(story())


def test_a_viewer_who_has_fallen_behind_gets_the_whole_again() -> None:
    async def story() -> None:
        table, told = broadcast()
        events = told.events(viewer())
        await anext(events)
        for number in range(100):
            table.put("a", {"n": number})
            told.turn()
        waiting = asyncio.ensure_future(news(events))
        await asyncio.sleep(0)
        told.turn()
        assert await waiting == {"whole": True, "a": {"n": 99}}

    asyncio.run(story())


def test_a_viewer_whose_rights_change_gets_the_whole_of_what_is_left() -> None:
    def nothing(table: str) -> Sight:
        return Sight(everywhere=False, lacks="list t")

    async def story() -> None:
        table, told = broadcast()
        table.put("a", {})
        told.turn()
        person = viewer()
        events = told.events(person)
        assert await news(events) == {"whole": True, "a": {}}
        person.sight_of = nothing
        waiting = asyncio.ensure_future(news(events))
        await asyncio.sleep(0)
        told.turn()
        assert await waiting == {"whole": True}

    asyncio.run(story())
    assert ALL.everywhere


def test_a_viewer_hears_that_the_server_is_there_when_nothing_changes() -> None:
    async def story() -> None:
        _, told = broadcast()
        events = told.events(viewer())
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        for _ in range(5):
            await asyncio.sleep(0)
            told.turn()
        assert (await waiting).startswith(b":")

    asyncio.run(story())


def test_whoever_goes_is_no_viewer_any_more() -> None:
    async def story() -> None:
        _, told = broadcast()
        person = viewer()
        events = told.events(person)
        await anext(events)
        assert person.watches == 1
        await events.aclose()
        assert person.watches == 0

    asyncio.run(story())
