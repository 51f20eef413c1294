"""A whole program in small, as the shell of base and kube makes it: it keeps a ConfigMap in every namespace.

One instance leads and has a controller with a work queue; all serve health and metrics; a configuration file and flags
say how. ``python -m tests.kube.namespace_greeter --config=FILE``.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from koordinator.api.component_configuration import (
    ClientConnection,
    LeaderElection,
    Strict,
    check_election,
    complete_connection,
    complete_election,
)
from koordinator.api.kinds import CONFIG_MAPS, NAMESPACES
from koordinator.api.strict_decoding import decode_strictly
from koordinator.base import logs
from koordinator.base.flags import FlagSet
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.listen_address import parse_listen_address
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.base.strict_yaml import load_document, read_configuration_file
from koordinator.kube.component_options import LeaderElectionFlags, client_options, election_config
from koordinator.kube.connect import connected
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.kube.reconciler import Reconcilers, run_controllers
from koordinator.kube.servers import Servers

_PROGRAM = "namespace-greeter"


class GreeterElection(LeaderElection):
    resource_name: str = _PROGRAM
    resource_namespace: str = "default"


class GreeterConfiguration(Strict):
    api_version: str
    kind: str
    greeting: str
    client_connection: ClientConnection = ClientConnection()
    leader_election: GreeterElection = GreeterElection()
    metrics_bind_address: str = "0"
    health_bind_address: str = "0"


class Greeter:
    """The controller: a ConfigMap ``greeting`` in every namespace."""

    name = "greeter"

    def __init__(self, client: Client, informers: InformerSet, reconcilers: Reconcilers, text: str, process: Process):
        self._client = client
        self._text = text
        self._namespaces = informers.informer(NAMESPACES)
        self._greetings = informers.informer(CONFIG_MAPS, field_selector="metadata.name=greeting")
        self._reconciler = reconcilers.make(
            self.name, self._reconcile, lambda: [each.metadata.name for each in self._namespaces.list()]
        )
        self._namespaces.add_handlers(name=self.name, on_add=lambda each, _: self._reconciler.add(each.metadata.name))

    async def run(self) -> None:
        await self._reconciler.run()

    async def _reconcile(self, namespace: str) -> float | None:
        if self._greetings.get(f"{namespace}/greeting") is None:
            document = {"metadata": {"name": "greeting"}, "data": {"text": self._text}}
            await self._client.create(CONFIG_MAPS, document, namespace)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program(_PROGRAM, lambda: _prepare(sys.argv[1:] if arguments is None else arguments))


def _prepare(arguments: Sequence[str]) -> Run:
    flags = FlagSet(_PROGRAM, "Greets namespaces.", "1.0.0")
    group = flags.group("All")
    config = group.string("config", "", "The configuration file.", placeholder="file")
    election_flags = LeaderElectionFlags(group, GreeterElection(), "Greet")
    given = flags.parse_or_exit(arguments)
    logs.configure()
    text = read_configuration_file("--config", Path(given[config]))
    document = load_document(text, given[config], "GreeterConfiguration")
    configuration = decode_strictly(document, GreeterConfiguration, f"{given[config]}: ")
    configured = replace(complete_election(configuration.leader_election), **election_flags.overrides(given))
    check_election(configured, f"{given[config]}: leaderElection")
    election = election_config(configured, socket.gethostname())
    greet(_PROGRAM, f"saying {configuration.greeting!r}")
    return partial(_run, configuration, election)


async def _run(configuration: GreeterConfiguration, election: LeaderElectionConfig | None, process: Process) -> None:
    clock, random, metrics = process.clock, process.random, process.metrics
    reaching = client_options(complete_connection(configuration.client_connection), _PROGRAM, metrics)
    async with connected(reaching) as client:
        events = EventBroadcaster(client, host=process.host, clock=clock, random=random, metrics=metrics)
        leadership = Leadership(
            client, election, clock=clock, random=random, metrics=metrics, watchdog=lease_watchdog(), again=True
        )
        leadership.announce_by(events, _PROGRAM)
        informers = InformerSet(client, clock=clock, random=random, metrics=metrics)
        reconcilers = Reconcilers(clock, metrics, "namespace_greeter_reconcile_total")
        greeter = Greeter(leadership.guard(client), informers, reconcilers, configuration.greeting, process)
        health, servers = HealthChecks(), Servers(metrics, clock)
        health.add("informer-sync", lambda: "; ".join(informers.not_synced), "readyz")
        servers.add(parse_listen_address("metricsBindAddress", configuration.metrics_bind_address), profiles=True)
        servers.add(parse_listen_address("healthBindAddress", configuration.health_bind_address), health=health)
        lifecycle = Lifecycle(clock)
        lifecycle.serve(servers)
        lifecycle.background("events", events.run)
        lifecycle.background("informers", informers.run)
        lifecycle.work("controllers", lambda: leadership.run(lambda: run_controllers(informers, {"greeter": greeter})))
        lifecycle.at_end(lambda: events.flush(2.0))
        await lifecycle.run(process.stop)


if __name__ == "__main__":
    sys.exit(main())
