"""``koord up``: a cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from koordinator.base.clock import SystemClock
from koordinator.base.errors import ConfigurationError
from koordinator.base.process import stop_on_signals
from koordinator.cli.data_folder import (
    MANAGER,
    SCHEDULER,
    default_data_folder,
    lock_data_folder,
    publish_address,
    withdraw_address,
)
from koordinator.cli.local_cluster import programs
from koordinator.cli.local_cluster.prepare import prepare
from koordinator.cli.local_cluster.programs import PROGRAMS, LocalClusterOptions
from koordinator.cli.supervisor import Supervisor
from koordinator.cluster.kubeconfig_file import check_kubeconfig, remove_kubeconfig
from koordinator.kube.connect import ClientOptions, connect

_EPILOG = """\
examples:
  koord up                                     10 nodes, state kept in ~/.local/state/koordinator
  koord up --nodes 1000 --data /tmp/big        a thousand nodes, state kept elsewhere
  koord up --only apiserver                    the Kubernetes API alone
  koord up --only nodes,manager,scheduler --kubeconfig ~/.kube/config
                                               simulated nodes and the programs on a cluster that is there already
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "up",
        help="start an embedded cluster with simulated nodes and the programs",
        description="Start an embedded Kubernetes API, simulated nodes, koord-manager and koord-scheduler; stop them "
        "with Ctrl-C.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        type=_program_names,
        default=PROGRAMS,
        metavar="LIST",
        help=f"start only these, separated by commas: {', '.join(PROGRAMS)} (default: all)",
    )
    parser.add_argument("--nodes", type=_positive, default=10, metavar="N", help="simulated nodes (default: 10)")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="sizes, zones, labels and usage of the nodes")
    parser.add_argument(
        "--port", type=_port, default=6443, help="port of the API on 127.0.0.1; 0 takes a free one (default: 6443)"
    )
    parser.add_argument(
        "--scheduler-port", type=_port, default=10251, help="port of the scheduler's /metrics and /healthz"
    )
    parser.add_argument(
        "--manager-port", type=_port, default=10261, help="port of the manager's /metrics (default: 10261)"
    )
    parser.add_argument(
        "--manager-health-port", type=_port, default=10262, help="port of the manager's /readyz (default: 10262)"
    )
    parser.add_argument(
        "--webhook-port", type=_port, default=9876, help="port of the manager's admission webhooks (default: 9876)"
    )
    parser.add_argument(
        "--scheduler-config", type=Path, metavar="FILE", help="KubeSchedulerConfiguration (default: load-aware profile)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=default_data_folder(),
        metavar="DIR",
        help="where state and logs are (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="written with access to the embedded API (default: DATA/kubeconfig); "
        "without apiserver among --only, read: the cluster to work on",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated usage (default: 0)")
    parser.add_argument("-v", type=int, default=1, dest="verbosity", metavar="LEVEL", help="log level of the programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start, wait for a signal, stop."""
    embedded = "apiserver" in options.only
    if not embedded and options.kubeconfig is None:
        raise ConfigurationError("--kubeconfig", None, "name the cluster to work on when --only leaves out apiserver")
    data: Path = options.data.expanduser().absolute()
    kubeconfig: Path = (options.kubeconfig or data / "kubeconfig").expanduser().absolute()
    if embedded:
        check_kubeconfig(kubeconfig)
    cluster = LocalClusterOptions(
        data=data,
        kubeconfig=kubeconfig,
        port=options.port,
        nodes=options.nodes,
        scheduler_port=options.scheduler_port,
        manager_port=options.manager_port,
        manager_health_port=options.manager_health_port,
        webhook_port=options.webhook_port,
        scenario=options.scenario and options.scenario.absolute(),
        scheduler_config=options.scheduler_config and options.scheduler_config.absolute(),
        seed=options.seed,
        verbosity=options.verbosity,
    )
    with lock_data_folder(data), asyncio.Runner() as runner:
        return runner.run(_serve(cluster, options.only))


async def _serve(cluster: LocalClusterOptions, only: tuple[str, ...]) -> int:
    stop = asyncio.Event()
    stop_on_signals(stop)
    supervisor = Supervisor(cluster.data / "logs", SystemClock(), _say)
    serving = asyncio.ensure_future(_start_and_watch(supervisor, cluster, only))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            _say("stopping")
            return 0
        await serving
        return 0
    finally:
        for program in (SCHEDULER, MANAGER):
            withdraw_address(cluster.data, program)
        await supervisor.stop()
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)


async def _start_and_watch(supervisor: Supervisor, cluster: LocalClusterOptions, only: tuple[str, ...]) -> None:
    if "apiserver" in only:
        _say(f"starting the API (state: {cluster.data})")
        # An old kubeconfig would name the port of an earlier run.
        remove_kubeconfig(cluster.kubeconfig)
        await supervisor.start(programs.api_server(cluster))
        client = await connect(ClientOptions(kubeconfig=str(cluster.kubeconfig)))
        try:
            await prepare(client, with_webhooks="manager" in only)
        finally:
            await client.close()
    if "nodes" in only:
        _say(f"starting {cluster.nodes} simulated nodes")
        await supervisor.start(programs.simulated_nodes(cluster))
    if "manager" in only:
        _say("starting koord-manager")
        await supervisor.start(programs.manager(cluster))
        publish_address(cluster.data, MANAGER, cluster.manager_port)
    if "scheduler" in only:
        _say("starting koord-scheduler")
        await supervisor.start(programs.scheduler(cluster))
        publish_address(cluster.data, SCHEDULER, cluster.scheduler_port)
    print(_welcome(cluster, only), flush=True)
    await supervisor.run()


def _welcome(cluster: LocalClusterOptions, only: tuple[str, ...]) -> str:
    lines = [
        "",
        f"The cluster is up ({', '.join(only)}). Talk to it with kubectl:",
        "",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        "  kubectl get nodes",
        '  kubectl run web --image=nginx --overrides=\'{"spec":{"priorityClassName":"koord-prod"}}\'',
        "  kubectl get pods -o wide",
        f"  koord explain pod web{'' if cluster.data == default_data_folder() else f' --data {cluster.data}'}",
        "",
        f"Logs are in {cluster.data / 'logs'}. Ctrl-C stops everything; the state is kept for the next start.",
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"koord up: {text}", file=sys.stderr, flush=True)


def _program_names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are {', '.join(PROGRAMS)}, separated by commas")
    return tuple(name for name in PROGRAMS if name in names)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 is needed")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is a number from 0 to 65535")
    return int(text)
