"""A client that does not read a large answer loses its connection; one that reads gets all of it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from koordinator.base.clock import ManualClock
from koordinator.cluster.http.application import deliver

SIZE = 64 << 20
REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


class _Server:
    """Answers every request with a large body; ``handled`` is set when it has been delivered or dropped."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.handled = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await deliver(self.clock, request, web.Response(body=bytes(SIZE)))
        self.handled.set()
        return response

    async def start(self) -> tuple[web.ServerRunner, int]:
        runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (address,) = runner.addresses
        return runner, address[1]


def test_a_client_that_does_not_read_is_dropped() -> None:
    async def main() -> None:
        server = _Server()
        runner, port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(REQUEST)
        async with asyncio.timeout(20):
            while not server.clock.sleepers:
                await asyncio.sleep(0)  # the request is on its way
            await server.clock.advance(93)
            assert not server.handled.is_set()
            await server.clock.advance(2)
            await server.handled.wait()
        received = 0
        try:
            while part := await reader.read(1 << 20):
                received += len(part)
        except ConnectionError:
            pass
        assert received < SIZE
        writer.close()
        await runner.cleanup()

    asyncio.run(main())


def test_a_client_that_reads_gets_all_of_it() -> None:
    async def main() -> None:
        server = _Server()
        runner, port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        async with asyncio.timeout(20):
            await reader.readuntil(b"\r\n\r\n")
            assert len(await reader.readexactly(SIZE)) == SIZE
        writer.close()
        await runner.cleanup()

    asyncio.run(main())
