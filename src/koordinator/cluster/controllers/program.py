"""Assembles the workload controllers with what they share, from start to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from koordinator.base.clock import Clock
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.cluster.controllers.context import ControllerContext, ControllerMaker
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.reconciler import Reconcilers, run_controllers
from koordinator.kube.servers import Servers

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

_FLUSH_SECONDS: Final = 2.0
_RESULTS: Final = "koord_controllers_reconcile_total"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of the program."""

    client: Client
    clock: Clock
    random: Random
    metrics: Metrics
    host: str
    """Events name it, together with the controller that recorded them."""
    address: ListenAddress = NOWHERE
    """Serves health, metrics and progress."""
    authority: str = ""
    """See ``ControllerContext``."""


class WorkloadControllers:
    """One replica; there is no leader election, so only one may run in a cluster. Call ``run`` once."""

    def __init__(self, makers: Mapping[str, ControllerMaker], given: Dependencies) -> None:
        """``makers``: the controllers to run, by name."""
        self._clock = given.clock
        self._informers = InformerSet(given.client, clock=given.clock, random=given.random, metrics=given.metrics)
        self._events = EventBroadcaster(
            given.client, host=given.host, clock=given.clock, random=given.random, metrics=given.metrics
        )
        self._reconcilers = Reconcilers(given.clock, given.metrics, _RESULTS)
        context = ControllerContext(
            client=given.client,
            informers=self._informers,
            events=self._events,
            reconcilers=self._reconcilers,
            clock=given.clock,
            random=given.random,
            authority=given.authority,
        )
        self._controllers = {name: make(context) for name, make in makers.items()}
        self._servers = Servers(given.metrics, given.clock)
        health = HealthChecks()
        health.add("informer-sync", self._not_synced, "readyz")
        self._servers.add(given.address, self._add_routes, health=health)

    def _not_synced(self) -> str:
        return "; ".join(self._informers.not_synced)

    def _add_routes(self, server: HealthServer) -> None:
        from koordinator.kube.progress import add_progress

        add_progress(server, self._informers, {"keys": lambda: self._reconcilers.in_hand})

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. Raises an ExceptionGroup when a part fails for good."""
        lifecycle = Lifecycle(self._clock)
        lifecycle.serve(self._servers)
        lifecycle.background("events", self._events.run)
        lifecycle.background("informers", self._informers.run)
        lifecycle.work("controllers", lambda: run_controllers(self._informers, self._controllers))
        lifecycle.at_end(lambda: self._events.flush(_FLUSH_SECONDS))
        await lifecycle.run(stop)
