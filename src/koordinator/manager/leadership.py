"""Leading, losing the lead, and leading again, without ending the process: its webhooks answer all the while."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector
from koordinator.kube.lease_watchdog import LeaseWatchdog

logger = logging.getLogger(__name__)


class Leadership:
    """Contends for one lease again and again. Without ``config`` this replica always leads."""

    def __init__(
        self,
        client: Client,
        config: LeaderElectionConfig | None,
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        watchdog: LeaseWatchdog,
    ) -> None:
        """``watchdog`` ends the process when work goes on that should have stopped, and another replica may lead.

        Set ``announce`` before ``run`` to be given the texts of LeaderElection events."""
        self._client = client
        self._config = config
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._watchdog = watchdog
        self.announce: Callable[[str], None] | None = None
        self._elector: LeaderElector | None = None
        self._is_leader = metrics.gauge("koordinator_manager_is_leader", "Whether this replica runs the controllers.")

    @property
    def is_leading(self) -> bool:
        """Whether this replica may write what only a leader may."""
        if self._config is None:
            return True
        return self._elector is not None and self._elector.is_leading

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` in every term, until cancelled. What it raises comes out in an ExceptionGroup."""

        async def term() -> None:
            self._is_leader.set(1)
            try:
                await work()
            finally:
                self._is_leader.set(0)

        if self._config is None:
            await term()
            return
        while True:
            elector = LeaderElector(
                self._client,
                self._config,
                clock=self._clock,
                random=self._random,
                metrics=self._metrics,
                announce=self.announce,
                watchdog=self._watchdog,
            )
            self._elector = elector
            await elector.run(term)
            logger.warning("lost the lead; controllers have stopped, webhooks go on, and the lease is tried for anew")
