"""Certificates change under two replicas that are queried all the while: nothing is refused, nothing unverified.

Everything but the API server and time is real: TLS, files, keys; these are made beforehand, as time does not wait for
them. The asker is as strict as an API server: it trusts what the stored configuration says, which it learns a little
late, and each request is a new connection to the next replica.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from koordinator.api.kinds import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.webhook.admission import ALLOWED
from koordinator.manager.webhook.certificate_files import to_files
from koordinator.manager.webhook.certificate_writers import SecretWriter
from koordinator.manager.webhook.configuration_sync import ConfigurationSync
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.server import WebhookServer
from tests.in_memory_api import ApiRequest, InMemoryApi
from tests.manager.webhook.installed import MUTATING, mutating, validating
from tests.manager.webhook.making import NAME, NOW, certificates, reuse_keys
from tests.manager.webhook.reviews import Handler, answered, review
from tests.manager.webhook.serving import HOST
from tests.waiting import InlineExecutor

LAG = 0.9
"""Seconds after which a configuration is in force."""
STEP = 0.5
SECRET = ("koordinator-webhook-certs", "koordinator-system")
"""The name and the namespace."""
REQUEST = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


class Cluster:
    """An API server in memory with two replicas of the manager."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW)
        self.api = InMemoryApi(self.clock)
        self.api.fault = self._note
        self.requests = 0
        self._bundles: list[tuple[float, str]] = []
        self.api.put(MUTATING_WEBHOOK_CONFIGURATIONS, mutating())
        self.api.put(VALIDATING_WEBHOOK_CONFIGURATIONS, validating())
        data = {name: base64.b64encode(content).decode() for name, content in to_files(certificates()).items()}
        metadata = {"name": SECRET[0], "namespace": SECRET[1]}
        self.api.put(SECRETS, {"metadata": metadata, "type": "Opaque", "data": data})
        self.replicas = [Replica(self, folder / str(number)) for number in range(2)]
        self._turns = itertools.cycle(self.replicas)

    def _note(self, request: ApiRequest, done: bool) -> None:
        """What is to be trusted from a moment later on."""
        if (request.verb, request.name, done) == ("patch", MUTATING, True):
            self._bundles.append((self.clock.monotonic(), self.bundle))

    @property
    def bundle(self) -> str:
        configuration = self.api.document(MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING)
        stored: str = configuration["webhooks"][0]["clientConfig"]["caBundle"]
        return stored

    @property
    def trusted(self) -> str:
        """What an API server goes by now."""
        known = [bundle for moment, bundle in self._bundles if moment <= self.clock.monotonic() - LAG]
        return base64.b64decode(known[-1]).decode()

    async def send(self) -> None:
        """Two requests at once; each has to be answered."""
        async with asyncio.TaskGroup() as tasks:
            for _ in self.replicas:
                tasks.create_task(self._send(next(self._turns)))

    async def _send(self, replica: Replica) -> None:
        tls = ssl.create_default_context(cadata=self.trusted)
        port = replica.server.bound_port
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname=NAME)
        writer.write(REQUEST % (len(review()), review()))
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK"), head
        assert answered(body)["allowed"]
        writer.close()
        self.requests += 1

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.send()

    async def send_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.pass_time(STEP)
            for _ in range(3):
                await self.send()


class Replica:
    """What one process does about certificates."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        client, metrics = cluster.api.client(), Metrics()
        environment = WebhookEnvironment(certificate_folder=folder)
        self.server = WebhookServer(
            [Handler("/mutate-pod", lambda _: ALLOWED)],
            ServingCertificate.in_folder(folder),
            WebhookMetrics(metrics),
            clock=cluster.clock,
            port=0,
            host=HOST,
            connections=ProgramConnections(metrics, cluster.clock),
        )
        self.sync = ConfigurationSync(
            client,
            SecretWriter(client, environment.namespace, environment.secret, NAME, cluster.clock),
            environment,
            frozenset({"/mutate-pod"}),
            self.server.start,
            clock=cluster.clock,
            random=Random(1),
            metrics=metrics,
            recorder=EventBroadcaster(client, instance="replica", clock=cluster.clock, random=Random(1)).recorder("x"),
        )
        self.folder = folder
        self.informers = InformerSet(client)
        self.sync.watch(self.informers)

    @property
    def certificate(self) -> bytes:
        return (self.folder / "tls.crt").read_bytes()


def delete(api: InMemoryApi) -> None:
    api.remove(SECRETS, *SECRET)


def spoil(api: InMemoryApi) -> None:
    secret = api.document(SECRETS, *SECRET)
    api.put(SECRETS, {**secret, "data": {**secret["data"], "cert.pem": ""}})


@pytest.mark.parametrize(
    ("damage", "authorities", "loop"), [(delete, 2, uvloop.new_event_loop), (spoil, 1, asyncio.new_event_loop)]
)
def test_no_request_fails_while_replicas_change_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop: Any,
    damage: Callable[[InMemoryApi], None],
    authorities: int,
) -> None:
    """A Secret that is deleted takes its authority along; for a certificate that is spoilt a new one is signed."""
    certificates()
    reuse_keys(monkeypatch)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story(tmp_path, damage, authorities))


async def story(folder: Path, damage: Callable[[InMemoryApi], None], authorities: int) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    cluster = Cluster(folder)
    async with AsyncExitStack() as running, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        rounds = []
        for replica in cluster.replicas:
            running.push_async_callback(replica.server.stop)
            await running.enter_async_context(replica.informers.started(5))
            rounds.append(tasks.create_task(replica.sync.run()))
        while not all(replica.sync.succeeded.is_set() for replica in cluster.replicas):
            await cluster.clock.advance(STEP)
        before = [replica.certificate for replica in cluster.replicas]
        assert before[0] == before[1]
        await cluster.clock.advance(300)
        damage(cluster.api)
        await cluster.send_until(lambda: all(replica.certificate != before[0] for replica in cluster.replicas))
        assert cluster.replicas[0].certificate == cluster.replicas[1].certificate
        assert base64.b64decode(cluster.bundle).count(b"BEGIN") == authorities
        for seconds in (STEP,) * 4 + (10.0,) * 24:
            await cluster.pass_time(seconds)
        assert base64.b64decode(cluster.bundle).count(b"BEGIN") == 1
        assert cluster.requests >= 60
        for each in rounds:
            each.cancel()
