"""The programs of a local cluster: how each is started, and how it shows that it is ready."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Final

from koordinator.api.kinds import NODES
from koordinator.base.errors import KoordinatorError
from koordinator.cli.child_process import Program
from koordinator.cli.ports import ADDRESS, PortUse, free_ports
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.nodes.node_objects import FLEET_ANNOTATION
from koordinator.kube.connect import ClientOptions, connect
from koordinator.manager import features

_REQUESTS_PER_SECOND: Final = 500
"""Of the manager: a local cluster has no other clients, and a thousand nodes should not take a minute."""
_MANAGER_GATES: Final = (
    features.RECOMMENDER,
    features.CONFIG_MAP_VALIDATING_WEBHOOK,
    features.STRICT_CONFIG_MAP_VALIDATION,
    features.NODE_VALIDATING_WEBHOOK,
    features.POD_TEMPLATE_VALIDATING_WEBHOOK,
)
"""Off by default: what can be tried here, and what tells of mistakes where they are made."""
_DRAINS: Final = "--feature-gates=NodeDrain=true"
PROGRAMS = ("apiserver", "nodes", "manager", "scheduler", "descheduler", "controllers", "page")
"""In the order of their start: pods that controllers create pass the webhooks of the manager."""
ACCOUNTS: Final = {
    "nodes": "koord-simulated-nodes",
    "manager": "koord-manager",
    "scheduler": "koord-scheduler",
    "descheduler": "koord-descheduler",
    "controllers": "koord-workload-controllers",
}
"""Program -> the ServiceAccount that it is where roles decide."""


@dataclass(frozen=True, slots=True)
class LocalClusterOptions:
    """Where a local cluster lives and what it is made of."""

    data: Path
    kubeconfig: Path
    port: int
    nodes: int
    scheduler_port: int
    manager_port: int
    manager_health_port: int
    webhook_port: int
    scenario: Path | None = None
    scheduler_config: Path | None = None
    descheduler_config: Path | None = None
    """Also says on which port koord-descheduler serves: ``descheduler_port``. None: it carries out PodMigrationJobs and
    DrainNodes, and evicts no pod by itself."""
    descheduler_port: int = 0
    controllers_port: int = 0
    page_port: int = 0
    workload_controllers: bool = False
    """Whether they run beside the API server."""
    seed: int = 0
    pace: str = ""
    """The namespace and the name of the ConfigMap that says how far simulated time may go on; empty: as the scenario
    says."""
    leader_election: bool = True
    """Of the manager; that of the others is in their configurations."""
    gpu_nodes: int = 0
    """Simulated nodes with GPUs, beside the others."""
    koordlets: int | None = None
    """Simulated nodes that run koordlet itself; None: as many as the program of the nodes has by default."""
    verbosity: int = 1
    authorization_mode: AuthorizationMode = AuthorizationMode.ALWAYS_ALLOW

    @property
    def identities(self) -> Path:
        """The folder with the kubeconfigs of the programs where roles decide."""
        return self.data / "identities"

    def kubeconfig_of(self, name: str) -> Path:
        """That of a program: its own where roles decide, or else the administrator's."""
        own = self.authorization_mode.by_roles
        return self.identities / f"{name}.kubeconfig" if own else self.kubeconfig


def port_uses(options: LocalClusterOptions, names: Iterable[str]) -> list[PortUse]:
    """The ports that these programs serve on, each with the option of ``koord up`` that changes it."""
    uses = {
        "apiserver": [PortUse(options.port, "the Kubernetes API", "--port")],
        "controllers": [
            PortUse(options.controllers_port, "the workload controllers' metrics and health", "--controllers-port")
        ],
        "manager": [
            PortUse(options.manager_port, "koord-manager's metrics", "--manager-port"),
            PortUse(options.manager_health_port, "koord-manager's health", "--manager-health-port"),
            PortUse(options.webhook_port, "koord-manager's webhooks", "--webhook-port"),
        ],
        "scheduler": [PortUse(options.scheduler_port, "koord-scheduler's metrics and health", "--scheduler-port")],
        "descheduler": [
            PortUse(options.descheduler_port, "koord-descheduler's metrics and health", "--descheduler-port")
        ],
    }
    uses["page"] = [PortUse(options.page_port, "the page that a browser shows", "--page-port")]
    return [use for name in names for use in uses.get(name, ())]


def with_free_ports(options: LocalClusterOptions) -> LocalClusterOptions:
    """A free port for each program that was given 0; the API server finds one itself."""
    free = iter(free_ports(7))
    return replace(
        options,
        scheduler_port=options.scheduler_port or next(free),
        manager_port=options.manager_port or next(free),
        manager_health_port=options.manager_health_port or next(free),
        webhook_port=options.webhook_port or next(free),
        controllers_port=options.controllers_port or next(free),
        descheduler_port=options.descheduler_port or next(free),
        page_port=options.page_port or next(free),
    )


def served(options: LocalClusterOptions, name: str) -> dict[str, str]:
    """What a program other than the API server serves -> URL, without the path."""
    if name == "scheduler":
        address = f"http://{ADDRESS}:{options.scheduler_port}"
        return {"health": address, "metrics": address}
    if name == "descheduler":
        address = f"http://{ADDRESS}:{options.descheduler_port}"
        return {"health": address, "metrics": address}
    if name == "controllers":
        address = f"http://{ADDRESS}:{options.controllers_port}"
        return {"health": address, "metrics": address}
    if name == "page":
        address = f"http://{ADDRESS}:{options.page_port}"
        return {"health": address, "metrics": address, "page": address}
    if name == "manager":
        return {
            "health": f"http://{ADDRESS}:{options.manager_health_port}",
            "metrics": f"http://{ADDRESS}:{options.manager_port}",
            "webhooks": f"https://{ADDRESS}:{options.webhook_port}",
        }
    return {}


def api_server(options: LocalClusterOptions) -> Program:
    """The embedded API: state in the data folder, kubeconfig written when it serves."""
    arguments = [
        *_python("koordinator.cluster"),
        f"--data={options.data / 'api'}",
        f"--port={options.port}",
        f"--kubeconfig={options.kubeconfig}",
        f"--authorization-mode={options.authorization_mode}",
        f"-v={options.verbosity}",
    ]
    if options.workload_controllers:
        arguments.append("--workload-controllers")
    return Program("apiserver", arguments, _api_responds(options.kubeconfig))


def simulated_nodes(options: LocalClusterOptions) -> Program:
    """The simulated nodes; ready when all of them are registered."""
    arguments = [
        *_python("koordinator.cluster.nodes"),
        f"--kubeconfig={options.kubeconfig_of('nodes')}",
        f"--nodes={options.nodes}",
        f"--seed={options.seed}",
        f"-v={options.verbosity}",
    ]
    if options.pace:
        arguments.append(f"--pace={options.pace}")
    if options.gpu_nodes:
        arguments.append(f"--gpu-nodes={options.gpu_nodes}")
    if options.koordlets is not None:
        arguments.append(f"--koordlets={options.koordlets}")
    if options.scenario is not None:
        arguments.append(f"--scenario={options.scenario}")
    return Program("nodes", arguments, _nodes_are_there(options.kubeconfig, options.nodes + options.gpu_nodes))


def controllers(options: LocalClusterOptions) -> Program:
    """The workload controllers; ready when they know what is there."""
    arguments = [
        *_python("koordinator.cluster.controllers"),
        f"--kubeconfig={options.kubeconfig_of('controllers')}",
        f"--bind-address={ADDRESS}:{options.controllers_port}",
        f"-v={options.verbosity}",
    ]
    return Program("controllers", arguments, _http_ok(options.controllers_port, "/readyz"))


def scheduler(options: LocalClusterOptions) -> Program:
    """koord-scheduler; ready when it leads and its health check succeeds."""
    configuration = options.scheduler_config or shipped_file("scheduler.yaml")
    arguments = [
        *_python("koordinator.scheduler"),
        f"--config={configuration}",
        f"--kubeconfig={options.kubeconfig_of('scheduler')}",
        f"--port={options.scheduler_port}",
        f"-v={options.verbosity}",
        "--enable-network-topology-manager",
    ]
    return Program("scheduler", arguments, _http_ok(options.scheduler_port, "/healthz"))


def manager(options: LocalClusterOptions) -> Program:
    """koord-manager; ready when its webhooks are."""
    arguments = [
        *_python("koordinator.manager"),
        f"--kubeconfig={options.kubeconfig_of('manager')}",
        f"--metrics-addr=127.0.0.1:{options.manager_port}",
        f"--health-probe-addr=127.0.0.1:{options.manager_health_port}",
        "--enable-pprof=false",
        f"--audit-directory={options.data / 'audit'}",
        f"--enable-leader-election={str(options.leader_election).lower()}",
        # So that it can be tried here; usage is sampled more often than on a real cluster, to see something soon.
        f"--feature-gates={','.join(f'{gate}=true' for gate in _MANAGER_GATES)}",
        "--recommender-interval=10s",
        f"--rest-config-qps={_REQUESTS_PER_SECOND}",
        f"--rest-config-burst={2 * _REQUESTS_PER_SECOND}",
        f"--v={options.verbosity}",
    ]
    environment = {
        **os.environ,
        "WEBHOOK_HOST": "127.0.0.1",
        "WEBHOOK_PORT": str(options.webhook_port),
        "WEBHOOK_CERT_DIR": str(options.data / "webhook-certificates"),
    }
    return Program("manager", arguments, _http_ok(options.manager_health_port, "/readyz"), environment)


def _own_descheduler_configuration(options: LocalClusterOptions) -> Path:
    """Evicts no pod by itself. koord-scheduler places the pods of default-scheduler, too, so that these may be moved to
    a Reservation."""
    address = f"{ADDRESS}:{options.descheduler_port}"
    migrating = {"enabled": [{"name": "MigrationController"}]}
    arguments = {"schedulerNames": ["koord-scheduler", "default-scheduler"]}
    profile = {
        "name": "koord-descheduler",
        "plugins": {"evict": migrating, "filter": migrating},
        "pluginConfig": [{"name": "MigrationController", "args": arguments}],
    }
    path = options.data / "descheduler.json"
    document = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", "profiles": [profile]}
    path.write_text(json.dumps({**document, "healthzBindAddress": address, "metricsBindAddress": address}))
    return path


def descheduler(options: LocalClusterOptions) -> Program:
    """koord-descheduler; ready when its informers have synced."""
    given = options.descheduler_config
    arguments = [
        *_python("koordinator.descheduler"),
        *([f"--config={given}"] if given else [f"--config={_own_descheduler_configuration(options)}", _DRAINS]),
        f"--kubeconfig={options.kubeconfig_of('descheduler')}",
        f"-v={options.verbosity}",
    ]
    return Program("descheduler", arguments, _http_ok(options.descheduler_port, "/readyz"))


def page(options: LocalClusterOptions) -> Program:
    """What a browser shows, with the administrator's rights, for whoever may read the data folder."""
    arguments = [
        *_python("koordinator.cli.main"),
        "page",
        "--no-browser",
        f"--page-port={options.page_port}",
        f"--state={options.data}",
        f"--kubeconfig={options.kubeconfig}",
        *(f"--{name}={served(options, name)['metrics']}" for name in ("scheduler", "manager", "descheduler")),
    ]
    return Program("page", arguments, _http_ok(options.page_port, "/readyz"))


def shipped_file(name: str) -> Path:
    """A file of this package as a path that a child process can open."""
    with resources.as_file(resources.files(__package__) / name) as path:
        return path


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _api_responds(kubeconfig: Path) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        try:
            client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
        except KoordinatorError:
            return False
        try:
            await client.raw("GET", "/readyz")
        except KoordinatorError:
            return False
        finally:
            await client.close()
        return True

    return ready


def _nodes_are_there(kubeconfig: Path, count: int) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
        try:
            page = await client.list(NODES, limit=1)
            if len(page.items) + (page.remaining or 0) < count:
                return False
            # On a cluster that was there before, other nodes count among these.
            nodes = await client.list(NODES)
        except KoordinatorError:
            return False
        finally:
            await client.close()
        return sum(1 for node in nodes.items if FLEET_ANNOTATION in node.metadata.annotations) >= count

    return ready


def _http_ok(port: int, path: str) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        try:
            writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            status_line = await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()
        return b" 200 " in status_line

    return ready
