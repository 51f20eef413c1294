from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from koordinator.base.server_limits import ServerLimits
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.application import HttpLimits, OpenWatches
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, request

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_watches_leave_room_for_other_requests() -> None:
    async def main() -> list[HttpResponse | None]:
        async with memory_server(limits=HttpLimits(watches=1)) as server:
            watching = Connection(server)
            watching.send_part(request("GET", f"{CONFIG_MAPS}?watch=true"))
            for _ in range(20):
                await asyncio.sleep(0)
            refused = await Connection(server).send(request("GET", f"{CONFIG_MAPS}?watch=true"))
            served = await Connection(server).send(request("GET", CONFIG_MAPS))
            await watching.close()
            return [refused, served]

    refused, served = asyncio.run(main())
    assert refused is not None
    assert (refused.status, refused.document["reason"], refused.headers["retry-after"]) == (429, "TooManyRequests", "1")
    assert served is not None
    assert served.status == 200


@pytest.mark.parametrize(
    ("watches", "connections", "files", "most"),
    [(100, 1000, 1000, 100), (1000, 100, 1000, 75), (1000, 1000, 100, 50), (1000, 1, 1000, 1)],
)
def test_they_never_take_all_connections_or_files(watches: int, connections: int, files: int, most: int) -> None:
    limits = HttpLimits(ServerLimits(connections=connections), watches=watches)
    assert limits.most_watches(files) == most


def test_one_may_come_when_another_has_gone() -> None:
    watches = OpenWatches(1)
    with watches.one(), pytest.raises(ApiError), watches.one():
        pass
    with watches.one():
        pass


def test_the_memory_of_a_crowd_is_given_back_once() -> None:
    calls: list[int] = []
    watches = OpenWatches(2_000, lambda: calls.append(1))
    with ExitStack() as crowd:
        for _ in range(1_000):
            crowd.enter_context(watches.one())
    assert len(calls) == 1


def test_a_few_that_come_and_go_beside_many_are_not_worth_it() -> None:
    calls: list[int] = []
    watches = OpenWatches(2_000, lambda: calls.append(1))
    with ExitStack() as crowd:
        for _ in range(1_000):
            crowd.enter_context(watches.one())
        for _ in range(600):
            with watches.one():
                pass
        assert calls == []
