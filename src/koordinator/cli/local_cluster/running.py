"""A local cluster that runs: its programs, started in order and watched over, and what others may know of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import yaml

import koordinator
from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PRIORITY_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.api.manifests.webhooks import webhook_configurations
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cli.cluster_record import (
    ClusterRecord,
    ProgramRecord,
    end_left_programs,
    program_record,
    read_record,
    remove_record,
    write_record,
)
from koordinator.cli.data_folder import (
    DESCHEDULER,
    MANAGER,
    SCHEDULER,
    log_folder,
    publish_address,
    withdraw_address,
)
from koordinator.cli.local_cluster import programs
from koordinator.cli.local_cluster.ensure import ensure
from koordinator.cli.local_cluster.identities import give_identities, remove_identities
from koordinator.cli.local_cluster.programs import LocalClusterOptions, shipped_file
from koordinator.cli.ports import check_ports
from koordinator.cli.supervisor import ProgramState, Supervisor
from koordinator.kube import connection
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client

# What every local cluster has besides nodes: our CustomResourceDefinitions, the namespace, the priority classes, and a
# configuration that switches colocation on.


_QUOTA_WEBHOOKS: Final = ("melasticquota.koordinator.sh", "velasticquota.koordinator.sh")
_CONFIG_MAP_WEBHOOK: Final = "vconfigmap.koordinator.sh"
_WEBHOOK_KINDS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)


async def prepare(client: Client, *, with_webhooks: bool = True) -> None:
    """Create what is missing; definitions of an older version are brought up to date. Safe to repeat.

    ``with_webhooks``: the API server calls koord-manager for pods.
    """
    for definition in custom_resource_definitions():
        await ensure(client, CUSTOM_RESOURCE_DEFINITIONS, definition, update=("spec",))
    await ensure(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for text in manifest_files(Installation(), ("priority-classes",)).values():
        for document in yaml.safe_load_all(text):
            await ensure(client, PRIORITY_CLASSES, document)
    if with_webhooks:
        for kind, configuration in zip(_WEBHOOK_KINDS, webhook_configurations(), strict=True):
            await ensure(client, kind, as_local_clusters_have_it(configuration))
    configuration = yaml.safe_load(shipped_file("slo-controller-config.yaml").read_text())
    await ensure(client, CONFIG_MAPS, configuration, namespace=NAMESPACE)


def as_local_clusters_have_it(configuration: dict[str, Any]) -> dict[str, Any]:
    """A local cluster is used without its manager, too: then no request waits for a webhook. A manager that is only
    slow, on a busy machine, is waited for as long as an API server may: without it, a pod is written as another one.

    Mistakes are refused wherever they are made: quotas are checked in every namespace, and every ConfigMap of ours,
    with or without the label by which the webhook finds it on a cluster with many.
    """
    webhooks = [{**webhook, "failurePolicy": "Ignore", "timeoutSeconds": 30} for webhook in configuration["webhooks"]]
    for webhook in webhooks:
        if webhook["name"] in _QUOTA_WEBHOOKS:
            del webhook["namespaceSelector"]
        elif webhook["name"] == _CONFIG_MAP_WEBHOOK:
            del webhook["objectSelector"]
            webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    return {**configuration, "webhooks": webhooks}


_PREPARE_SECONDS: Final = 300.0
_PROGRAMS: Final = {
    "apiserver": programs.api_server,
    "nodes": programs.simulated_nodes,
    "controllers": programs.controllers,
    "manager": programs.manager,
    "scheduler": programs.scheduler,
    "descheduler": programs.descheduler,
    "page": programs.page,
}


class PreparationError(KoordinatorError):
    """The API server did not take what every local cluster has."""


def clear_the_way(options: LocalClusterOptions, names: Sequence[str], report: Callable[[str], None]) -> None:
    """Remove what a killed ``koord`` has left in the data folder, which this process holds; then look at the ports.

    Raises PortsTaken before anything is started.
    """
    left = read_record(options.data)
    if left is not None:
        report(f"the last {left.command} here (process {left.pid}) was killed; cleaning up after it")
        end_left_programs(left, report)
        remove_record(options.data)
        for program in (SCHEDULER, MANAGER, DESCHEDULER):
            withdraw_address(options.data, program)
    check_ports(programs.port_uses(options, names))


class LocalCluster:
    """The programs ``names`` of a data folder that this process holds."""

    def __init__(
        self,
        options: LocalClusterOptions,
        names: Sequence[str],
        clock: Clock,
        report: Callable[[str], None],
        command: str,
    ) -> None:
        self.options = options
        self.names = names
        self._report = report
        self._command = command
        self._since = clock.now()
        self._phase: Literal["starting", "up", "stopping"] = "starting"
        self._api_url = ""
        self.supervisor = Supervisor(log_folder(options.data), clock, report, on_change=self._write_record)

    @property
    def is_up(self) -> bool:
        """Whether everything has been started."""
        return self._phase == "up"

    async def start(self, name: str) -> None:
        """Start a program and return when it is ready; the API server also gets what every local cluster has.

        Raises ProgramFailed and PreparationError.
        """
        await self.supervisor.start(_PROGRAMS[name](self.options))
        if name == "apiserver":
            kubeconfig = str(self.options.kubeconfig)
            self._api_url = connection.resolve(kubeconfig, environment=os.environ).endpoint.url
            await self._prepare()
        elif name == "manager":
            publish_address(self.options.data, MANAGER, self.options.manager_port)
        elif name == "scheduler":
            publish_address(self.options.data, SCHEDULER, self.options.scheduler_port)
        elif name == "descheduler":
            publish_address(self.options.data, DESCHEDULER, self.options.descheduler_port)
        self._write_record()

    async def watch(self) -> None:
        """From now on the cluster is up; watch over it until ``stop``."""
        self._phase = "up"
        self._write_record()
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(self.supervisor.probe(), name="probe")
            await self.supervisor.run()
            probing.cancel()

    async def stop(self) -> None:
        """End everything, and with it what others knew."""
        self._phase = "stopping"
        for program in (SCHEDULER, MANAGER, DESCHEDULER):
            withdraw_address(self.options.data, program)
        await self.supervisor.stop()
        remove_identities(self.options.identities)
        remove_record(self.options.data)

    async def _prepare(self) -> None:
        client = await connect(ClientOptions(kubeconfig=str(self.options.kubeconfig)))
        try:
            async with asyncio.timeout(_PREPARE_SECONDS):
                await prepare(client, with_webhooks="manager" in self.names)
                if self.options.authorization_mode.by_roles:
                    await give_identities(client, self.options, self.names)
        except TimeoutError as error:
            log = self.supervisor.log_path("apiserver")
            raise PreparationError(f"the API did not respond within {_PREPARE_SECONDS:g} s (log: {log})") from error
        finally:
            await client.close()

    def _write_record(self) -> None:
        record = ClusterRecord(
            command=self._command,
            pid=os.getpid(),
            version=koordinator.__version__,
            since=self._since,
            phase=self._phase,
            kubeconfig=str(self.options.kubeconfig),
            programs=[self._program_record(state) for state in self.supervisor.states],
        )
        try:
            write_record(self.options.data, record)
        except OSError as error:
            self._report(f"koord status does not know what runs: {error}")

    def _program_record(self, state: ProgramState) -> ProgramRecord:
        name = state.program.name
        urls = programs.served(self.options, name)
        if name == "apiserver" and self._api_url:
            urls = {"api": self._api_url}
        return program_record(state, self.supervisor.log_path(name), urls)
