"""A client for what only a leader may do: the right to write is requested when nothing but sending is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from koordinator.api.kinds import CONFIG_MAPS
from koordinator.kube.errors import FencedError
from tests.kube.clients import ImpatientClock, client_of, run
from tests.kube.scripted_server import ScriptedServer, config_map, response


def written(may_write: Callable[[ImpatientClock], bool], **options: float) -> int:
    """How many of two requests to write arrive."""
    clock = ImpatientClock()

    async def work() -> int:
        async with (
            ScriptedServer(response(config_map("a")), response(config_map("a"))) as server,
            client_of(server.url, clock=clock, **options) as client,
        ):
            fenced = client.fenced(lambda: may_write(clock))
            with suppress(FencedError):
                for _ in range(2):
                    await fenced.create(CONFIG_MAPS, {}, "default")
            return len(server.received)

    return run(work())


def test_who_may_write_does() -> None:
    assert written(lambda _: True) == 2


def test_who_may_not_write_sends_nothing() -> None:
    assert written(lambda _: False) == 0


def test_the_right_may_be_lost_while_a_request_waits_for_its_turn() -> None:
    assert written(lambda clock: clock.monotonic() < 5, qps=0.1, burst=1) == 1


def test_reading_is_always_allowed_and_the_client_itself_is_not_fenced() -> None:
    async def work() -> int:
        async with (
            ScriptedServer(response(config_map("a")), response(config_map("a"))) as server,
            client_of(server.url) as client,
        ):
            fenced = client.fenced(lambda: False)
            await fenced.get(CONFIG_MAPS, "a", "default")
            with pytest.raises(FencedError):
                await fenced.delete(CONFIG_MAPS, "a", "default")
            await client.create(CONFIG_MAPS, {}, "default")
            return len(server.received)

    assert run(work()) == 2
