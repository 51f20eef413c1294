"""The program koord-scheduler: flags and configuration in, a running scheduler out."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import uvloop

import koordinator
from koordinator.base import logs
from koordinator.base.clock import SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.process import exit_status, stop_on_signals
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect, user_agent
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector, make_identity
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.scheduler import lifetime
from koordinator.scheduler.configuration import (
    SchedulerConfiguration,
    default_configuration,
    load_configuration,
    not_built,
    write_configuration,
)
from koordinator.scheduler.debug_output import DebugSettings
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.monitor import MonitorOptions
from koordinator.scheduler.options import CROSS_SCHEDULER_NOMINATION, Options, parse_options
from koordinator.scheduler.plugins.not_built import STAND_INS
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.pod_events import PodEvents
from koordinator.scheduler.profiles import build_profiles
from koordinator.scheduler.program import Scheduler, SchedulerOptions
from koordinator.scheduler.queue.scheduling_queue import QueueOptions

logger = logging.getLogger(__name__)

_PROGRAM = "koord-scheduler"
_DECISION_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    logs.configure(options.verbosity)
    try:
        configuration = _configuration(options)
        election = _election(options, configuration)
        if options.write_config_to:
            Path(options.write_config_to).write_text(write_configuration(configuration), "utf-8")
            return 0
        _greet(options, configuration, election)
        uvloop.run(_run(options, configuration, election))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(_PROGRAM, error)
    return 0


def _configuration(options: Options) -> SchedulerConfiguration:
    if options.config:
        return load_configuration(Path(options.config))
    return default_configuration(profiling=options.profiling)


async def _run(options: Options, configuration: SchedulerConfiguration, election: LeaderElectionConfig | None) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    clock, random, metrics = SystemClock(), Random(), Metrics()
    client = await connect(_client_options(options, configuration, metrics))
    try:
        metrics.add_process_metrics()
        options.features.export(metrics)
        host = socket.gethostname()
        events = EventBroadcaster(client, host=host, clock=clock, random=random, metrics=metrics)
        elector: LeaderElector | None = None
        working = client
        if election is not None:
            elector = contender = LeaderElector(
                client, election, clock=clock, random=random, metrics=metrics, watchdog=lease_watchdog()
            )
            # A leader whose event loop was held up must not send what it meant to: another one may lead meanwhile.
            working = client.fenced(lambda: contender.is_leading)
        scheduler = _scheduler(working, events, options, configuration, metrics)
        events.give_way_while(lambda: scheduler.is_binding)
        server = None
        if options.port:
            from koordinator.scheduler.serving import serve

            server = serve(scheduler, metrics, elector, options.address, options.port, configuration)
        await lifetime.run(scheduler, events, elector, server, stop)
    finally:
        await client.close()


def _scheduler(
    client: KubeClient,
    events: EventBroadcaster,
    options: Options,
    configuration: SchedulerConfiguration,
    metrics: Metrics,
) -> Scheduler:
    view = ClusterView(NodeColumns())
    resources = view.columns.resources
    queue = QueueOptions(
        initial_backoff=configuration.pod_initial_backoff_seconds,
        max_backoff=configuration.pod_max_backoff_seconds,
        max_in_unschedulable=options.max_in_unschedulable.total_seconds(),
    )
    return Scheduler(
        client,
        PodEvents(events, [profile.scheduler_name for profile in configuration.profiles]),
        lambda view: build_profiles(configuration, {**STAND_INS, **BUILT_IN}, view),
        lambda pod: make_pod_info(pod, resources),
        view,
        SchedulerMetrics(metrics),
        clock=SystemClock(),
        random=Random(),
        options=SchedulerOptions(
            queue=queue,
            decision_seconds=_DECISION_SECONDS,
            monitor=MonitorOptions(options.monitor_period.total_seconds(), options.scheduling_timeout.total_seconds()),
            debug=DebugSettings(
                options.debug_scores, options.debug_filters, options.debug_diagnosis, options.debug_diagnosis_blocking
            ),
            diagnosis_queue=options.debug_diagnosis_queue_size,
            foreign_nominations=options.features.enabled(CROSS_SCHEDULER_NOMINATION),
            controller_plugins=options.controller_plugins,
        ),
    )


def _client_options(options: Options, configuration: SchedulerConfiguration, metrics: Metrics) -> ClientOptions:
    connection = configuration.client_connection
    return ClientOptions(
        kubeconfig=connection.kubeconfig or options.kubeconfig,
        master=options.master,
        qps=connection.qps if options.qps is None else options.qps,
        burst=connection.burst if options.burst is None else options.burst,
        user_agent=user_agent(_PROGRAM),
        metrics=metrics,
    )


def _election(options: Options, configuration: SchedulerConfiguration) -> LeaderElectionConfig | None:
    """The election to take part in; flags win over the configuration. Raises ConfigurationError."""
    given = configuration.leader_election
    if not (given.leader_elect if options.leader_elect is None else options.leader_elect):
        return None
    return LeaderElectionConfig(
        name=given.resource_name if options.resource_name is None else options.resource_name,
        namespace=given.resource_namespace if options.resource_namespace is None else options.resource_namespace,
        identity=make_identity(socket.gethostname()),
        lease_duration=(options.lease_duration or given.lease_duration).total_seconds(),
        renew_deadline=(options.renew_deadline or given.renew_deadline).total_seconds(),
        retry_period=(options.retry_period or given.retry_period).total_seconds(),
        release_on_cancel=True,
    )


def _greet(options: Options, configuration: SchedulerConfiguration, election: LeaderElectionConfig | None) -> None:
    """One line that says what this is, and what of the configuration will not have the expected effect."""
    missing = not_built(configuration, BUILT_IN)
    logger.info(
        "%s %s (process %d): profiles %s; %s",
        _PROGRAM,
        koordinator.__version__,
        os.getpid(),
        ", ".join(profile.scheduler_name for profile in configuration.profiles),
        f"lease {election.namespace}/{election.name}" if election else "no leader election",
    )
    if configuration.third_party:
        origins = ", ".join(f"{name} ({found.origin})" for name, found in configuration.third_party.items())
        logger.info("plugins of other packages: %s", origins)
    if missing:
        logger.warning("plugins of the configuration that are not built yet and left out: %s", ", ".join(missing))
    for warning in (*configuration.warnings, *options.without_effect):
        logger.warning("%s", warning)
