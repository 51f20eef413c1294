"""The entry point of the workload controllers: flags, client, signals."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from koordinator.base import logs
from koordinator.base.build import VersionAction
from koordinator.base.listen_address import parse_listen_address
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.cluster.controller_selection import add_controllers_flag
from koordinator.cluster.controllers.program import Dependencies, WorkloadControllers
from koordinator.cluster.controllers.table import CONTROLLERS
from koordinator.kube.connect import ClientOptions, connected, user_agent
from koordinator.kube.connection import resolve

_PROGRAM: Final = "koord-controllers"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""

    def prepare() -> Run:
        options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
        names: Sequence[str] = options.controllers
        logs.configure(options.verbosity)
        greet(_PROGRAM, f"controllers {', '.join(names)}")
        return partial(_run, options, names)

    return run_program(_PROGRAM, prepare)


async def _run(options: argparse.Namespace, names: Sequence[str], process: Process) -> None:
    client_options = ClientOptions(
        kubeconfig=options.kubeconfig,
        qps=options.kube_api_qps,
        burst=options.kube_api_burst,
        user_agent=user_agent(_PROGRAM),
        lists_in_slices=True,
        metrics=process.metrics,
    )
    async with connected(client_options) as client:
        given = Dependencies(
            client=client,
            clock=process.clock,
            random=process.random,
            metrics=process.metrics,
            host=process.host,
            address=parse_listen_address("--bind-address", options.bind_address),
            authority=await asyncio.to_thread(_authority, options.kubeconfig),
        )
        made = {name: CONTROLLERS[name] for name in names}
        await WorkloadControllers(made, given).run(process.stop)


def _authority(kubeconfig: str) -> str:
    """What the client of this program itself trusts, as PEM; empty if it trusts what the machine does. Raises OSError
    and KubeconfigError."""
    tls = resolve(kubeconfig, environment=os.environ).tls
    if tls is None:
        return ""
    return tls.authority.decode() or (Path(tls.authority_file).read_text() if tls.authority_file else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m koordinator.cluster.controllers", description=__doc__)
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="the cluster to work on")
    add_controllers_flag(parser, CONTROLLERS)
    parser.add_argument(
        "--bind-address",
        default="0",
        metavar="HOST:PORT",
        help="where health and metrics are served; 0, the default, serves nothing",
    )
    parser.add_argument(
        "--kube-api-qps", type=float, default=300.0, metavar="N", help="requests a second (%(default)s)"
    )
    parser.add_argument("--kube-api-burst", type=int, default=600, metavar="N", help="requests at once (%(default)s)")
    parser.add_argument("-v", type=int, default=1, dest="verbosity", metavar="LEVEL", help="log level (default: 1)")
    parser.add_argument("--version", action=VersionAction)
    return parser
