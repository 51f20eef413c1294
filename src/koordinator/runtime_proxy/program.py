"""The running proxy: waits for the container runtime, remembers what it runs, serves kubelet."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.deadline import unless
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.health import HealthChecks
from koordinator.kube.servers import Servers
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.command_line import Backend, Options
from koordinator.runtime_proxy.engines import CriEngine, DockerEngine, Engine, EngineError
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.hook_servers import POLL_SECONDS, HookPoint, HookServer, HookServerFolder
from koordinator.runtime_proxy.interceptor import SkipLabel

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koord-runtime-proxy"
_GRACE: Final = 5.0
"""Seconds that calls in flight get at the end."""
_RECOVERY: Final = 10.0
"""Seconds after which kubelet is served even if the runtime does not list what it runs."""


class RuntimeProxy:
    """Between kubelet and a container runtime."""

    def __init__(self, options: Options, given: Process) -> None:
        self._options = options
        self._given = given
        self._loops = LoopSupervisor(clock=given.clock, random=given.random, metrics=given.metrics)
        self._loops.add(Loop("hook servers", self._scan, POLL_SECONDS, 30.0))
        self._checkpoints = Checkpoints(options.checkpoint_folder)
        self._folder = HookServerFolder(options.hook_folder)
        self._hooks = HookDispatcher(self._folder, options.hook_timeout, given.clock, HookRequestMetrics(given.metrics))
        engine = DockerEngine if options.backend is Backend.DOCKER else CriEngine
        skip_label = SkipLabel(options.skip_key, options.skip_value)
        self._connections = ProgramConnections(given.metrics, given.clock)
        self._engine: Engine = engine(options.runtime, self._hooks, self._checkpoints, skip_label)

    async def run(self) -> None:
        """Run until the process has to end. ListenError or OSError if a socket or an address cannot be had."""
        health = HealthChecks()
        health.add("hook-servers", self._loops.check)
        health.add("container-runtime", self._runtime_check, "readyz", "healthz")
        servers = Servers(self._given.metrics, self._given.clock, self._connections)
        # Containers must start although another program has the port that nobody has chosen.
        dispensable = "no metrics are served, see --metrics-addr" if self._options.metrics_dispensable else ""
        servers.add(self._options.metrics, health=health, dispensable=dispensable)
        servers.add_secure(self._options.secure, _PROGRAM, self._given, health)
        lifecycle = Lifecycle(self._given.clock)
        lifecycle.serve(servers)
        lifecycle.background("loops", self._loops.run)
        lifecycle.work("calls", self._recover_and_serve, drain=lambda: _GRACE + 1.0)
        try:
            await lifecycle.run(self._given.stop)
        finally:
            self._hooks.close()
            self._engine.close()

    async def _recover_and_serve(self) -> None:
        stop = self._given.stop
        if not await unless(stop, self._recover()):
            return
        async with asyncio.TaskGroup() as calls:
            server = self._engine.server(calls, self._connections)
            await server.start(self._options.endpoint)
            await stop.wait()
            logger.info("koordinator runtime-proxy shutting down")
            await server.stop(self._options.endpoint, _GRACE)

    async def _scan(self) -> None:
        if self._folder.scan():
            self._hooks.close_unused()

    async def _runtime_check(self) -> str:
        await self._engine.version()
        return ""

    async def _recover(self) -> None:
        """Wait for the runtime, and remember what it runs: what an earlier run has kept, else what the runtime says."""
        policy = BackoffPolicy(initial=1.0, maximum=30.0, jitter=0.1)
        backoff = Backoff(policy, self._given.clock, self._given.random)
        while True:
            try:
                logger.info("the container runtime is %s", await self._engine.version())
                break
            except EngineError as error:
                pause = backoff.next()
                logger.warning("%s; again in %.0fs", error, pause)
                await self._given.clock.sleep(pause)
        self._checkpoints.load()
        # Before kubelet is served, so that its first calls find the hook servers.
        await self._scan()
        give_up_at = self._given.clock.monotonic() + _RECOVERY
        while not await self._remember() and self._given.clock.monotonic() < give_up_at:
            await self._given.clock.sleep(1.0)

    async def _remember(self) -> bool:
        try:
            await self._engine.remember()
        except EngineError as error:
            logger.warning("%s", error)
            return False
        pods, containers = len(self._checkpoints.pods), len(self._checkpoints.containers)
        logger.info("%d pods and %d containers are remembered", pods, containers)
        return True


class HookRequestMetrics:
    """The requests to hook servers."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "koord_runtime_proxy_hook_requests_total",
            "Requests to hook servers",
            ("hook", "server", "result"),
        )
        self._duration = metrics.histogram(
            "koord_runtime_proxy_hook_duration_seconds", "How long hook servers take for a response", ("hook",)
        )

    def called(self, hook: HookPoint, server: HookServer, *, success: bool, seconds: float) -> None:
        self._requests.labels(hook.value, server.name, "success" if success else "error").inc()
        self._duration.labels(hook.value).observe(seconds)
