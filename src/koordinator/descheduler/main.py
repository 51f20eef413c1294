"""The program koord-descheduler: flags and configuration in, a running descheduler out."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as replace_fields

from koordinator.base import logs
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.descheduler import features
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.command_line import Options, parse_options
from koordinator.descheduler.configuration.loading import (
    Configuration,
    default_configuration,
    load_configuration,
    write_configuration,
)
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.framework import Plugin
from koordinator.descheduler.migration.plugin import MigrationController
from koordinator.descheduler.plugins.table import DECIDING
from koordinator.descheduler.program import Descheduler
from koordinator.kube.component_options import client_options, election_config
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.kube.secure_serving import SecureServing
from koordinator.kube.servers import Servers
from koordinator.kube.write_policy import ReadOnly

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

BUILT_IN: Final[Mapping[str, type[Plugin]]] = {
    **DECIDING,
    DefaultEvictor.name: DefaultEvictor,
    MigrationController.name: MigrationController,
}
_PROGRAM: Final = "koord-descheduler"
_DRAIN_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    return run_program(_PROGRAM, lambda: _prepare(sys.argv[1:] if arguments is None else arguments))


def _prepare(arguments: Sequence[str]) -> Run | None:
    options = parse_options(arguments)
    logs.configure(options.verbosity)
    catalogue = Catalogue(BUILT_IN)
    configuration = _configuration(options, catalogue)
    if options.write_config_to:
        Path(options.write_config_to).write_text(write_configuration(configuration), "utf-8")
        return None
    dry_run = configuration.document.dry_run
    # A dry run leaves the lease to the instance that acts, and needs none to look on.
    election = None if dry_run else election_config(configuration.document.leader_election, socket.gethostname())
    names = ", ".join(profile.document.name for profile in configuration.profiles)
    lease = f"lease {election.namespace}/{election.name}" if election else "no leader election"
    plugins = {name for profile in configuration.profiles for name in profile.plugins}
    idle = features.remarks(options.gates, plugins)
    mode = "; dry run: nothing is written, and controllers only say what they would do" if dry_run else ""
    greet(_PROGRAM, f"profiles {names}; {lease}{mode}", [*configuration.warnings, *options.remarks, *idle])
    if catalogue.third_party:
        origins = ", ".join(f"{name} ({origin})" for name, origin in catalogue.third_party.items())
        logger.info("plugins of other packages: %s", origins)
    return partial(_run, options, configuration, election)


def _configuration(options: Options, catalogue: Catalogue) -> Configuration:
    """What the flags say wins over the file."""
    if options.config:
        configuration = load_configuration(Path(options.config), catalogue)
    else:
        configuration = default_configuration(catalogue).served_at(options.address)
    document = configuration.document
    return configuration.with_document(
        replace_fields(
            document,
            leader_election=replace_fields(document.leader_election, **options.leader_election),
            client_connection=replace_fields(document.client_connection, **options.client_connection),
            dry_run=document.dry_run or options.dry_run,
        )
    )


async def _run(
    options: Options, configuration: Configuration, election: LeaderElectionConfig | None, process: Process
) -> None:
    clock, random, metrics = process.clock, process.random, process.metrics
    connection = configuration.document.client_connection
    reaching = client_options(
        connection,
        _PROGRAM,
        metrics,
        kubeconfig=options.kubeconfig,
        master=options.master,
        read_only=ReadOnly("a dry run") if configuration.document.dry_run else None,
    )
    async with connected(reaching) as client:
        events = EventBroadcaster(
            client, host=process.host, program=_PROGRAM, clock=clock, random=random, metrics=metrics
        )
        leadership = Leadership(
            client, election, clock=clock, random=random, metrics=metrics, watchdog=lease_watchdog()
        )
        descheduler = Descheduler(leadership.guard(client), events, configuration, process, options.gates)
        lifecycle = Lifecycle(clock)
        lifecycle.background("events", events.run)
        lifecycle.background("informers", descheduler.informers.run)
        lifecycle.work(
            "descheduling",
            lambda: leadership.run(lambda: descheduler.deschedule(process.stop), process.stop),
            # A leader gives up the lease; one that only waits to lead is just ended.
            drain=lambda: _DRAIN_SECONDS if leadership.is_leading else 0.0,
        )
        lifecycle.at_end(lambda: events.flush(_FLUSH_SECONDS))
        lifecycle.serve(_servers(descheduler, leadership, options, reaching, configuration, process))
        await lifecycle.run(process.stop)


def _servers(
    descheduler: Descheduler,
    leadership: Leadership,
    options: Options,
    reaching: ClientOptions,
    configuration: Configuration,
    process: Process,
) -> Servers:
    health = HealthChecks()
    health.add("informer-sync", lambda: "" if descheduler.synced else "not in sync", "readyz")
    health.add("descheduling-cycles", descheduler.check_cycles, "healthz", "livez")
    if leadership.is_contended:
        health.add("leaderElection", leadership.check, "healthz", "livez")
    servers = Servers(process.metrics, process.clock)

    def add_pages(server: HealthServer) -> None:
        # Loaded by the server that these pages are for, and by nothing before.
        from koordinator.descheduler.pages import add_pages

        add_pages(server, configuration, descheduler, lambda: leadership.is_leading)

    for address in dict.fromkeys((configuration.healthz, configuration.metrics)):
        servers.add(
            address,
            add_pages,
            health=health,
            profiles=configuration.document.enable_profiling,
        )
    servers.add(
        options.secure.listen_address(),
        add_pages,
        health=health,
        profiles=configuration.document.enable_profiling,
        secure=SecureServing(options.secure, reaching, process),
    )
    return servers
