"""koord-manager put together: webhooks on every replica, controllers on the one that leads, from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Final

from koordinator.api.installation import MANAGER_LEASE
from koordinator.api.kinds import LEASES
from koordinator.api.meta import ObjectReference
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.garbage_collection import BRIEFLY, spare_initial_lists
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.serving import Handler
from koordinator.manager.colocation_profile.profile_review import are_profiles_read
from koordinator.manager.controller_table import ALWAYS, BUILT, GATES
from koordinator.manager.controllers import ControllerContext, make_controllers, run_controllers
from koordinator.manager.features import WEBHOOK_FRAMEWORK
from koordinator.manager.leadership import Leadership
from koordinator.manager.node_resource.answers import PATH, explain_handler
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options
from koordinator.manager.serving import make_profile_server, make_servers, starts
from koordinator.manager.unreadable_objects import export_unreadable
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
from koordinator.manager.webhook.handler_table import HandlerContext, make_handlers
from koordinator.manager.webhook.known_cluster import follow_quotas
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.program import Webhooks
from koordinator.manager.webhook.quota_page import PATH as QUOTA_PAGE
from koordinator.manager.webhook.quota_page import quota_page
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_RELEASE_SECONDS: Final = 1.5
_FLUSH_SECONDS: Final = 2.0
"""With what the webhooks take to stop this stays below ten seconds, the grace of the original's Deployment."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside of the program that it works with."""

    client: Client
    leader_client: Client
    """Refuses to write unless this replica leads."""
    clock: Clock
    random: Random
    metrics: Metrics
    instance: str
    """Who writes events: the program and the host that it runs on."""
    extensions: tuple[NodeSLOExtension, ...] = ()
    """What other packages add to NodeSLOs."""


class Manager:
    """One replica. ``run`` once."""

    def __init__(self, options: Options, leadership: Leadership, around: Surroundings) -> None:
        self._leadership = leadership
        self._clock = around.clock
        self._informers = InformerSet(around.client, clock=around.clock, random=around.random)
        self._events = EventBroadcaster(
            around.client,
            instance=around.instance,
            clock=around.clock,
            random=around.random,
            metrics=around.metrics,
        )
        leadership.announce = self._announcer(options)
        self.webhooks = self._make_webhooks(options, around)
        context = ControllerContext(
            client=around.leader_client,
            informers=self._informers,
            events=self._events,
            options=options,
            metrics=around.metrics,
            clock=around.clock,
            random=around.random,
            extensions=around.extensions,
        )
        self._controllers = make_controllers(context, BUILT, GATES)
        if are_profiles_read(options):
            self._controllers |= {name: make(context) for name, make in ALWAYS.items()}
        export_unreadable(self._informers, around.metrics)
        self._servers = make_servers(
            around.metrics,
            options.metrics_address,
            options.health_address,
            self.webhooks.readiness.check if self.webhooks is not None else None,
            self._routes(),
        )
        self._profile_server = make_profile_server(around.metrics, options.profile_address, around.clock)

    def _announcer(self, options: Options) -> Callable[[str], None]:
        """Writes who leads as events on the Lease, where people look for it."""
        recorder = self._events.recorder(MANAGER_LEASE)
        namespace = options.leader_election_namespace
        lease = ObjectReference(
            api_version=LEASES.api_version, kind=LEASES.name, namespace=namespace, name=MANAGER_LEASE
        )
        return lambda text: recorder.event(lease, "Normal", "LeaderElection", "Elect", text)

    def _make_webhooks(self, options: Options, around: Surroundings) -> Webhooks | None:
        if not options.features.enabled(WEBHOOK_FRAMEWORK):
            logger.info("feature gate %s is off: no webhooks are served", WEBHOOK_FRAMEWORK)
            return None
        metrics = WebhookMetrics(around.metrics)
        quotas = ExpectedQuotas(around.clock.monotonic)
        follow_quotas(self._informers, options.namespace, quotas)
        context = HandlerContext(around.client, self._informers, options, metrics, around.clock, around.random, quotas)
        webhooks = Webhooks(
            around.client,
            self._informers,
            make_handlers(context),
            options.environment,
            metrics,
            around.metrics,
            clock=around.clock,
            random=around.random,
        )
        webhooks.server.add_route(QUOTA_PAGE, quota_page(quotas))
        return webhooks

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop``. Raises an ExceptionGroup when a part cannot go on."""
        async with AsyncExitStack() as servers, asyncio.TaskGroup() as tasks:
            for server in self._servers:
                await server.start()
                servers.push_async_callback(server.stop)
            if self._profile_server is not None and await starts(self._profile_server):
                servers.push_async_callback(self._profile_server.stop)
            background = [
                tasks.create_task(self._events.run(), name="events"),
                tasks.create_task(self._informers.run(), name="informers"),
                tasks.create_task(
                    spare_initial_lists(self._informers.wait_synced, self._clock, BRIEFLY), name="collector"
                ),
            ]
            leading = tasks.create_task(self._leadership.run(self._control), name="controllers")
            serving = []
            if self.webhooks is not None:
                serving.append(tasks.create_task(self.webhooks.run(), name="webhooks"))
            await stop.wait()
            logger.info("stopping")
            await asyncio.gather(self._end_leadership(leading), _end(serving))
            left = await self._events.flush(_FLUSH_SECONDS)
            if left:
                logger.warning("%d events could not be written before the end", left)
            await _end(background)

    async def _end_leadership(self, leading: asyncio.Task[None]) -> None:
        """An API server that answers takes the lease back within milliseconds; from one that is away it expires."""
        try:
            await within(self._clock, _RELEASE_SECONDS, _end([leading]))
        except TimeoutError:
            # That has cancelled the task a second time, so that it waits for no answer any more.
            logger.warning("the lease could not be given up within %gs: it will expire", _RELEASE_SECONDS)
            await asyncio.wait({leading})

    def _routes(self) -> dict[str, Handler]:
        """What people may ask, beside the metrics."""
        controller = self._controllers.get(NodeResourceController.name)
        if not isinstance(controller, NodeResourceController):
            return {}
        return {PATH: explain_handler(controller.explain)}

    async def _control(self) -> None:
        if self.webhooks is not None:
            # What controllers write passes the webhooks: before these answer, API servers would refuse it.
            await self.webhooks.sync.succeeded.wait()
        await run_controllers(self._informers, self._controllers)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
