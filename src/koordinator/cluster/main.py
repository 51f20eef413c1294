"""``python -m koordinator.cluster``: the embedded Kubernetes API as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from koordinator.base.build import VersionAction
from koordinator.base.errors import KoordinatorError
from koordinator.base.garbage_collection import spare_imports
from koordinator.base.process import allow_many_open_files, stop_on_signals
from koordinator.cluster.access import aggregation
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.controller_selection import add_controllers_flag
from koordinator.cluster.http.access import read_token_file
from koordinator.cluster.kubeconfig_file import check_kubeconfig
from koordinator.cluster.server import EmbeddedApi, ServerOptions

_GARBAGE_COLLECTOR: Final = "garbage-collector-controller"
_DISRUPTION: Final = "disruption-controller"
CONTROLLERS: Final = (_GARBAGE_COLLECTOR, _DISRUPTION, aggregation.NAME)
"""Those of the server's own loops that a kube-controller-manager has, too, by its names for them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 1 with one line on stderr when that is not possible."""
    options = _parser().parse_args(arguments)
    level = logging.WARNING if options.verbosity < 1 else logging.INFO if options.verbosity < 4 else logging.DEBUG
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        uvloop.run(_serve(options))
    except KoordinatorError as error:
        sys.stderr.write(f"koordinator.cluster: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m koordinator.cluster", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that keeps the cluster; without it memory does")
    parser.add_argument(
        "--port", type=int, default=0, help="loopback port to serve on; 0 (the default) takes a free one"
    )
    parser.add_argument("--kubeconfig", type=Path, help="file to write access for kubectl and other clients to")
    parser.add_argument(
        "--workload-controllers",
        action="store_true",
        help="workload controllers run beside this server: nobody is warned that they are missing",
    )
    _add_authorization_flags(parser)
    add_controllers_flag(parser, CONTROLLERS)
    parser.add_argument("-v", type=int, default=1, dest="verbosity", metavar="LEVEL", help="log level (default: 1)")
    parser.add_argument("--version", action=VersionAction)
    return parser


def _add_authorization_flags(parser: argparse.ArgumentParser) -> None:
    """By the names of kube-apiserver's."""
    parser.add_argument(
        "--authorization-mode",
        type=AuthorizationMode.parsed,
        default=AuthorizationMode.ALWAYS_ALLOW,
        metavar="MODE",
        help="RBAC: who may do what is decided by roles; Node,RBAC: the same, and kubelets have the rights that their "
        "pods need; AlwaysAllow (the default): who has a credential may do all",
    )
    parser.add_argument(
        "--token-auth-file",
        type=Path,
        metavar="FILE",
        help='further users: lines of TOKEN,USER,UID[,"GROUP,GROUP..."]; read once',
    )


def _server_options(options: argparse.Namespace) -> ServerOptions:
    return ServerOptions(
        data=options.data,
        port=options.port,
        workload_controllers=options.workload_controllers,
        garbage_collector=_GARBAGE_COLLECTOR in options.controllers,
        disruption_controller=_DISRUPTION in options.controllers,
        role_aggregation=aggregation.NAME in options.controllers,
        authorization_mode=options.authorization_mode,
        users=read_token_file(options.token_auth_file) if options.token_auth_file is not None else {},
        # Who leaves both to others has others for the rest, too.
        missing_controller_warnings=bool(options.controllers),
    )


async def _serve(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    stop_on_signals(stopped)
    allow_many_open_files()
    if options.kubeconfig is not None:
        check_kubeconfig(options.kubeconfig)  # before the server is up and would have to end for it
    async with EmbeddedApi(_server_options(options)) as api:
        if options.kubeconfig is not None:
            api.write_kubeconfig(options.kubeconfig)
        spare_imports()
        sys.stderr.write(f"embedded Kubernetes API ready on {api.url}\n")
        sys.stderr.flush()
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(api.failed(), name="watchdog")
            await stopped.wait()
            watchdog.cancel()
