"""Clients that take up connections, time or requests end without harm to others. Limits are tiny here."""

from __future__ import annotations

import asyncio
import resource

import msgspec
import pytest

from koordinator.cluster.http.application import ConnectionCount, HttpLimits
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, parse, request

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SOON = 0.01
HEADERS = f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n".encode()
WAIT = 20.0
"""Seconds after which a test has failed."""


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def main() -> bytes:
        async with memory_server(limits=HttpLimits(header_timeout=SOON)) as server:
            connection = Connection(server)
            await asyncio.wait_for(connection.ended(), WAIT)
            return bytes(connection.transport.written)

    assert asyncio.run(main()) == b""


def test_headers_that_never_end_are_not_waited_for() -> None:
    async def main() -> None:
        async with memory_server(limits=HttpLimits(header_timeout=SOON)) as server:
            connection = Connection(server)
            connection.send_part(HEADERS)
            await asyncio.wait_for(connection.ended(), WAIT)

    asyncio.run(main())


def test_a_connection_that_has_sent_a_request_stays_open() -> None:
    async def main() -> tuple[HttpResponse | None, bool]:
        async with memory_server(limits=HttpLimits(header_timeout=SOON)) as server:
            connection = Connection(server)
            response = await connection.send(request("GET", CONFIG_MAPS))
            loop, later = asyncio.get_running_loop(), asyncio.Event()
            loop.call_later(4 * SOON, later.set)
            await later.wait()
            return response, connection.transport.closed

    response, closed = asyncio.run(main())
    assert response is not None
    assert (response.status, closed) == (200, False)


def test_a_connection_that_is_idle_after_a_response_is_closed() -> None:
    async def main() -> None:
        async with memory_server(limits=HttpLimits(idle_timeout=SOON)) as server:
            connection = Connection(server)
            assert await connection.send(request("GET", CONFIG_MAPS)) is not None
            await asyncio.wait_for(connection.ended(), WAIT)

    asyncio.run(main())


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def main() -> HttpResponse | None:
        async with memory_server(limits=HttpLimits(body_timeout=SOON)) as server:
            connection = Connection(server)
            connection.send_part(request("POST", CONFIG_MAPS, b"{" + b" " * 100)[:-50])
            while (response := parse(bytes(connection.transport.written))) is None:
                await asyncio.sleep(SOON)
            return response

    response = asyncio.run(asyncio.wait_for(main(), WAIT))
    assert response is not None
    assert (response.status, response.document["reason"]) == (408, "Timeout")
    assert "did not arrive within 0.01 seconds" in response.document["message"]


def test_a_watch_has_all_the_time_that_it_requests() -> None:
    limits = HttpLimits(header_timeout=SOON, body_timeout=SOON, idle_timeout=SOON)

    async def main() -> bool:
        async with memory_server(limits=limits) as server:
            connection = Connection(server)
            await connection.send(request("GET", f"{CONFIG_MAPS}?watch=true"))
            later = asyncio.Event()
            asyncio.get_running_loop().call_later(6 * SOON, later.set)
            await later.wait()
            closed = connection.transport.closed
            await connection.close()
            return closed

    assert not asyncio.run(main())


def test_one_connection_too_many_is_told_to_come_later() -> None:
    async def main() -> tuple[bytes, bool, HttpResponse | None]:
        async with memory_server(limits=HttpLimits(connections=1)) as server:
            first, second = Connection(server), Connection(server)
            refused, closed = bytes(second.transport.written), second.transport.closed
            await first.close()
            await second.close()
            return refused, closed, await Connection(server).send(request("GET", CONFIG_MAPS))

    refused, closed, afterwards = asyncio.run(main())
    response = parse(refused)
    assert response is not None
    assert (response.status, response.headers["retry-after"], closed) == (429, "1", True)
    assert response.document["details"] == {"retryAfterSeconds": 1}
    assert afterwards is not None
    assert afterwards.status == 200


def test_requests_beyond_the_limit_are_told_to_come_later_and_watches_are_not_counted() -> None:
    async def main() -> list[HttpResponse | None]:
        async with memory_server(limits=HttpLimits(requests=1)) as server:
            watching, waiting, other = (Connection(server) for _ in range(3))
            watching.send_part(request("GET", f"{CONFIG_MAPS}?watch=true"))
            body = msgspec.json.encode({"metadata": {"name": "a"}})
            whole = request("POST", CONFIG_MAPS, body)
            waiting.send_part(whole[:-5])
            for _ in range(20):
                await asyncio.sleep(0)
            refused = await other.send(request("GET", CONFIG_MAPS))
            served = await waiting.send(whole[-5:])
            await watching.close()
            return [refused, served, await Connection(server).send(request("GET", CONFIG_MAPS))]

    refused, served, afterwards = asyncio.run(main())
    assert refused is not None
    assert (refused.status, refused.document["reason"], refused.headers["retry-after"]) == (429, "TooManyRequests", "1")
    assert served is not None
    assert served.status == 201
    assert afterwards is not None
    assert afterwards.status == 200


def test_a_compressed_body_is_not_unpacked() -> None:
    async def main() -> HttpResponse | None:
        async with memory_server() as server:
            return await Connection(server).send(request("POST", CONFIG_MAPS, b"\x1f\x8b\x08", Content_Encoding="gzip"))

    response = asyncio.run(main())
    assert response is not None
    assert response.status == 400


@pytest.mark.parametrize(("files", "limit"), [(1024, 857), (100_000, 500), (10, 1)])
def test_connections_leave_files_for_the_store(monkeypatch: pytest.MonkeyPatch, files: int, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (files, files))
    assert ConnectionCount(HttpLimits(connections=500 if files > 1024 else 10_000)).limit == limit
