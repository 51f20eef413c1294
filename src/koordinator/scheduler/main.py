"""The program koord-scheduler: reads flags and configuration and runs the scheduler."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from koordinator.base import logs
from koordinator.base.garbage_collection import spare_initial_lists
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.kube.component_options import client_options, election_config
from koordinator.kube.connect import connected
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.kube.secure_serving import SecureServing
from koordinator.kube.servers import Servers
from koordinator.scheduler.assembly import make_scheduler
from koordinator.scheduler.configuration import (
    SchedulerConfiguration,
    default_configuration,
    load_configuration,
    not_built,
    write_configuration,
)
from koordinator.scheduler.cycle.failure_report import PodEvents
from koordinator.scheduler.options import Options, parse_options
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.program import Scheduler, SchedulerOptions

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koord-scheduler"
_DECISION_SECONDS: Final = 10.0
_DRAIN_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    return run_program(_PROGRAM, lambda: _prepare(sys.argv[1:] if arguments is None else arguments))


def _prepare(arguments: Sequence[str]) -> Run | None:
    options = parse_options(arguments)
    logs.configure(options.verbosity)
    configuration = _configuration(options)
    elected = replace(configuration.document.leader_election, **options.leader_election)
    election = election_config(elected, socket.gethostname())
    if options.write_config_to:
        Path(options.write_config_to).write_text(write_configuration(configuration), "utf-8")
        return None
    _greet(options, configuration, election)
    return partial(_run, options, configuration, election)


def _configuration(options: Options) -> SchedulerConfiguration:
    if options.config:
        return load_configuration(Path(options.config))
    return default_configuration(profiling=options.profiling)


async def _run(
    options: Options, configuration: SchedulerConfiguration, election: LeaderElectionConfig | None, process: Process
) -> None:
    clock, random, metrics = process.clock, process.random, process.metrics
    connection = replace(configuration.document.client_connection, **options.client_connection)
    reaching = client_options(connection, _PROGRAM, metrics, kubeconfig=options.kubeconfig, master=options.master)
    async with connected(reaching) as client:
        options.features.export(metrics)
        events = EventBroadcaster(
            client, host=process.host, program=_PROGRAM, clock=clock, random=random, metrics=metrics
        )
        leadership = Leadership(
            client, election, clock=clock, random=random, metrics=metrics, watchdog=lease_watchdog()
        )
        scheduler = make_scheduler(
            leadership.guard(client),
            PodEvents(events, [profile.scheduler_name for profile in configuration.profiles]),
            configuration,
            options,
            SchedulerOptions(decision_seconds=_DECISION_SECONDS),
            metrics=metrics,
            clock=clock,
            random=random,
        )
        events.give_way_while(lambda: scheduler.is_binding)
        lifecycle = make_lifecycle(scheduler, events, leadership, process)
        secure = SecureServing(options.secure, reaching, process)
        lifecycle.serve(_servers(scheduler, leadership, options, configuration, process, secure))
        await lifecycle.run(process.stop)


def make_lifecycle(
    scheduler: Scheduler, events: EventBroadcaster, leadership: Leadership, process: Process
) -> Lifecycle:
    """The lifecycle of the process. A leader that loses its lease exits, as upstream's do: a new process starts from
    the API's state."""
    lifecycle = Lifecycle(process.clock)
    lifecycle.background("events", events.run)
    lifecycle.background("informers", scheduler.watch)
    lifecycle.background(
        "garbage-collection", lambda: spare_initial_lists(scheduler.informers.wait_synced, process.clock)
    )
    lifecycle.work(
        "scheduling",
        lambda: leadership.run(lambda: scheduler.schedule(process.stop), process.stop),
        # A leader completes bindings in progress and releases the lease; an instance that only waits to lead just
        # exits.
        drain=lambda: _DRAIN_SECONDS if leadership.is_leading else 0.0,
    )
    lifecycle.at_end(lambda: events.flush(_FLUSH_SECONDS))
    return lifecycle


def _servers(
    scheduler: Scheduler,
    leadership: Leadership,
    options: Options,
    configuration: SchedulerConfiguration,
    process: Process,
    secure: SecureServing,
) -> Servers:
    health = HealthChecks()
    health.add("informer-sync", lambda: "" if scheduler.synced else "not in sync", "readyz")
    # A restart would not bring back an unreachable API server, so the other paths stay healthy.
    health.add("bindings", scheduler.check_bindings, "readyz")
    if leadership.is_contended:
        health.add("leaderElection", leadership.check, "healthz", "livez")

    def add_routes(server: HealthServer) -> None:
        from koordinator.scheduler.services.routes import add_routes

        add_routes(server, scheduler, lambda: leadership.is_leading, configuration)

    servers = Servers(process.metrics, process.clock)
    profiles = configuration.document.enable_profiling
    servers.add(options.address, add_routes, health=health, profiles=profiles)
    servers.add(options.secure.listen_address(), add_routes, health=health, profiles=profiles, secure=secure)
    return servers


def _greet(options: Options, configuration: SchedulerConfiguration, election: LeaderElectionConfig | None) -> None:
    """Log the version, and what of the configuration will not have the expected effect."""
    names = ", ".join(profile.scheduler_name for profile in configuration.profiles)
    lease = f"lease {election.namespace}/{election.name}" if election else "no leader election"
    remarks = [*configuration.warnings, *options.without_effect]
    if missing := not_built(configuration, BUILT_IN):
        remarks.insert(0, f"plugins of the configuration that are not built yet and left out: {', '.join(missing)}")
    greet(_PROGRAM, f"profiles {names}; {lease}", remarks)
    if configuration.third_party:
        origins = ", ".join(f"{name} ({found.origin})" for name, found in configuration.third_party.items())
        logger.info("plugins of other packages: %s", origins)
