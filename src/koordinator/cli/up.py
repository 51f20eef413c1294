"""``koord up``: a cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from koordinator.api.kinds import PODS
from koordinator.base.clock import SystemClock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.spelling import did_you_mean
from koordinator.cli.arguments import whole_number
from koordinator.cli.cluster_record import read_record
from koordinator.cli.data_folder import default_data_folder, lock_data_folder, log_folder
from koordinator.cli.detachment import in_background
from koordinator.cli.interruption import Interrupted, until_interrupted
from koordinator.cli.local_cluster.programs import PROGRAMS, LocalClusterOptions, with_free_ports
from koordinator.cli.local_cluster.running import LocalCluster, clear_the_way
from koordinator.cli.own_command import data_option, own_command
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.data_folder import claim_folder
from koordinator.cluster.kubeconfig_file import check_kubeconfig, remove_kubeconfig
from koordinator.kube.connect import ClientOptions, connect

# What ``koord up`` prints once the cluster is up: commands that work as they are printed.


_WEB = 'kubectl run web --image=nginx --overrides=\'{"spec":{"priorityClassName":"koord-prod"}}\''


def welcome(
    options: LocalClusterOptions,
    names: Collection[str],
    *,
    koord: str,
    has_kubectl: bool,
    taken_pod_names: Collection[str],
    unhealthy: Sequence[str],
    detached: bool = False,
) -> str:
    """``names``: the programs that were started. ``koord``: the words that start this program."""
    health = f", but not healthy yet: {', '.join(unhealthy)}" if unhealthy else ""
    lines = ["", f"The cluster is up ({', '.join(names)}){health}.", ""]
    lines += [f"  {command}" for command in _commands(options, names, koord, taken_pod_names)]
    lines.append("")
    if not has_kubectl:
        lines.append("kubectl is not on the PATH here; https://kubernetes.io/docs/tasks/tools says how to get it.")
    if hint := path_hint(koord):
        lines.append(hint)
    logs = shlex.quote(str(log_folder(options.data)))
    kept = "; the state is kept for the next start" if "apiserver" in names else ""
    stop = f"{koord} down{data_option(options.data)}" if detached else "Ctrl-C"
    lines.append(f"Logs are in {logs}. {stop} stops everything{kept}.")
    return "\n".join(lines)


def path_hint(koord: str) -> str:
    """How to put ``koord`` on the PATH, where it is not; else nothing."""
    program = shlex.split(koord)
    if len(program) != 1 or os.sep not in program[0]:
        return ""
    folder = shlex.quote(str(Path(program[0]).absolute().parent))
    return f"To have koord on the PATH: export PATH={folder}:$PATH"


def _commands(
    options: LocalClusterOptions, names: Collection[str], koord: str, taken_pod_names: Collection[str]
) -> list[str]:
    commands = [f"export KUBECONFIG={shlex.quote(str(options.kubeconfig))}"]
    data = data_option(options.data)
    if "nodes" in names:
        commands.append("kubectl get nodes")
    if {"apiserver", "nodes", "scheduler"} <= set(names):
        # On a cluster that was there before, neither its priority classes nor its pods are ours to assume.
        if "web" not in taken_pod_names:
            commands.append(_WEB)
        commands += ["kubectl get pods -o wide", f"{koord} explain pod web{data}"]
    elif "apiserver" in names:
        commands.append("kubectl get namespaces")
    commands.append(f"{koord} status{data}")
    if "page" in names:
        commands.append(f"{koord} page{data}")
    return commands


_DESCRIPTION = """\
Start an embedded Kubernetes API server, simulated nodes, koord-manager, koord-scheduler, koord-descheduler and workload
controllers, and supervise them until Ctrl-C; with --detach in the background, until `koord down`. koord-descheduler
carries out PodMigrationJobs and DrainNodes, and evicts no pod by itself. Programs that exit are restarted. `koord
status`, in another terminal, shows whether they are healthy, and `koord logs PROGRAM` what they write.

exit status: 0 after Ctrl-C or SIGTERM; 1 when the cluster cannot be started; 130 or 143 when it was interrupted before
it was up, or killed by a second signal.
"""
_EPILOG = """\
examples:
  koord up                                     10 nodes, state kept in ~/.local/state/koordinator
  koord up --nodes 1000 --data /tmp/big        a thousand nodes, state kept elsewhere
  koord up --detach                            in the background; then koord status, koord logs PROGRAM, koord down
  koord up --gpu-nodes 2                       and two nodes with GPUs, for pods that request some of them
  koord up --only apiserver                    the Kubernetes API alone
  koord up --only nodes,manager,scheduler --kubeconfig ~/.kube/config
                                               simulated nodes and the programs for an existing cluster
  koord up --only apiserver,nodes,manager,scheduler
                                               without workload controllers, for a kube-controller-manager of your own
  koord up --data /tmp/second --free-ports     a second cluster beside the first
  koord up --port-base 7000                    the API on port 7000, everything else on 7001 to 7007
  koord up --authorization-mode RBAC           roles decide who may do what; try it with kubectl --as
"""


_PORTS: Final = {
    "port": (6443, "the API on 127.0.0.1"),
    "scheduler-port": (10251, "the scheduler's /metrics and /healthz"),
    "descheduler-port": (10264, "the descheduler's /metrics and /healthz"),
    "manager-port": (10261, "the manager's /metrics"),
    "manager-health-port": (10262, "the manager's /readyz"),
    "webhook-port": (9876, "the manager's admission webhooks"),
    "controllers-port": (10263, "the workload controllers' /metrics and /readyz"),
    "page-port": (6480, "the page that a browser shows"),
}
"""Flag -> the usual port, and what is served there."""
_LAST_PORT: Final = 65535


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "up",
        help="start an embedded cluster with simulated nodes and the programs",
        description=_DESCRIPTION,
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
    parser.add_argument("--nodes", type=whole_number(1), default=10, metavar="N", help="simulated nodes (default: 10)")
    parser.add_argument(
        "--gpu-nodes",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="simulated nodes with 8 GPUs each, beside the others (default: 0)",
    )
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="sizes, zones, labels and usage of the nodes")
    parser.add_argument(
        "--koordlets",
        type=whole_number(0),
        metavar="N",
        help="nodes that run koordlet itself; a model reports for the others (default: 10)",
    )
    parser.add_argument("-d", "--detach", action="store_true", help="go on in the background, until koord down")
    _add_ports(parser)
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
    parser.add_argument(
        "--authorization-mode",
        type=AuthorizationMode.parsed,
        default=AuthorizationMode.ALWAYS_ALLOW,
        metavar="MODE",
        help=f"who may do what: {', '.join(AuthorizationMode)} (default: %(default)s); with RBAC, roles decide, and "
        "each program has the rights that it has on real clusters",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated usage (default: 0)")
    parser.add_argument("-v", type=int, default=1, dest="verbosity", metavar="LEVEL", help="log level of the programs")
    parser.set_defaults(run=run)


def _add_ports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ports (0 is any free one; a port of its own counts before those for all)")
    every = group.add_mutually_exclusive_group()
    every.add_argument(
        "--port-base",
        type=whole_number(0, _LAST_PORT - len(_PORTS) + 1),
        metavar="PORT",
        help=f"of the API; the {len(_PORTS) - 1} others follow in this order",
    )
    every.add_argument("--free-ports", action="store_true", help="a free one for each, for a cluster beside another")
    for name, (port, what) in _PORTS.items():
        group.add_argument(
            f"--{name}", type=whole_number(0, _LAST_PORT), metavar="PORT", help=f"of {what} (default: {port})"
        )


def run(options: argparse.Namespace) -> int:
    """Start, wait for a signal, stop."""
    embedded = "apiserver" in options.only
    if not embedded and options.kubeconfig is None:
        raise ConfigurationError("--kubeconfig", None, "name the cluster to work on when --only leaves out apiserver")
    if not embedded and options.authorization_mode.by_roles:
        why = "the cluster that --kubeconfig names decides that itself: leave it out, or add apiserver to --only"
        raise ConfigurationError("--authorization-mode", str(options.authorization_mode), why)
    data: Path = options.data.expanduser().absolute()
    kubeconfig: Path = (options.kubeconfig or data / "kubeconfig").expanduser().absolute()
    if embedded:
        check_kubeconfig(kubeconfig)
    _check_files(options)
    ports = ports_of(options)
    cluster = LocalClusterOptions(
        data=data,
        kubeconfig=kubeconfig,
        port=ports["port"],
        nodes=options.nodes,
        gpu_nodes=options.gpu_nodes,
        koordlets=options.koordlets,
        scheduler_port=ports["scheduler-port"],
        descheduler_port=ports["descheduler-port"],
        manager_port=ports["manager-port"],
        manager_health_port=ports["manager-health-port"],
        webhook_port=ports["webhook-port"],
        controllers_port=ports["controllers-port"],
        page_port=ports["page-port"],
        workload_controllers="controllers" in options.only,
        scenario=options.scenario and options.scenario.absolute(),
        scheduler_config=options.scheduler_config and options.scheduler_config.absolute(),
        seed=options.seed,
        verbosity=options.verbosity,
        authorization_mode=options.authorization_mode,
    )
    if not options.detach:
        return _hold_and_serve(cluster, options)
    stop = f"{own_command()} down{data_option(data)}"
    log = log_folder(data) / "up.log"
    claim_folder(data)
    return in_background(log, lambda: _hold_and_serve(cluster, options), lambda pid: _is_up(data, pid), stop)


def _hold_and_serve(cluster: LocalClusterOptions, options: argparse.Namespace) -> int:
    with lock_data_folder(cluster.data, "koord up"):
        clear_the_way(cluster, options.only, _say)
        with asyncio.Runner() as runner:
            return runner.run(_serve(with_free_ports(cluster), options.only, detached=options.detach))


def _is_up(data: Path, pid: int) -> bool:
    record = read_record(data)
    return record is not None and (record.pid, record.phase) == (pid, "up")


def ports_of(options: argparse.Namespace) -> dict[str, int]:
    """By the flag; 0 for a free one."""
    given = {flag: getattr(options, flag.replace("-", "_")) for flag in _PORTS}
    base = 0 if options.free_ports else options.port_base
    if base is None:
        usual = {flag: port for flag, (port, _) in _PORTS.items()}
    else:
        usual = {flag: base and base + index for index, flag in enumerate(_PORTS)}
    return {flag: usual[flag] if port is None else port for flag, port in given.items()}


def _check_files(options: argparse.Namespace) -> None:
    """An error of a file is said at once, with its line, and not by a program that ends. Raises ConfigurationError."""
    if options.scheduler_config is not None:
        # Loaded with the file alone: the scheduler takes half a second.
        from koordinator.cli.what_if_input import configuration_of_file

        configuration_of_file(options.scheduler_config)


async def _serve(options: LocalClusterOptions, only: tuple[str, ...], *, detached: bool) -> int:
    """0 when a signal ended it once it was up; as shells have it when that was before."""
    cluster = LocalCluster(options, only, SystemClock(), _say, "koord up")
    was_up = False

    def stopping() -> None:
        nonlocal was_up
        was_up = cluster.is_up
        _say("stopping; Ctrl-C once more kills everything at once")

    try:
        await until_interrupted(
            _start_and_watch(cluster, detached=detached), kill=cluster.supervisor.kill, on_interrupt=stopping
        )
    except Interrupted as interrupted:
        return 0 if was_up else interrupted.exit_status
    return 0


async def _start_and_watch(cluster: LocalCluster, *, detached: bool) -> None:
    options = cluster.options
    texts = {
        "apiserver": f"starting the API (state: {options.data})",
        "nodes": f"starting {options.nodes + options.gpu_nodes} simulated nodes",
        "manager": "starting koord-manager",
        "scheduler": "starting koord-scheduler",
        "descheduler": "starting koord-descheduler",
        "controllers": "starting the workload controllers",
        "page": "starting the page for browsers",
    }
    try:
        if "apiserver" in cluster.names:
            # An old kubeconfig would name the port of an earlier run.
            remove_kubeconfig(options.kubeconfig)
        for name in cluster.names:
            _say(texts[name])
            await cluster.start(name)
        print(await _welcome(cluster, detached=detached), flush=True)
        await cluster.watch()
    finally:
        await cluster.stop()


async def _welcome(cluster: LocalCluster, *, detached: bool) -> str:
    taken = {"web"} if await _has_pod(cluster, "web") else set()
    return welcome(
        cluster.options,
        cluster.names,
        koord=own_command(),
        has_kubectl=shutil.which("kubectl") is not None,
        taken_pod_names=taken,
        unhealthy=cluster.supervisor.unhealthy,
        detached=detached,
    )


async def _has_pod(cluster: LocalCluster, name: str) -> bool:
    """Whether namespace default has it; False if that cannot be read."""
    client = await connect(ClientOptions(kubeconfig=str(cluster.options.kubeconfig), timeout_seconds=5.0))
    try:
        await client.get(PODS, name, "default")
    except KoordinatorError:
        return False
    finally:
        await client.close()
    return True


def _say(text: str) -> None:
    print(f"koord up: {text}", file=sys.stderr, flush=True)


def _program_names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown or not names:
        hint = did_you_mean(unknown[0], PROGRAMS) if unknown else ""
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are {', '.join(PROGRAMS)}, separated by commas{hint}")
    return tuple(name for name in PROGRAMS if name in names)
