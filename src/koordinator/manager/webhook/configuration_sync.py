"""Keeps certificates, the files they are served from, and the webhook configurations consistent with each other.

One round ensures the certificates, writes them into the folder, makes the server load them, and only then writes the
webhook configurations: a configuration never points at a server that does not respond. Where a new authority replaces
the one in use, the configurations trust both before the first certificate of the new one is served, and keep trusting
the old one for three minutes, in which all replicas change over. A round follows every change of the Secret and of
either configuration, and every minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from random import Random
from typing import Any, Final

from koordinator.api import installation
from koordinator.api.admission_registration import WebhookConfiguration
from koordinator.api.kinds import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Kind,
)
from koordinator.api.meta import ObjectReference
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.base.said_once import SaidOnce
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType
from koordinator.manager.environment import MUTATING_VARIABLE, VALIDATING_VARIABLE, WebhookEnvironment
from koordinator.manager.missing import (
    NotInstalledError,
    WebhookConfigurationName,
    missing_webhook_configurations,
)
from koordinator.manager.webhook.certificate_files import write_files
from koordinator.manager.webhook.certificate_writers import CertificateWriter
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.configuration_rewrite import Rewrite, Target, rewrite

logger = logging.getLogger(__name__)

_PERIOD: Final = 60.0
_SHORTEST_PAUSE: Final = 1.0
"""The least pause between rounds: replicas that disagree, as during an upgrade, must not rewrite each other's
configuration at full speed."""
_ANNOUNCE_SECONDS: Final = 1.0
"""The time in which API servers notice a change of a configuration, which they watch."""
_CHANGE_OVER_SECONDS: Final = 3 * _PERIOD
"""The time in which all replicas notice: one whose watch is just being re-established notices only after a period."""
_ROUND_SECONDS: Final = 60.0
_REVERTED: Final = "WebhookConfigurationReverted"
_NOT_OURS: Final = (
    "Entries, rules and clientConfig come from the annotation template and from koord-manager; all other fields may be "
    "changed"
)
_RETRIES: Final = BackoffPolicy(initial=0.5, maximum=30.0, jitter=0.25)


_NAMED_BY: Final = {
    MUTATING_WEBHOOK_CONFIGURATIONS.name: (MUTATING_VARIABLE, installation.MUTATING_CONFIGURATION),
    VALIDATING_WEBHOOK_CONFIGURATIONS.name: (VALIDATING_VARIABLE, installation.VALIDATING_CONFIGURATION),
}
"""By kind, the environment variable with the name of the object, and its default."""


class WebhookSetupError(KoordinatorError):
    """The webhooks cannot be set up; the message names what is missing."""


class OvertakenError(KoordinatorError):
    """Another replica has changed the certificates that a round used; the next round uses the new ones."""


class ConfigurationSync:
    """One per process. Every round awaits ``serve`` before it writes any configuration."""

    def __init__(
        self,
        client: Client,
        writer: CertificateWriter,
        environment: WebhookEnvironment,
        paths: Collection[str],
        serve: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._writer = writer
        self._environment = environment
        self._paths = paths
        self._serve = serve
        self._clock = clock
        self._backoff = Backoff(_RETRIES, clock, random)
        self._wanted = asyncio.Event()
        self._authority = b""
        """The authority of the certificate that is being served; empty before there is one."""
        self._change_over_until = float("-inf")
        self._said = defaultdict[str, SaidOnce](lambda: SaidOnce(logger))
        """By configuration."""
        self.tried = asyncio.Event()
        """Set after the first round, however it ended."""
        self.succeeded = asyncio.Event()
        """Set after the first successful round."""
        self.last_error = "not tried yet"
        """Why the last round failed; empty after a successful one."""
        self._heartbeat = LoopMetrics(clock, metrics).loop("webhook-configurations", _ROUND_SECONDS)
        self._results = metrics.counter(
            "koord_manager_webhook_configuration_sync_total",
            "Rounds of keeping webhook certificates and configurations in line.",
            ("result",),
        )

    def watch(self, informers: InformerSet) -> None:
        """Start a round after every change of the Secret and of the configurations."""
        environment = self._environment
        if not environment.writes_files_only:
            self._watch(informers, SECRETS, environment.secret, environment.namespace)
        self._watch(informers, MUTATING_WEBHOOK_CONFIGURATIONS, environment.mutating_configuration)
        self._watch(informers, VALIDATING_WEBHOOK_CONFIGURATIONS, environment.validating_configuration)

    def _watch(self, informers: InformerSet, kind: Kind[Any], name: str, namespace: str = "") -> None:
        informer = informers.informer(kind, namespace=namespace, field_selector=f"metadata.name={name}")
        informer.add_handlers(
            name="webhook-configuration-sync",
            on_add=lambda obj, initial: self._wanted.set(),
            on_update=lambda old, new: self._wanted.set(),
            on_delete=lambda obj: self._wanted.set(),
        )

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            self._wanted.clear()
            pause = await self.attempt()
            await self._clock.sleep(_SHORTEST_PAUSE)
            try:
                await within(self._clock, pause, self._wanted.wait())
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Make everything consistent once. Raises KoordinatorError."""
        certificates = await self._writer.ensure()
        if certificates.authority != self._authority:
            self._change_over_until = self._clock.monotonic() + _CHANGE_OVER_SECONDS
            if self._authority:
                await self._configure(certificates)
                await self._clock.sleep(_ANNOUNCE_SECONDS)
        folder = self._environment.certificate_folder
        if await asyncio.to_thread(write_files, folder, certificates, self._clock.now()):
            logger.info("wrote webhook certificates to %s", folder)
        await self._serve()
        self._authority = certificates.authority
        if (await self._writer.ensure()).authority != certificates.authority:
            # That replica has written its authority into the configurations, which must not be undone.
            raise OvertakenError("the certificates have been changed since this round began")
        await self._configure(certificates)

    async def attempt(self) -> float:
        """Run one round. Returns the seconds until the next one if nothing changes."""
        try:
            await self._heartbeat.iterate(self.round())
        except Exception as error:
            return self._pause_after(error)
        self.last_error = ""
        self._results.labels("succeeded").inc()
        self._backoff.reset()
        self.tried.set()
        self.succeeded.set()
        return _PERIOD

    def _pause_after(self, error: Exception) -> float:
        """Record the error; the webhooks keep their current certificates. Returns the seconds until the next round."""
        before, self.last_error = self.last_error, _reason(error)
        self.tried.set()
        if isinstance(error, OvertakenError) or (isinstance(error, ApiStatusError) and error.is_conflict):
            self._results.labels("conflict").inc()
            logger.info("another replica was faster: %s", self.last_error)
            return 0.0
        self._results.labels("failed").inc()
        unforeseen = None if isinstance(error, KoordinatorError | OSError) else error
        # Logged once, not for every attempt: the metric counts them.
        level = logging.DEBUG if self.last_error == before else logging.WARNING
        logger.log(
            level, "webhook certificates and configurations are not in line: %s", self.last_error, exc_info=unforeseen
        )
        return self._backoff.next()

    async def _configure(self, certificates: Certificates) -> None:
        environment = self._environment
        target = Target(
            namespace=environment.namespace,
            service=environment.service,
            host=environment.host,
            port=environment.port,
            paths=self._paths,
            authority=certificates.authority,
            keep_trusted=self._clock.monotonic() < self._change_over_until,
        )
        # Both are read and decided on before either is written, so that an invalid one does not leave the work half
        # done.
        decisions = [
            (kind, configuration, rewrite(configuration, target))
            for kind, configuration in await self._configurations()
        ]
        for kind, configuration, decision in decisions:
            name = configuration.metadata.name
            self._say(name, decision)
            if decision.patch is not None:
                await self._client.patch(kind, name, decision.patch, PatchType.MERGE)
                logger.info("rewrote %s %s", kind.name, name)
                self._report_reverted(reference_to(kind, configuration), decision)

    def _report_reverted(self, regarding: ObjectReference, decision: Rewrite) -> None:
        """Say what whoever has changed the configuration will not find there any more."""
        if decision.reverted:
            text = f"changed back: {'; '.join(decision.reverted)}. {_NOT_OURS}"
            logger.warning("%s %s: %s", regarding.kind, regarding.name, text)
            self._recorder.event(regarding, "Warning", _REVERTED, "Rewrite", text)

    async def _configurations(self) -> list[tuple[Kind[WebhookConfiguration], WebhookConfiguration]]:
        """Both configurations. Raises NotInstalledError naming those that do not exist."""
        environment = self._environment
        names = (
            (MUTATING_WEBHOOK_CONFIGURATIONS, environment.mutating_configuration),
            (VALIDATING_WEBHOOK_CONFIGURATIONS, environment.validating_configuration),
        )
        found = [(kind, name, await self._read(kind, name)) for kind, name in names]
        missing = [
            WebhookConfigurationName(kind.name, name, *_NAMED_BY[kind.name])
            for kind, name, configuration in found
            if configuration is None
        ]
        if missing:
            raise NotInstalledError(missing_webhook_configurations(missing, environment.namespace))
        return [(kind, configuration) for kind, _, configuration in found if configuration is not None]

    async def _read(self, kind: Kind[WebhookConfiguration], name: str) -> WebhookConfiguration | None:
        try:
            return await self._client.get(kind, name)
        except ApiStatusError as error:
            if error.is_not_found:
                return None
            raise

    def _say(self, name: str, decision: Rewrite) -> None:
        """Log once, not every minute, which installed webhooks have no active handler."""
        with self._said[name].round():
            if decision.left_out:
                left_out = ", ".join(decision.left_out)
                self._said[name].say(f"{name}: left out, since no handler is active for them: {left_out}")


def _reason(error: Exception) -> str:
    if isinstance(error, KoordinatorError | OSError):
        return str(error) or f"not done within {_ROUND_SECONDS:g}s"
    return f"{type(error).__name__}: {error}"
