"""Peers that break the rules of HTTP/2, or bend them: a relay between two transports that only record."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import SOCKET_LIMITS
from koordinator.node import http2
from koordinator.node.grpc_messages import encode_message
from koordinator.runtime_proxy.buffer_budget import BufferBudget
from koordinator.runtime_proxy.intercepted_call import CallHandler, Forward, Reject
from koordinator.runtime_proxy.relay import Relay
from tests.runtime_proxy.proxied import run


class _Transport:
    """What was written, and whether it was closed; nothing of it is ever read by the peer unless ``is_read``."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.is_read = True
        self._closed = socket.socket()
        self._closed.close()

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.written += data

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self._closed

    def get_write_buffer_size(self) -> int:
        return 0 if self.is_read else len(self.written)

    def frames(self) -> list[tuple[int, int]]:
        """Kind and stream of each frame."""
        return [
            (frame.kind, frame.stream) for frame in http2.FrameSplitter(preface=False).split(bytes(self.written))[1]
        ]

    def statuses(self) -> Iterator[tuple[int, bytes]]:
        data, frames = http2.FrameSplitter(preface=False).split(bytes(self.written))
        return ((frame.stream, http2.header_block(data, frame)) for frame in frames if frame.kind == http2.HEADERS)


class _Handler:
    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()

    async def before(self, request: bytes) -> Forward | Reject:
        self.requests.append(request)
        return Forward()

    async def after(self, response: bytes | None) -> None:
        await self.may_finish.wait()


class _Interceptor:
    def __init__(self) -> None:
        self.made = _Handler()

    def handler(self, path: str) -> CallHandler | None:
        return self.made if path == "/intercepted" else None


class _Peers:
    def __init__(self, tasks: asyncio.TaskGroup, budget: BufferBudget) -> None:
        self.client, self.runtime = _Transport(), _Transport()
        self.interceptor = _Interceptor()
        self.clock = ManualClock()
        pool = ProgramConnections(Metrics(), self.clock).serve("/proxy.sock", SOCKET_LIMITS)
        self.served = pool.open("process 1", self.client.close)
        transports = cast("Any", self.client), cast("Any", self.runtime)
        self.relay = Relay(*transports, self.interceptor, tasks, lambda: None, budget, self.served)
        self.relay.from_client(http2.PREFACE + http2.settings(()))

    def request(self, stream: int, path: bytes = b"/intercepted") -> None:
        block = http2.literal_headers(((b":path", path),))
        self.relay.from_client(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block))

    def data(self, stream: int, content: bytes, flags: int = 0) -> None:
        self.relay.from_client(http2.frame(http2.DATA, flags, stream, content))


def _with_peers(scenario: Any, budget: BufferBudget | None = None) -> None:
    async def within() -> None:
        async with asyncio.TaskGroup() as tasks:
            peers = _Peers(tasks, budget or BufferBudget())
            await scenario(peers)
            peers.relay.lost()
            peers.served.closed()

    run(within())


def _success(stream: int) -> bytes:
    """A whole response of the runtime."""
    block = http2.literal_headers(((b":status", b"200"), (b"grpc-status", b"0")))
    return http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, block)


def test_a_request_that_ends_twice_is_queried_about_once() -> None:
    async def scenario(peers: _Peers) -> None:
        peers.request(1)
        peers.data(1, encode_message(b"once"), http2.END_STREAM)
        peers.data(1, encode_message(b"again"), http2.END_STREAM)
        await asyncio.sleep(0)
        assert len(peers.interceptor.made.requests) <= 1
        assert peers.client.is_closed

    _with_peers(scenario)


def test_nothing_of_a_stream_that_is_dropped_while_draining_reaches_the_runtime() -> None:
    """A frame of a stream that the runtime has never heard of would end its connection, with the calls in flight."""

    async def scenario(peers: _Peers) -> None:
        peers.request(1, b"/passes")
        peers.relay.drain()
        peers.runtime.written.clear()
        peers.request(3, b"/passes")
        peers.relay.from_client(http2.window_update(3, 100))
        peers.data(3, b"x", http2.END_STREAM)
        peers.relay.from_client(http2.reset(3, http2.CANCEL))
        assert peers.runtime.frames() == []

    _with_peers(scenario)


def test_a_client_that_never_reads_cannot_make_the_relay_write_without_end() -> None:
    """Each byte of a request that is collected is answered with a WINDOW_UPDATE of 13."""

    async def scenario(peers: _Peers) -> None:
        peers.client.is_read = False
        peers.request(1)
        many = http2.frame(http2.DATA, 0, 1, b"x") * 10_000
        for _ in range(50):
            peers.relay.from_client(many)
        assert peers.client.is_closed
        assert len(peers.client.written) < 3 << 20

    _with_peers(scenario)


def test_requests_that_are_collected_share_a_budget() -> None:
    async def scenario(peers: _Peers) -> None:
        for stream in (1, 3, 5):
            peers.request(stream)
            for _ in range(3):
                peers.data(stream, bytes(10_000))
        refused = [stream for stream, block in peers.client.statuses() if b"grpc-status\x018" in block]
        assert refused == [5]
        # What is given up is free for others.
        peers.relay.from_client(http2.reset(1, http2.CANCEL))
        peers.request(7)
        peers.data(7, bytes(10_000))
        assert [stream for stream, _ in peers.client.statuses()] == [5]

    _with_peers(scenario, BufferBudget(65_000))


def test_a_lost_connection_gives_its_budget_back() -> None:
    budget = BufferBudget(1000)

    async def scenario(peers: _Peers) -> None:
        peers.request(1)
        peers.data(1, bytes(900))
        assert budget.used == 900
        peers.relay.lost()
        assert budget.used == 0

    _with_peers(scenario, budget)


def test_a_response_that_waits_for_a_hook_is_not_lost_with_the_runtime() -> None:
    """A runtime that shuts down closes its connection when it has answered everything, and the hook has not."""

    async def scenario(peers: _Peers) -> None:
        peers.interceptor.made.may_finish.clear()
        peers.request(1)
        peers.data(1, encode_message(b"x"), http2.END_STREAM)
        for _ in range(3):
            await asyncio.sleep(0)
        peers.relay.from_runtime(http2.go_away(1, http2.NO_ERROR) + _success(1))
        await asyncio.sleep(0)
        assert list(peers.client.statuses()) == []
        peers.relay.lost()
        assert [stream for stream, _ in peers.client.statuses()] == [1]
        peers.interceptor.made.may_finish.set()

    _with_peers(scenario)


def test_a_call_that_the_leaving_runtime_did_not_process_is_dropped() -> None:
    """Its client makes it again on another connection, where its hooks are called."""
    budget = BufferBudget()

    async def scenario(peers: _Peers) -> None:
        peers.request(1, b"/passes")
        peers.request(3)
        peers.data(3, encode_message(b"x"), http2.END_STREAM)
        peers.runtime.written.clear()
        peers.relay.from_runtime(http2.go_away(1, http2.NO_ERROR))
        for _ in range(3):
            await asyncio.sleep(0)
        assert (peers.interceptor.made.requests, budget.used, peers.runtime.frames()) == ([], 0, [])
        assert (http2.GOAWAY, 0) in peers.client.frames()
        assert not peers.relay.is_idle
        peers.relay.from_runtime(_success(1))
        assert peers.relay.is_idle

    _with_peers(scenario, budget)


def test_what_waits_for_the_runtimes_window_counts_until_it_is_sent() -> None:
    budget = BufferBudget(200_000)

    async def scenario(peers: _Peers) -> None:
        peers.request(1)
        for _ in range(10):
            peers.data(1, bytes(10_000))
        peers.data(1, b"", http2.END_STREAM)
        for _ in range(3):
            await asyncio.sleep(0)
        assert budget.used == 100_000
        peers.relay.from_runtime(http2.window_update(0, 100_000) + http2.window_update(1, 100_000))
        peers.relay.from_runtime(_success(1))
        for _ in range(3):
            await asyncio.sleep(0)
        assert budget.used == 0

    _with_peers(scenario, budget)


@pytest.mark.parametrize("count", [1, 500])
def test_a_storm_of_resets_leaves_nothing(count: int) -> None:
    budget = BufferBudget()

    async def scenario(peers: _Peers) -> None:
        for number in range(count):
            peers.request(2 * number + 1)
            peers.data(2 * number + 1, encode_message(b"x"), http2.END_STREAM)
            peers.relay.from_client(http2.reset(2 * number + 1, http2.CANCEL))
        await asyncio.sleep(0)
        assert (peers.relay.is_idle, budget.used, peers.interceptor.made.requests) == (True, 0, [])

    _with_peers(scenario, budget)


@pytest.mark.parametrize(
    "sent",
    [
        http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\x80"),
        http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff" * 20),
        http2.frame(http2.HEADERS, http2.END_HEADERS | http2.PADDED, 1, b"\xff"),
        # A kilobyte in the table, named again and again: what it decodes to is above the limit.
        http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\x40\x01x\x7f\xe9\x06" + bytes(1000) + b"\xbe" * 9000),
        http2.frame(http2.HEADERS, 0, 1, b"") + http2.frame(http2.PING, 0, 0, bytes(8)),
        http2.frame(http2.HEADERS, 0, 1, b"") + http2.frame(http2.CONTINUATION, 0, 1, bytes(16_384)) * 70,
        (http2.LONGEST_FRAME + 1).to_bytes(3, "big") + bytes(6),
        http2.frame(http2.SETTINGS, 0, 0, b"12345"),
    ],
)
def test_what_breaks_the_rules_closes_both_connections(sent: bytes) -> None:
    async def scenario(peers: _Peers) -> None:
        peers.relay.from_client(sent)
        assert (peers.client.is_closed, peers.runtime.is_closed) == (True, True)

    _with_peers(scenario)


async def _pass_time(clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        await clock.advance(1)


def test_an_intercepted_call_that_is_never_complete_fails_alone() -> None:
    budget = BufferBudget()

    async def scenario(peers: _Peers) -> None:
        peers.request(1)
        peers.data(1, bytes(900))
        peers.request(3)
        peers.data(3, encode_message(b"x"), http2.END_STREAM)
        peers.request(5, b"/passes")
        await _pass_time(peers.clock, 29)
        assert list(peers.client.statuses()) == []
        peers.runtime.written.clear()
        await _pass_time(peers.clock, 2)
        ((stream, status),) = peers.client.statuses()
        assert (stream, b"grpc-status\x014" in status) == (1, True)
        assert peers.runtime.frames() == [(http2.RST_STREAM, 1)]
        # What is still sent of it reaches nobody, and the others go on.
        peers.data(1, bytes(900), http2.END_STREAM)
        peers.relay.from_runtime(_success(3) + _success(5))
        for _ in range(3):
            await asyncio.sleep(0)
        assert [stream for stream, _ in peers.client.statuses()] == [1, 5, 3]
        assert (peers.interceptor.made.requests, budget.used, peers.client.is_closed) == ([b"x"], 0, False)
        assert peers.served.is_idle

    _with_peers(scenario, budget)


def test_a_stream_that_only_passes_may_be_silent_for_hours() -> None:
    async def scenario(peers: _Peers) -> None:
        peers.request(1, b"/passes")
        peers.data(1, b"\0")
        await _pass_time(peers.clock, 7200)
        peers.relay.from_runtime(_success(1))
        assert [stream for stream, _ in peers.client.statuses()] == [1]
        assert not peers.client.is_closed

    _with_peers(scenario)


@pytest.mark.parametrize("path", [b"/passes", b"/intercepted"])
def test_a_call_for_whose_response_the_client_waits_is_never_in_the_way(path: bytes) -> None:
    """Others are closed when there is no room; a client whose turn it is may be, when all have calls in progress."""

    async def scenario(peers: _Peers) -> None:
        peers.request(1, path)
        assert [peers.served.is_stalled(at) for at in (0.0, 1.0)] == [False, True]
        peers.data(1, encode_message(b"x"), http2.END_STREAM)
        assert [peers.served.is_stalled(at) for at in (2.0, 9.0)] == [False, False]

    _with_peers(scenario)


def test_a_client_that_does_not_read_its_response_may_be_closed_for_another() -> None:
    async def scenario(peers: _Peers) -> None:
        peers.request(1, b"/passes")
        peers.data(1, encode_message(b"x"), http2.END_STREAM)
        peers.client.is_read = False
        peers.relay.from_runtime(http2.frame(http2.DATA, 0, 1, b"x"))
        assert [peers.served.is_stalled(at) for at in (0.0, 1.0)] == [False, True]

    _with_peers(scenario)
