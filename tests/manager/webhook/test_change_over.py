"""Certificates change under two replicas that are asked all the while: nothing is refused, nothing unverified.

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
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.asymmetric import rsa

from koordinator.api.kinds import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.webhook import certificates
from koordinator.manager.webhook.admission import ALLOWED
from koordinator.manager.webhook.certificate_files import to_files
from koordinator.manager.webhook.certificate_writers import SecretWriter
from koordinator.manager.webhook.configuration_sync import ConfigurationSync
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.server import WebhookServer
from tests.kube.fake_client import MemoryClient, ScriptedClient, as_client
from tests.manager.webhook import making
from tests.manager.webhook.asking import HOST
from tests.manager.webhook.installed import MUTATING, VALIDATING, mutating, validating
from tests.manager.webhook.making import NAME, NOW
from tests.manager.webhook.reviews import Handler, answered, review
from tests.waiting import InlineExecutor

LAG = 0.9
"""Seconds after which a configuration is in force."""
STEP = 0.5
CONFIGURATION = (MUTATING_WEBHOOK_CONFIGURATIONS.qualified, "", MUTATING)
SECRET = (SECRETS.qualified, "koordinator-system", "koordinator-webhook-certs")
REQUEST = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


class Cluster:
    """An API server in memory with two replicas of the manager."""

    def __init__(self, folder: Path) -> None:
        self.client = MemoryClient()
        self.client.after = self._changed
        self.clock = ManualClock(NOW)
        self.asked = 0
        self._bundles: list[tuple[float, str]] = []
        for key, document in (
            (CONFIGURATION, mutating()),
            ((VALIDATING_WEBHOOK_CONFIGURATIONS.qualified, "", VALIDATING), validating()),
        ):
            document["metadata"]["resourceVersion"] = "0"
            self.client.objects[key] = document
        data = {name: base64.b64encode(content).decode() for name, content in to_files(making.certificates()).items()}
        metadata = {"name": SECRET[2], "namespace": SECRET[1], "resourceVersion": "0"}
        self.client.objects[SECRET] = {"metadata": metadata, "data": data}
        self.replicas = [Replica(self, folder / str(number)) for number in range(2)]
        self._turns = itertools.cycle(self.replicas)

    async def _changed(self, verb: str, name: str) -> None:
        if verb != "get":
            self.tell()

    def tell(self) -> None:
        """Have watchers hear of a change, and note what is to be trusted from a moment later on."""
        self._bundles.append((self.clock.monotonic(), self.bundle))
        for replica in self.replicas:
            replica.hear()

    @property
    def bundle(self) -> str:
        stored: str = self.client.objects[CONFIGURATION]["webhooks"][0]["clientConfig"].get("caBundle", "")
        return stored

    @property
    def trusted(self) -> str:
        """What an API server goes by now."""
        known = [bundle for moment, bundle in self._bundles if moment <= self.clock.monotonic() - LAG]
        return base64.b64decode(known[-1]).decode()

    async def ask(self) -> None:
        """Two requests at once; each has to be answered."""
        async with asyncio.TaskGroup() as tasks:
            for _ in self.replicas:
                tasks.create_task(self._ask(next(self._turns)))

    async def _ask(self, replica: Replica) -> None:
        tls = ssl.create_default_context(cadata=self.trusted)
        port = replica.server.bound_port
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname=NAME)
        writer.write(REQUEST % (len(review()), review()))
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK"), head
        assert answered(body)["allowed"]
        writer.close()
        self.asked += 1

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.ask()

    async def ask_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.pass_time(STEP)
            for _ in range(3):
                await self.ask()


class Replica:
    """What one process does about certificates."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        client, metrics = as_client(cluster.client), Metrics()
        environment = WebhookEnvironment(certificate_folder=folder)
        self.server = WebhookServer(
            [Handler("/mutate-pod", lambda _: ALLOWED)],
            ServingCertificate.in_folder(folder),
            WebhookMetrics(metrics),
            clock=cluster.clock,
            port=0,
            host=HOST,
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
        )
        self.folder = folder
        informers = InformerSet(as_client(ScriptedClient()))
        self.sync.watch(informers)
        self._handlers = next(iter(informers)).cache.handlers

    def hear(self) -> None:
        obj: Any = object()
        self._handlers.updated("key", obj, obj)

    @property
    def certificate(self) -> bytes:
        return (self.folder / "tls.crt").read_bytes()


def delete(secret: dict[str, Any], cluster: Cluster) -> None:
    del cluster.client.objects[SECRET]


def spoil(secret: dict[str, Any], cluster: Cluster) -> None:
    secret["data"]["cert.pem"] = ""


@pytest.mark.parametrize(
    ("damage", "authorities", "loop"), [(delete, 2, uvloop.new_event_loop), (spoil, 1, asyncio.new_event_loop)]
)
def test_no_request_fails_while_replicas_change_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop: Any,
    damage: Callable[[dict[str, Any], Cluster], None],
    authorities: int,
) -> None:
    """A Secret that is deleted takes its authority along; for a certificate that is spoilt a new one is signed."""
    for number in range(4):
        _key(number)
    numbers = itertools.count()
    monkeypatch.setattr(certificates, "_make_key", lambda: _key(next(numbers)))
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story(tmp_path, partial(damage), authorities))


@cache
def _key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


async def story(folder: Path, damage: Callable[[dict[str, Any], Cluster], None], authorities: int) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    cluster = Cluster(folder)
    async with AsyncExitStack() as servers, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        rounds = []
        for replica in cluster.replicas:
            servers.push_async_callback(replica.server.stop)
            rounds.append(tasks.create_task(replica.sync.run()))
        while not all(replica.sync.succeeded.is_set() for replica in cluster.replicas):
            await cluster.clock.advance(STEP)
        before = [replica.certificate for replica in cluster.replicas]
        assert before[0] == before[1]
        await cluster.clock.advance(300)
        damage(cluster.client.objects[SECRET], cluster)
        cluster.tell()
        await cluster.ask_until(lambda: all(replica.certificate != before[0] for replica in cluster.replicas))
        assert cluster.replicas[0].certificate == cluster.replicas[1].certificate
        assert base64.b64decode(cluster.bundle).count(b"BEGIN") == authorities
        for seconds in (STEP,) * 4 + (10.0,) * 24:
            await cluster.pass_time(seconds)
        assert base64.b64decode(cluster.bundle).count(b"BEGIN") == 1
        assert cluster.asked >= 60
        for each in rounds:
            each.cancel()
