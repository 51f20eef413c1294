"""The webhooks of one replica: handlers, server, certificates, configurations, and the readiness check.

The check calls the webhooks as an API server does: over TLS, verified by the certificate authority on disk.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Final

import aiohttp

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.errors import CredentialError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.kube.tls import TLSSettings, build_context
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.features import WEBHOOK_FRAMEWORK
from koordinator.manager.webhook.admission import AdmissionHandler
from koordinator.manager.webhook.admission_queue import AdmissionQueue, AdmissionQueueSettings
from koordinator.manager.webhook.certificate_files import AUTHORITY
from koordinator.manager.webhook.certificate_writers import CertificateWriter, FileWriter, SecretWriter
from koordinator.manager.webhook.configuration_sync import ConfigurationSync, WebhookSetupError
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.missing_objects import MissingObjects
from koordinator.manager.webhook.server import WebhookServer, listening_address

_SECONDS: Final = 5.0
_REPORTER: Final = "webhook-configurations"

logger = logging.getLogger(__name__)

SETUP_SECONDS: Final = 20.0
"""The time limit of the first certificates and configurations, as in the original, once they have been tried for the
first time; a process that exceeds it is better restarted. A first round that is slow, on a busy machine, has the time
limit of any round: a new process would only begin it anew."""
SYNC_SECONDS: Final = 120.0
"""The time limit of the initial list of each kind of object that handlers depend on."""
LINGER_SECONDS: Final = 3.0
"""Delay for a replica behind a Service: until the Service routes no more requests here."""
_FILE_PERIOD: Final = 10.0
_READY_PERIOD: Final = 2.0
_READY_LATE: Final = 5.0


class Readiness:
    """The check ``webhook-ready``. ``name`` is the host name that the serving certificate must be valid for."""

    def __init__(self, sync: ConfigurationSync, folder: Path, name: str, address: str, port: int) -> None:
        self._sync = sync
        self._authority = folder / AUTHORITY
        self._name = name
        self._url = f"https://{f'[{address}]' if ':' in address else address}:{port}/healthz"
        self._withdrawn = False
        self._calling: asyncio.Task[str] | None = None

    def withdraw(self) -> None:
        """Report "not ready" from now on, though the server still serves for a moment: no new requests should be routed
        here."""
        self._withdrawn = True

    async def check(self) -> str:
        """The error message; "" when the webhooks are ready."""
        if self._withdrawn:
            return "webhooks are about to stop"
        if not self._sync.succeeded.is_set():
            return f"webhook certificates and configurations are not in place: {self._sync.last_error}"
        if self._calling is None:
            self._calling = asyncio.create_task(self._call(), name="webhook readiness call")
            self._calling.add_done_callback(self._called)
        # One call for all who ask meanwhile: whoever can reach the health port could have thousands made.
        return await asyncio.shield(self._calling)

    def _called(self, call: asyncio.Task[str]) -> None:
        self._calling = None

    async def _call(self) -> str:
        try:
            tls = build_context(TLSSettings(authority_file=str(self._authority)))
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_SECONDS)) as session,
                session.get(self._url, ssl=tls, server_hostname=self._name) as response,
            ):
                return "" if response.status == HTTPStatus.OK else f"{self._url}: {response.status}"
        except (CredentialError, aiohttp.ClientError, ssl.SSLError, TimeoutError, OSError) as error:
            return f"{self._url}: {str(error) or type(error).__name__}"


class Webhooks:
    """Create it after the handlers and before the informers run; ``run`` serves until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        handlers: Sequence[AdmissionHandler],
        environment: WebhookEnvironment,
        webhook_metrics: WebhookMetrics,
        metrics: Metrics,
        *,
        clock: Clock,
        random: Random,
        connections: ProgramConnections,
        events: EventBroadcaster,
        queue: AdmissionQueueSettings | None = None,
        client_authority: Path | None = None,
    ) -> None:
        folder, address = environment.certificate_folder, listening_address(environment.host)
        certificate = ServingCertificate.in_folder(folder, client_authority)
        self._clock = clock
        self._environment = environment
        self._needed = tuple(informers)
        self.server = WebhookServer(
            handlers,
            certificate,
            webhook_metrics,
            clock=clock,
            port=environment.port,
            host=address,
            connections=connections,
            missing=MissingObjects(client, clock),
            queue=AdmissionQueue(clock, queue),
        )
        self.sync = ConfigurationSync(
            client,
            make_writer(client, environment, clock),
            environment,
            frozenset(handler.path for handler in handlers),
            self.server.start,
            clock=clock,
            random=random,
            metrics=metrics,
            recorder=events.recorder(_REPORTER),
        )
        self.sync.watch(informers)
        self.readiness = Readiness(
            self.sync, folder, environment.certified_name, address or "127.0.0.1", environment.port
        )
        self._loops = LoopSupervisor(clock=clock, random=random, metrics=metrics)
        self._loops.add(
            Loop("webhook-certificate-files", certificate.reload_if_changed, _FILE_PERIOD, deadline=_FILE_PERIOD)
        )

    def check_loops(self) -> str:
        """For health checks: the loops that have had no success for too long."""
        return self._loops.check()

    async def run(self) -> None:
        """Serve once the handlers' informers are in sync, until cancelled: then report "not ready" first, and stop
        serving later.

        Raises WebhookSetupError when the first setup fails.
        """
        await self._wait_synced()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.sync.run(), name="webhook configurations")
                await self._first_setup()
                tasks.create_task(self._loops.run(), name="webhook certificate files")
                tasks.create_task(self._say_when_ready(), name="webhook readiness")
        finally:
            self.readiness.withdraw()
            await self.server.stop(linger=0.0 if self._environment.host else LINGER_SECONDS)

    async def _wait_synced(self) -> None:
        for informer in self._needed:
            try:
                await informer.wait_synced(SYNC_SECONDS)
            except TimeoutError:
                why = informer.reflector_statistics.last_error or "still listing"
                raise WebhookSetupError(f"webhooks need to know {informer.selection}: {why}") from None

    async def _first_setup(self) -> None:
        try:
            await self.sync.tried.wait()
            await within(self._clock, SETUP_SECONDS, self.sync.succeeded.wait())
        except TimeoutError:
            raise WebhookSetupError(
                f"webhooks could not be set up within {SETUP_SECONDS:g}s: {self.sync.last_error} "
                f"(without webhooks: --feature-gates={WEBHOOK_FRAMEWORK}=false)"
            ) from None

    async def _say_when_ready(self) -> None:
        started = self._clock.monotonic()
        while wrong := await self.readiness.check():
            waited = self._clock.monotonic() - started
            if waited > _READY_LATE:
                logger.warning("webhooks are not ready after %.0fs: %s", waited, wrong)
            await self._clock.sleep(_READY_PERIOD)
        logger.info("webhooks are ready")


def make_writer(client: Client, environment: WebhookEnvironment, clock: Clock) -> CertificateWriter:
    """The certificate storage that the environment selects."""
    if environment.writes_files_only:
        return FileWriter(environment.certificate_folder, environment.certified_name, clock)
    return SecretWriter(client, environment.namespace, environment.secret, environment.certified_name, clock)
