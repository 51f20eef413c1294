"""Requests that take up room end without harm to others; ``test_hostile_clients`` is about connections."""

from __future__ import annotations

import asyncio

import msgspec

from koordinator.cluster.http.application import HttpLimits
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, request

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


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
