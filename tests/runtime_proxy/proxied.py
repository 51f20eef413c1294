"""The proxy's parts between a fake runtime and a client, with its folders below one that is removed at the end."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from koordinator.base.clock import Clock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.hook_servers import HookServerFolder
from koordinator.runtime_proxy.interceptor import CriInterceptor, SkipLabel
from koordinator.runtime_proxy.program import HookRequestMetrics
from koordinator.runtime_proxy.runtime_client import RuntimeClient
from koordinator.runtime_proxy.server import RelayServer
from tests.runtime_proxy.fake_servers import FakeHookServer, FakeRuntime, channel, serving

ALL_HOOKS = (
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PreUpdateContainerResources",
    "PostStopContainer",
)
SKIP = SkipLabel("runtimeproxy.koordinator.sh/skip-hookserver", "true")


@dataclass
class Proxied:
    """A proxy that runs, and what is around it."""

    folder: Path
    runtime: FakeRuntime
    client: grpc.aio.Channel
    direct: grpc.aio.Channel
    interceptor: CriInterceptor
    server: RelayServer
    hooks: HookServerFolder
    checkpoints: Checkpoints
    metrics: Metrics

    @property
    def socket(self) -> Path:
        return self.folder / "proxy.sock"

    async def call(self, method: str, message: Any = b"", **options: Any) -> bytes:
        """Call a method of runtime.v1.RuntimeService through the proxy."""
        content = message if isinstance(message, bytes) else message.SerializeToString()
        return bytes(await self.client.unary_unary(f"/runtime.v1.RuntimeService/{method}")(content, **options))

    def register(self, name: str, socket: Path, hooks: tuple[str, ...] = ALL_HOOKS, policy: str = "Ignore") -> None:
        """Write the file of a hook server, and have it read."""
        document = {"remote-endpoint": str(socket), "failure-policy": policy, "runtime-hooks": list(hooks)}
        (self.folder / "hooks" / name).write_text(json.dumps(document))
        self.hooks.scan()

    @asynccontextmanager
    async def hooked(
        self, server: FakeHookServer, name: str = "a.json", hooks: tuple[str, ...] = ALL_HOOKS, policy: str = "Ignore"
    ) -> AsyncIterator[FakeHookServer]:
        """A hook server that is registered."""
        path = self.folder / f"{name}.sock"
        async with serving(server, path):
            self.register(name, path, hooks, policy)
            yield server


@asynccontextmanager
async def proxied(
    runtime: FakeRuntime | None = None,
    *,
    hook_timeout: float = 2.0,
    clock: Clock | None = None,
    limits: ServerLimits = SOCKET_LIMITS,
) -> AsyncIterator[Proxied]:
    """A proxy in front of a runtime; ``clock`` is that of the limits."""
    runtime = runtime or FakeRuntime()
    with tempfile.TemporaryDirectory(prefix="krp") as name:
        folder = Path(name)
        async with serving(runtime, folder / "runtime.sock"), asyncio.TaskGroup() as tasks:
            metrics, hooks, checkpoints = Metrics(), HookServerFolder(folder / "hooks"), Checkpoints(folder / "kept")
            hooks.scan()
            checkpoints.load()
            dispatcher = HookDispatcher(hooks, hook_timeout, SystemClock(), HookRequestMetrics(metrics))
            client = RuntimeClient(folder / "runtime.sock")
            interceptor = CriInterceptor(dispatcher, checkpoints, client, SKIP)
            connections = ProgramConnections(metrics, clock or SystemClock())
            server = RelayServer(interceptor, folder / "runtime.sock", tasks, connections, limits)
            await server.start(folder / "proxy.sock")
            try:
                async with channel(folder / "proxy.sock") as through, channel(folder / "runtime.sock") as direct:
                    yield Proxied(folder, runtime, through, direct, interceptor, server, hooks, checkpoints, metrics)
            finally:
                await server.stop(folder / "proxy.sock", 0.0)
                dispatcher.close()
                client.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a test, for 20 seconds at most: what hangs fails."""

    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(limited())
