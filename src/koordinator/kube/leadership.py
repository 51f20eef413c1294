"""Leading: once, or again and again without ending the process, for programs whose replicas all serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from koordinator.api.kinds import LEASES
from koordinator.api.meta import ObjectReference
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.kube.client import KubeClient
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector
from koordinator.kube.lease_watchdog import LeaseWatchdog

logger = logging.getLogger(__name__)


class LeadershipLostError(KoordinatorError):
    """Another instance leads now, or may."""


class Leadership:
    """Contends for one lease. Without ``config`` this replica always leads."""

    def __init__(
        self,
        client: Client,
        config: LeaderElectionConfig | None,
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        watchdog: LeaseWatchdog,
        again: bool = False,
        is_leader_metric: str = "",
    ) -> None:
        """``watchdog`` ends the process when work continues that should have stopped, and another replica may lead.

        With ``again`` a lease that was lost is tried for anew; otherwise that ends ``run`` with LeadershipLostError,
        so that a new process starts from what the API has. ``is_leader_metric`` names a gauge of whether the work runs.
        """
        self._client = client
        self._config = config
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._again = again
        self._watchdog = watchdog
        self._announce: Callable[[str], None] | None = None
        self._elector: LeaderElector | None = None
        self._is_leader = (
            metrics.gauge(is_leader_metric, "Whether this replica runs the controllers.") if is_leader_metric else None
        )

    @property
    def is_contended(self) -> bool:
        """Whether there is an election at all."""
        return self._config is not None

    @property
    def is_leading(self) -> bool:
        """Whether this replica may write what only a leader may."""
        if self._config is None:
            return True
        return self._elector is not None and self._elector.is_leading

    def check(self) -> str:
        """For health checks: what is wrong when a term has been over for too long, or ""."""
        return self._elector.check() if self._elector is not None else ""

    def guard(self, client: KubeClient) -> KubeClient:
        """``client`` for the work: it refuses to write unless this replica leads.

        A leader whose event loop was held up must not send what it meant to: another one may lead meanwhile.
        """
        return client.fenced(lambda: self.is_leading)

    def announce_by(self, events: EventBroadcaster, controller: str) -> None:
        """Write who leads as events of ``controller`` on the Lease, where people look for it; before ``run``."""
        if self._config is None:
            return
        recorder = events.recorder(controller)
        lease = ObjectReference(
            api_version=LEASES.api_version,
            kind=LEASES.name,
            namespace=self._config.namespace,
            name=self._config.name,
        )
        self._announce = lambda text: recorder.event(lease, "Normal", "LeaderElection", "Elect", text)

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event | None = None) -> None:
        """Run ``work`` in every term until it ends by itself or this is cancelled.

        LeadershipLostError if the lease is lost, is not tried for again, and ``stop`` is not set.
        What the work raises comes out in an ExceptionGroup.
        """
        finished = False

        async def term() -> None:
            nonlocal finished
            self._set_leader(True)
            try:
                await work()
            finally:
                self._set_leader(False)
            finished = True

        if self._config is None:
            await term()
            return
        while not finished:
            self._elector = elector = self._make_elector(self._config)
            await elector.run(term)
            if finished or (stop is not None and stop.is_set()):
                return
            if not self._again:
                raise LeadershipLostError("leader election lost: another instance does the work from here on")
            logger.warning("lost the lead; what only a leader does has stopped, and the lease is tried for anew")

    def _make_elector(self, config: LeaderElectionConfig) -> LeaderElector:
        return LeaderElector(
            self._client,
            config,
            clock=self._clock,
            random=self._random,
            metrics=self._metrics,
            announce=self._announce,
            watchdog=self._watchdog,
        )

    def _set_leader(self, leads: bool) -> None:
        if self._is_leader is not None:
            self._is_leader.set(leads)
