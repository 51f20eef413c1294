"""The proxy's sockets among clients that have a fault: the kubelet is served, and the runtime is spared, too."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import SOCKET_LIMITS
from koordinator.node import http2
from koordinator.node.grpc_server import GrpcServer
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.hook_servers import HookServerFolder
from koordinator.runtime_proxy.interceptor import CriInterceptor
from koordinator.runtime_proxy.program import HookRequestMetrics
from koordinator.runtime_proxy.runtime_client import RuntimeClient
from koordinator.runtime_proxy.server import RelayServer
from tests.real_world.attacked_server import LIMITS, AttackedServer, Caller, outlive
from tests.real_world.hostile_clients import HOSTILE_CLIENTS, GrpcTarget, HostileClient, Target
from tests.runtime_proxy.proxied import SKIP
from tests.runtime_proxy.test_docker import in_front_of
from tests.waiting import PATIENCE, wait_for

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Programs run on uvloop, tests mostly on asyncio's own loop."""
FEW = replace(SOCKET_LIMITS, connections=LIMITS.connections)
_SERVICE = "/runtime.v1.RuntimeService"
PASSED, INTERCEPTED = f"{_SERVICE}/ListContainers", f"{_SERVICE}/CreateContainer"
DOCKER_PASSED = b"POST /v1.41/x HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{}"
DOCKER_INTERCEPTED = DOCKER_PASSED.replace(b"/x ", b"/containers/create?name=k8s_main_web_shop_u-1_2 ")
Run = Callable[[Coroutine[Any, Any, None]], None]


class Sockets:
    """The proxy's socket and the runtime's."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "proxy.sock"
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.at_runtime = Metrics()

    @property
    def clients(self) -> float:
        return self._open(self.metrics, self.path)

    @property
    def to_runtime(self) -> float:
        return self._open(self.at_runtime, self.runtime)

    def closed(self, reason: str) -> float:
        labels = {"port": str(self.path), "reason": reason}
        return self.metrics.registry.get_sample_value("koordinator_server_closed_connections_total", labels) or 0

    @staticmethod
    def _open(metrics: Metrics, path: Path) -> float:
        return metrics.registry.get_sample_value("koordinator_server_connections", {"port": str(path)}) or 0

    @property
    def runtime(self) -> Path:
        return self.path.with_name("runtime.sock")


@asynccontextmanager
async def sockets_in_a_folder() -> AsyncIterator[Sockets]:
    """The proxy in front of nothing yet."""
    with tempfile.TemporaryDirectory(prefix="krp") as name:
        sockets = Sockets(Path(name))
        hooks = HookServerFolder(sockets.path.with_name("hooks"))
        dispatcher = HookDispatcher(hooks, 2.0, SystemClock(), HookRequestMetrics(sockets.metrics))
        client = RuntimeClient(sockets.runtime)
        interceptor = CriInterceptor(dispatcher, Checkpoints(sockets.path.with_name("kept")), client, SKIP)
        async with asyncio.TaskGroup() as tasks:
            connections = ProgramConnections(sockets.metrics, sockets.clock)
            server = RelayServer(interceptor, sockets.runtime, tasks, connections, FEW)
            await server.start(sockets.path)
            try:
                yield sockets
            finally:
                await server.stop(sockets.path, 0.0)
                client.close()


@asynccontextmanager
async def relaying() -> AsyncIterator[Sockets]:
    """The proxy in front of a runtime that responds with much."""

    async def much(message: bytes) -> bytes:
        return bytes(100_000)

    async with sockets_in_a_folder() as sockets, asyncio.TaskGroup() as tasks:
        ready = asyncio.Event()
        runtime = GrpcServer({PASSED: much, INTERCEPTED: much}, ProgramConnections(sockets.at_runtime, SystemClock()))
        running = tasks.create_task(runtime.run(str(sockets.runtime), ready.set))
        await ready.wait()
        try:
            yield sockets
        finally:
            running.cancel()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    async def timed(scenario: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario

    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield lambda scenario: runner.run(timed(scenario))


@pytest.mark.parametrize("method", [PASSED, INTERCEPTED], ids=["passed", "intercepted"])
@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_the_kubelet_reaches_the_runtime_beside(client: HostileClient, method: str, run: Run) -> None:
    async def scenario() -> None:
        async with relaying() as sockets:
            target = GrpcTarget(str(sockets.path), 0, b"", method=method)
            attacked = AttackedServer(target, sockets.clock, lambda: sockets.clients, is_port=False)
            await outlive(attacked, client)
            assert sockets.to_runtime <= LIMITS.connections
            # Whoever is gone is gone at the runtime, too.
            await wait_for(lambda: sockets.to_runtime == sockets.clients == 0)

    run(scenario())


@pytest.mark.parametrize("request_", [DOCKER_PASSED, DOCKER_INTERCEPTED], ids=["passed", "intercepted"])
@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_the_kubelet_reaches_docker_beside(client: HostileClient, request_: bytes, run: Run) -> None:
    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client was the hostile one
        finally:
            writer.close()

    async def scenario() -> None:
        clock, metrics = ManualClock(), Metrics()
        async with in_front_of(daemon, ProgramConnections(metrics, clock), FEW) as path:
            labels = {"port": str(path)}
            attacked = AttackedServer(
                Target(str(path), 0, request_),
                clock,
                lambda: metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0,
                is_port=False,
            )
            await outlive(attacked, client)

    run(scenario())


def test_a_client_that_is_closed_for_another_leaves_nothing_at_the_runtime(run: Run) -> None:
    async def scenario() -> None:
        async with relaying() as sockets:
            target = GrpcTarget(str(sockets.path), 0, b"", method=PASSED)
            leaked = [await Caller.connect(target) for _ in range(LIMITS.connections)]
            for caller in leaked:
                await caller.call()
            kubelet = await Caller.connect(target)
            await kubelet.call()
            assert (sockets.clients, sockets.closed("room")) == (LIMITS.connections, 1)
            await wait_for(lambda: sockets.to_runtime == LIMITS.connections)
            for caller in (*leaked, kubelet):
                caller.end()

    run(scenario())


def test_a_client_that_does_not_read_what_the_runtime_said_last_is_left(run: Run) -> None:
    # The buffers of the kernel on both sides of the proxy are full then, and something waits in the proxy.
    with socket.socket(socket.AF_UNIX) as any_socket:
        size = 2 * any_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + 14_000
    ping = http2.frame(http2.PING, 0, 0, bytes(8))
    has_left = asyncio.Event()

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)
        writer.write(ping * (size // len(ping)))
        await writer.drain()
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
        has_left.set()
        writer.close()

    async def scenario() -> None:
        async with sockets_in_a_folder() as sockets, await asyncio.start_unix_server(runtime, str(sockets.runtime)):
            _, writer = await asyncio.open_unix_connection(str(sockets.path))
            cast("asyncio.Transport", writer.transport).pause_reading()
            writer.write(http2.PREFACE + http2.settings(()))
            await has_left.wait()
            for seconds, is_open in ((29, True), (4, False)):
                for _ in range(seconds):
                    await sockets.clock.advance(1)
                assert (sockets.clients, sockets.closed("response")) == (is_open, not is_open)
            writer.transport.abort()

    run(scenario())
