"""Keeps certificates, the files that they are served from, and the webhook configurations in line with each other.

One round ensures the certificates, projects them into the folder, has the server take them, and only then tells API
servers to come: a configuration never points at a server that does not answer. Where another authority takes the place
of the one that is served under, API servers are told to trust both before the first certificate of the new one is
served, and go on trusting the old one for three minutes, in which all replicas change over. A round follows every
change of the Secret and of either configuration, and every minute.
"""

from __future__ import annotations

import asyncio
import logging
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
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError
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
"""Between two rounds: replicas that disagree, as during an upgrade, must not write against each other at full speed."""
_ANNOUNCE_SECONDS: Final = 1.0
"""For API servers to see that a configuration has changed, which they watch."""
_CHANGE_OVER_SECONDS: Final = 3 * _PERIOD
"""For all replicas to notice: one whose watch is just being made anew only does after a period, if all goes well."""
_ROUND_SECONDS: Final = 60.0
_RETRIES: Final = BackoffPolicy(initial=0.5, maximum=30.0, jitter=0.25)


_NAMED_BY: Final = {
    MUTATING_WEBHOOK_CONFIGURATIONS.name: (MUTATING_VARIABLE, installation.MUTATING_CONFIGURATION),
    VALIDATING_WEBHOOK_CONFIGURATIONS.name: (VALIDATING_VARIABLE, installation.VALIDATING_CONFIGURATION),
}
"""By kind, the variable of the environment that says the name of the object, and its default."""


class WebhookSetupError(KoordinatorError):
    """The webhooks cannot be installed as things are; the text says what is missing."""


class OvertakenError(KoordinatorError):
    """Another replica has changed what a round went by; the next one sees it."""


class ConfigurationSync:
    """One per process. ``serve`` is awaited in every round, before any configuration is written."""

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
    ) -> None:
        self._client = client
        self._writer = writer
        self._environment = environment
        self._paths = paths
        self._serve = serve
        self._clock = clock
        self._backoff = Backoff(_RETRIES, clock, random)
        self._wanted = asyncio.Event()
        self._authority = b""
        """That of the certificate which is served; empty before there is one."""
        self._change_over_until = float("-inf")
        self._said: dict[str, tuple[str, ...]] = {}
        self.succeeded = asyncio.Event()
        """Set by the first round that went well."""
        self.last_error = "not tried yet"
        """Why the last round failed; empty when it went well."""
        self._heartbeat = LoopMetrics(clock, metrics).loop("webhook-configurations", _ROUND_SECONDS)
        self._results = metrics.counter(
            "koord_manager_webhook_configuration_sync_total",
            "Rounds of keeping webhook certificates and configurations in line.",
            ("result",),
        )

    def watch(self, informers: InformerSet) -> None:
        """Have every change of what a round looks at start one."""
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
        """Round after round until cancelled."""
        while True:
            self._wanted.clear()
            pause = await self.attempt()
            await self._clock.sleep(_SHORTEST_PAUSE)
            try:
                await within(self._clock, pause, self._wanted.wait())
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Bring everything in line once. Raises KoordinatorError."""
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
            # It has told API servers so, which must not be taken back.
            raise OvertakenError("the certificates have been changed since this round began")
        await self._configure(certificates)

    async def attempt(self) -> float:
        """One round; the seconds until the next if nothing happens."""
        try:
            await self._heartbeat.iterate(self.round())
        except Exception as error:
            return self._pause_after(error)
        self.last_error = ""
        self._results.labels("succeeded").inc()
        self._backoff.reset()
        self.succeeded.set()
        return _PERIOD

    def _pause_after(self, error: Exception) -> float:
        """Whatever went wrong, webhooks go on with the certificates that they have."""
        before, self.last_error = self.last_error, _reason(error)
        if isinstance(error, OvertakenError) or (isinstance(error, ApiStatusError) and error.is_conflict):
            self._results.labels("conflict").inc()
            logger.info("another replica was faster: %s", self.last_error)
            return 0.0
        self._results.labels("failed").inc()
        unforeseen = None if isinstance(error, KoordinatorError | OSError) else error
        # Once, not with every attempt: the metric counts them.
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
        # Both are read and decided on before either is written, so that a bad one does not leave half of the work.
        decisions = [
            (kind, configuration.metadata.name, rewrite(configuration, target))
            for kind, configuration in await self._configurations()
        ]
        for kind, name, decision in decisions:
            self._say(name, decision)
            if decision.patch is not None:
                await self._client.patch(kind, name, decision.patch, PatchType.MERGE)
                logger.info("rewrote %s %s", kind.name, name)

    async def _configurations(self) -> list[tuple[Kind[WebhookConfiguration], WebhookConfiguration]]:
        """Both. Raises NotInstalledError naming those that do not exist."""
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
        """Once, not every minute: which webhooks are installed that nothing here answers."""
        left_out = tuple(decision.left_out)
        if left_out and self._said.get(name) != left_out:
            logger.warning("%s: left out, since no handler is active for them: %s", name, ", ".join(left_out))
        self._said[name] = left_out


def _reason(error: Exception) -> str:
    if isinstance(error, KoordinatorError | OSError):
        return str(error) or f"not done within {_ROUND_SECONDS:g}s"
    return f"{type(error).__name__}: {error}"
