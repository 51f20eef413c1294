"""What a client moves is counted, whatever is written to it meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from koordinator.base.served_stream import CountedTransport, unread
from tests.kube.clients import run

LENGTH = 100_000


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[CountedTransport, socket.socket]]:
    """The transport of a server, and its client."""
    ours, client = socket.socketpair()
    client.setblocking(False)
    with client:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, ours)
        try:
            yield CountedTransport(transport), client
        finally:
            transport.abort()


async def read(client: socket.socket, length: int) -> None:
    while length:
        length -= len(await asyncio.get_running_loop().sock_recv(client, length))


def test_the_count_is_that_of_what_the_client_has_sent_and_read() -> None:
    async def scenario() -> None:
        async with connected() as (transport, client):
            transport.write(bytes(LENGTH))
            transport.writelines([bytes(LENGTH), bytes(LENGTH)])
            transport.received += 7
            await read(client, 3 * LENGTH)
            assert transport.progress(is_its_turn=True) == 3 * LENGTH + 7

    run(scenario())


def test_what_the_kernel_holds_has_not_been_read() -> None:
    async def scenario() -> None:
        async with connected() as (transport, client):
            transport.write(bytes(100))
            assert transport.get_write_buffer_size() == 0
            assert unread(transport) >= 100
            await read(client, 100)
            assert unread(transport) == 0

    run(scenario())


def test_a_client_that_is_sent_as_much_as_it_reads_moves() -> None:
    async def scenario() -> int:
        async with connected() as (transport, client):
            transport.write(bytes(20 * LENGTH))
            before = transport.progress(is_its_turn=False)
            transport.write(bytes(10 * LENGTH))
            await read(client, 10 * LENGTH)
            after = transport.progress(is_its_turn=False)
            assert before is not None
            assert after is not None
            return after - before

    # The kernel counts in pieces, and what they cost it.
    assert run(scenario()) > 8 * LENGTH


def test_it_is_nobodys_turn_while_nothing_waits_for_the_client() -> None:
    async def scenario() -> None:
        async with connected() as (transport, _):
            transport.write(b"an event")
            assert transport.progress(is_its_turn=False) is None
            transport.write(bytes(20 * LENGTH))
            assert transport.progress(is_its_turn=False) is not None

    run(scenario())


def test_a_socket_that_is_closed_holds_nothing() -> None:
    async def scenario() -> int:
        async with connected() as (transport, _):
            transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return unread(transport)

    assert run(scenario()) == 0
