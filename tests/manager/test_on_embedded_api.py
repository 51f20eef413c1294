"""koord-manager on the embedded API: configurations rewritten, webhooks answering, the lease held, a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from koordinator.api.kinds import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODE_SLOS,
    NODES,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import SystemClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import NoWatchdog
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.features import make_features
from koordinator.manager.options import Options
from koordinator.manager.program import Dependencies, Manager
from koordinator.manager.webhook.certificate_files import read_files
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.elastic_quota.mutating import ElasticQuotaMutatingHandler
from tests.free_ports import free_ports
from tests.manager.webhook.installed import MUTATING, mutating, validating
from tests.manager.webhook.reviews import answered, review
from tests.manager.webhook.serving import requesting
from tests.waiting import once

NAMESPACE = "koordinator-system"


def make_manager(client: KubeClient, folder: Path, writer: str, *gates: str) -> Manager:
    """With further feature ``gates`` on."""
    clock, random, metrics = SystemClock(), Random(1), Metrics()
    environment = WebhookEnvironment(
        port=free_ports(1)[0], host="127.0.0.1", certificate_folder=folder, certificate_writer=writer
    )
    features = make_features()
    features.set(dict.fromkeys(gates, True))
    options = Options(metrics_address=NOWHERE, health_address=NOWHERE, environment=environment, features=features)
    election = LeaderElectionConfig("koordinator-manager", NAMESPACE, str(folder), release_on_cancel=True)
    leadership = Leadership(
        client, election, clock=clock, random=random, metrics=metrics, again=True, watchdog=NoWatchdog()
    )
    fenced = client.fenced(lambda: leadership.is_leading)
    return Manager(options, leadership, Dependencies(client, fenced, clock, random, metrics, "test"))


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[KubeClient]:
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        client = await connect(ClientOptions(kubeconfig=str(folder / "kubeconfig")))
        try:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            await client.create(MUTATING_WEBHOOK_CONFIGURATIONS, mutating())
            await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, validating())
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[Manager]:
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        assert manager.webhooks is not None
        ready = asyncio.create_task(manager.webhooks.sync.succeeded.wait())
        await asyncio.wait({task, ready}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert ready.done(), manager.webhooks.sync.last_error
        yield manager
    finally:
        stop.set()
        ready.cancel()
        await task


def test_from_start_to_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), installed(tmp_path) as client:
            async with running(make_manager(client, tmp_path / "certificates", "")) as manager:
                assert manager.webhooks is not None
                assert await manager.webhooks.readiness.check() == ""
                found = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING)
                server = manager.webhooks.server
                urls = {entry["clientConfig"]["url"] for entry in found.webhooks}
                paths = ("/mutate-pod", ElasticQuotaMutatingHandler.path)
                assert urls == {f"https://127.0.0.1:{server.bound_port}{path}" for path in paths}
                trusted = read_files(tmp_path / "certificates") or Certificates()
                async with (
                    requesting(server, trusted) as session,
                    session.post("/mutate-pod", data=review("v1beta1")) as response,
                ):
                    assert answered(await response.read())["allowed"]
                await once(client, LEASES, lambda lease: bool(lease.spec.holder_identity), NAMESPACE)
            lease = await client.get(LEASES, "koordinator-manager", NAMESPACE)
            assert not lease.spec.holder_identity

    asyncio.run(scenario())


def test_controllers_write_once_the_webhooks_respond(tmp_path: Path) -> None:
    """Otherwise what they write is refused, since API servers would ask webhooks that nobody serves yet."""

    async def scenario() -> None:
        async with asyncio.timeout(60), installed(tmp_path) as client:
            for definition in custom_resource_definitions():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            await client.create(NODES, {"metadata": {"name": "n1"}})
            async with running(make_manager(client, tmp_path / "certificates", "")):
                configuration = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING)
                written = await once(client, NODE_SLOS, lambda _: True)
            rewritten = int(configuration.metadata.resource_version)
            assert int(written.metadata.resource_version) > rewritten

    asyncio.run(scenario())


def test_two_replicas_serve_one_certificate_and_replace_a_deleted_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        folders = (tmp_path / "a", tmp_path / "b")
        async with asyncio.timeout(60), installed(tmp_path) as client:
            managers = [make_manager(client, folder, "secret") for folder in folders]
            async with running(managers[0]), running(managers[1]):
                first, second = map(read_files, folders)
                assert first == second
                await client.delete(SECRETS, "koordinator-webhook-certs", NAMESPACE)
                while True:
                    held = list(map(read_files, folders))
                    if held[0] == held[1] != first:
                        break
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())
