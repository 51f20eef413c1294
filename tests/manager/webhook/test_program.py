"""The webhooks of one replica from start to stop, over an API server in memory."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from koordinator.api.kinds import MUTATING_WEBHOOK_CONFIGURATIONS, NODES, SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.tls import TLSSettings, build_context
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.webhook.certificate_files import to_files, write_files
from koordinator.manager.webhook.certificate_writers import FileWriter, SecretWriter
from koordinator.manager.webhook.configuration_sync import WebhookSetupError
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.program import LINGER_SECONDS, SETUP_SECONDS, SYNC_SECONDS, Webhooks, make_writer
from tests.free_ports import free_ports
from tests.in_memory_api import Hang, InMemoryApi
from tests.manager.webhook.installed import MUTATING, mutating, validating
from tests.manager.webhook.making import NOW, certificates
from tests.manager.webhook.serving import HOST
from tests.waiting import wait_for


class Bench:
    """Webhooks without handlers, on loopback or behind a Service; their certificates are there already."""

    def __init__(self, folder: Path, host: str = HOST) -> None:
        self.clock = ManualClock(NOW)
        self.api = InMemoryApi(self.clock)
        if host:
            write_files(folder, certificates(host), NOW)
        else:
            self.api.put(SECRETS, secret())
        self.informers = InformerSet(self.api.client(), clock=self.clock)
        self.environment = WebhookEnvironment(port=free_ports(1)[0], host=host, certificate_folder=folder)

    def install(self) -> None:
        self.api.put(MUTATING_WEBHOOK_CONFIGURATIONS, mutating())
        self.api.put(VALIDATING_WEBHOOK_CONFIGURATIONS, validating())

    def webhooks(self) -> Webhooks:
        metrics = Metrics()
        return Webhooks(
            self.api.client(),
            self.informers,
            [],
            self.environment,
            WebhookMetrics(metrics),
            metrics,
            clock=self.clock,
            random=Random(1),
            connections=ProgramConnections(metrics, self.clock),
            events=EventBroadcaster(self.api.client(), instance="test", clock=self.clock, random=Random(1)),
        )


def secret() -> dict[str, Any]:
    data = {name: base64.b64encode(content).decode() for name, content in to_files(certificates()).items()}
    metadata = {"name": "koordinator-webhook-certs", "namespace": "koordinator-system"}
    return {"metadata": metadata, "type": "Opaque", "data": data}


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(timed())


def test_it_serves_and_is_ready_until_it_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.install()
        webhooks = bench.webhooks()
        assert await webhooks.readiness.check() != ""
        running = asyncio.create_task(webhooks.run())
        await webhooks.sync.succeeded.wait()
        assert await webhooks.readiness.check() == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await webhooks.readiness.check() != ""

    run(scenario)


def test_behind_a_service_it_is_not_ready_before_it_is_gone(tmp_path: Path) -> None:
    """So that API servers are led elsewhere while this replica still responds."""

    async def scenario() -> None:
        bench = Bench(tmp_path, host="")
        bench.install()
        webhooks = bench.webhooks()
        running = asyncio.create_task(webhooks.run())
        await webhooks.sync.succeeded.wait()
        assert await webhooks.readiness.check() == ""
        running.cancel()
        await bench.clock.advance(LINGER_SECONDS - 1)
        assert await webhooks.readiness.check() == "webhooks are about to stop"
        assert await healthz(bench.environment.port) == 200
        await bench.clock.advance(1)
        await asyncio.gather(running, return_exceptions=True)
        with pytest.raises(aiohttp.ClientConnectorError):
            await healthz(bench.environment.port)

    run(scenario)


async def healthz(port: int) -> int:
    tls = build_context(TLSSettings(authority=certificates().authority))
    async with aiohttp.ClientSession() as session:
        name = "koordinator-webhook-service.koordinator-system.svc"
        async with session.get(f"https://127.0.0.1:{port}/healthz", ssl=tls, server_hostname=name) as response:
            return response.status


def test_without_configurations_it_gives_up_after_twenty_seconds_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        webhooks = bench.webhooks()
        running = asyncio.create_task(webhooks.run())
        await wait_for(lambda: webhooks.sync.last_error != "not tried yet")
        await bench.clock.advance(SETUP_SECONDS - 1)
        assert not running.done()
        await bench.clock.advance(1)
        with pytest.raises(ExceptionGroup) as ended:
            await running
        assert ended.group_contains(
            WebhookSetupError, match=f"set up within 20s: MutatingWebhookConfiguration {MUTATING}"
        )

    run(scenario)


def test_a_first_try_that_takes_long_on_a_busy_machine_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.api.fault = lambda requested, done: Hang()
        webhooks = bench.webhooks()
        running = asyncio.create_task(webhooks.run())
        await bench.clock.advance(2 * SETUP_SECONDS)
        assert not webhooks.sync.tried.is_set()
        assert not running.done()
        await bench.clock.advance(3 * SETUP_SECONDS)
        with pytest.raises(ExceptionGroup) as ended:
            await running
        assert ended.group_contains(WebhookSetupError, match="set up within 20s: not done within 60s")

    run(scenario)


def test_it_says_what_it_could_not_get_to_know(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.informers.informer(NODES)
        bench.api.fault = lambda requested, done: Hang() if requested.plural == "nodes" else None
        running = asyncio.create_task(bench.webhooks().run())
        await bench.clock.advance(SYNC_SECONDS)
        with pytest.raises(WebhookSetupError, match="webhooks need to know nodes"):
            await running

    run(scenario)


@pytest.mark.parametrize(("host", "kept"), [("", SecretWriter), ("h", FileWriter)])
def test_certificates_are_kept_where_the_environment_says(host: str, kept: type) -> None:
    writer = make_writer(InMemoryApi().client(), WebhookEnvironment(host=host), ManualClock())
    assert isinstance(writer, kept)
