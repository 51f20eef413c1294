"""Assembles koord-manager: webhooks on every replica, controllers on the leader, from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.audit_answer import AUDIT_PATH
from koordinator.api.installation import MANAGER_LEASE
from koordinator.base.clock import Clock
from koordinator.base.garbage_collection import BRIEFLY, spare_initial_lists
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.leadership import Leadership
from koordinator.kube.reconciler import run_controllers
from koordinator.kube.secure_serving import SecureServing
from koordinator.kube.servers import Servers
from koordinator.manager.audit.admissions import AdmissionSummary
from koordinator.manager.audit.keeper import AuditKeeper
from koordinator.manager.audit.query_page import audit_page
from koordinator.manager.colocation_profile.profile_review import are_profiles_read
from koordinator.manager.controller_table import ALWAYS, BUILT, GATES
from koordinator.manager.controllers import ControllerContext, make_controllers
from koordinator.manager.features import WEBHOOK_FRAMEWORK
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.node_resource.explanations import PATH, explain_handler
from koordinator.manager.options import Options
from koordinator.manager.recommender.controller import RecommenderController
from koordinator.manager.recommender.debug_page import PATH as RECOMMENDATION_PAGE
from koordinator.manager.recommender.debug_page import recommendation_page
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.handler_table import HandlerContext, make_handlers
from koordinator.manager.webhook.listers import watch_quotas
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.program import Webhooks
from koordinator.manager.webhook.quota_accounts import PATH as QUOTA_PAGE
from koordinator.manager.webhook.quota_accounts import quota_page
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

IS_LEADER_METRIC: Final = "koordinator_manager_is_leader"
READY_CHECK: Final = "webhook-ready"
_METRICS_PATHS: Final = ("/internal-metrics", "/external-metrics", "/all-metrics")
"""The original keeps several registries, which are one here; each of these paths serves all metrics."""
_RELEASE_SECONDS: Final = 1.5
_FLUSH_SECONDS: Final = 2.0
"""Together with the time that the webhooks take to stop, this stays below ten seconds, the grace period of the
original's Deployment."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of a manager."""

    client: Client
    leader_client: Client
    """Refuses to write unless this replica is the leader."""
    clock: Clock
    random: Random
    metrics: Metrics
    instance: str
    """The reporting instance of events: the program and the host that it runs on."""
    extensions: tuple[NodeSLOExtension, ...] = ()
    """The parts of NodeSLOs that other packages add."""
    secure: SecureServing | None = None
    """What the secure port needs, where one is served."""


class Manager:
    """One replica. Call ``run`` once."""

    def __init__(self, options: Options, leadership: Leadership, given: Dependencies) -> None:
        self._leadership = leadership
        self._clock = given.clock
        self._metrics = given.metrics
        self._informers = InformerSet(given.client, clock=given.clock, random=given.random, metrics=given.metrics)
        self._events = EventBroadcaster(
            given.client,
            instance=given.instance,
            program="koord-manager",
            clock=given.clock,
            random=given.random,
            metrics=given.metrics,
        )
        leadership.announce_by(self._events, MANAGER_LEASE)
        self._admissions = AdmissionSummary(self._events.recorder("colocationprofile"), given.clock)
        connections = ProgramConnections(given.metrics, given.clock)
        self._quotas = QuotaAssumeCache(given.clock.monotonic)
        self.webhooks = self._make_webhooks(options, given, connections)
        context = ControllerContext(
            client=given.leader_client,
            informers=self._informers,
            events=self._events,
            options=options,
            metrics=given.metrics,
            clock=given.clock,
            random=given.random,
            extensions=given.extensions,
        )
        self._reconcilers = context.reconcilers
        self._controllers = make_controllers(context, BUILT, GATES)
        if are_profiles_read(options):
            self._controllers |= {name: make(context) for name, make in ALWAYS.items()}
        if options.audit.megabytes:
            self._controllers[AuditKeeper.name] = AuditKeeper(context, options.audit)
        export_unreadable(self._informers, given.metrics)
        self._servers = self._make_servers(options, given, connections)

    def _make_servers(self, options: Options, given: Dependencies, connections: ProgramConnections) -> Servers:
        """Metrics and the explanation endpoints on one address; health for kubelets on another; profiles on a third."""
        servers, health = Servers(given.metrics, given.clock, connections), HealthChecks()
        if self.webhooks is not None:
            health.add(READY_CHECK, self.webhooks.readiness.check, "readyz")
            health.add("loops", self.webhooks.check_loops, "readyz")
        servers.add(options.metrics_address, self._add_routes)
        servers.add(options.health_address, health=health)
        servers.add(options.secure.listen_address(), self._add_routes, health=health, secure=given.secure)
        servers.add(options.profile_address, profiles=True, dispensable="profiles are not served, see --pprof-addr")
        return servers

    def _add_routes(self, server: HealthServer) -> None:
        from koordinator.kube.progress import add_progress

        add_progress(server, self._informers, {"keys": lambda: self._reconcilers.in_hand})
        for path in _METRICS_PATHS:
            server.add_metrics(path, self._metrics)
        controller = self._controllers.get(NodeResourceController.name)
        if isinstance(controller, NodeResourceController):
            server.add_route(PATH, explain_handler(controller.explain))
        recommender = self._controllers.get(RecommenderController.name)
        if isinstance(recommender, RecommenderController):
            server.add_route(RECOMMENDATION_PAGE, recommendation_page(recommender.find))
        audit = self._controllers.get(AuditKeeper.name)
        if isinstance(audit, AuditKeeper):
            server.add_route(AUDIT_PATH, audit_page(audit.find))
        if self.webhooks is not None:
            # The original has it where the webhooks are, which have to be open to everybody who may be an API server.
            server.add_route(QUOTA_PAGE, quota_page(self._quotas))

    def _make_webhooks(self, options: Options, given: Dependencies, connections: ProgramConnections) -> Webhooks | None:
        if not options.features.enabled(WEBHOOK_FRAMEWORK):
            logger.info("feature gate %s is off: no webhooks are served", WEBHOOK_FRAMEWORK)
            return None
        metrics = WebhookMetrics(given.metrics)
        watch_quotas(self._informers, options.namespace, self._quotas)
        context = HandlerContext(
            given.client,
            self._informers,
            options,
            metrics,
            given.clock,
            given.random,
            self._quotas,
            self._admissions,
        )
        return Webhooks(
            given.client,
            self._informers,
            make_handlers(context),
            options.environment,
            metrics,
            given.metrics,
            clock=given.clock,
            random=given.random,
            connections=connections,
            events=self._events,
            queue=options.admission_queue,
            client_authority=Path(options.webhook_client_authority) if options.webhook_client_authority else None,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. Raises an ExceptionGroup when a part fails for good."""
        lifecycle = Lifecycle(self._clock)
        lifecycle.serve(self._servers)
        lifecycle.background("events", self._events.run)
        lifecycle.background("informers", self._informers.run)
        lifecycle.background("admissions", self._admissions.run)
        lifecycle.background(
            "collector", lambda: spare_initial_lists(self._informers.wait_synced, self._clock, BRIEFLY)
        )
        # A reachable API server releases the lease within milliseconds; with an unreachable one the lease expires.
        lifecycle.work("controllers", lambda: self._leadership.run(self._control), grace=_RELEASE_SECONDS)
        if self.webhooks is not None:
            lifecycle.work("webhooks", self.webhooks.run)
        lifecycle.at_end(self._flush_events)
        await lifecycle.run(stop)

    async def _flush_events(self) -> None:
        self._admissions.record()
        await self._events.flush(_FLUSH_SECONDS)

    async def _control(self) -> None:
        if self.webhooks is not None:
            # API servers call the webhooks for what controllers write, and would reject it before the webhooks are
            # served.
            await self.webhooks.sync.succeeded.wait()
        await run_controllers(self._informers, self._controllers)


def export_unreadable(informers: Iterable[Informer[Any]], metrics: Metrics) -> None:
    """Export how many objects of each kind exist in a form that cannot be decoded, counted at a scrape. They are
    skipped."""
    gauge = metrics.gauge(
        "koord_manager_unreadable_objects",
        "Objects that cannot be read as they are now, so that what was known of them before counts",
        ("kind",),
    )
    by_kind: dict[str, list[Informer[Any]]] = {}
    for informer in informers:
        by_kind.setdefault(informer.kind.name, []).append(informer)
    for kind, watching in by_kind.items():
        gauge.labels(kind).set_function(partial(_unreadable, watching))


def _unreadable(informers: Iterable[Informer[Any]]) -> float:
    return len({(each.namespace, each.name) for informer in informers for each in informer.malformed})
