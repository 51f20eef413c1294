"""The program koord-manager: flags and environment in, a running manager out."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import uvloop

import koordinator
from koordinator.api.installation import MANAGER_LEASE
from koordinator.base import logs
from koordinator.base.clock import SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.process import allow_many_open_files, exit_status, stop_on_signals
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect, user_agent
from koordinator.kube.leader_election import LeaderElectionConfig, make_identity
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.manager.command_line import parse_options
from koordinator.manager.leadership import Leadership
from koordinator.manager.node_policy.installed_extensions import installed_extensions
from koordinator.manager.options import Options
from koordinator.manager.program import Manager, Surroundings
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koord-manager"


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    variables = os.environ if environment is None else environment
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments, variables)
        logs.configure(options.verbosity)
        _greet(options)
        extensions = _extensions()
        allow_many_open_files()
        uvloop.run(_run(options, extensions))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(_PROGRAM, error)
    return 0


async def _run(options: Options, extensions: tuple[NodeSLOExtension, ...]) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    metrics = Metrics()
    client = await connect(
        ClientOptions(
            kubeconfig=options.kubeconfig,
            qps=options.qps,
            burst=options.burst,
            user_agent=user_agent(MANAGER_LEASE),
            lists_in_slices=True,
            metrics=metrics,
        )
    )
    try:
        metrics.add_process_metrics()
        options.features.export(metrics)
        await _make_manager(options, client, metrics, extensions).run(stop)
    finally:
        await client.close()


def _make_manager(
    options: Options, client: KubeClient, metrics: Metrics, extensions: tuple[NodeSLOExtension, ...]
) -> Manager:
    host, clock, random = socket.gethostname(), SystemClock(), Random()
    leadership = Leadership(
        client, _election(options, host), clock=clock, random=random, metrics=metrics, watchdog=lease_watchdog()
    )
    around = Surroundings(
        client=client,
        # A leader whose event loop was held up must not send what it meant to: another one may lead meanwhile.
        leader_client=client.fenced(lambda: leadership.is_leading),
        clock=clock,
        random=random,
        metrics=metrics,
        instance=f"{_PROGRAM}-{host}",
        extensions=extensions,
    )
    return Manager(options, leadership, around)


def _election(options: Options, host: str) -> LeaderElectionConfig | None:
    if not options.leader_election:
        return None
    return LeaderElectionConfig(
        name=MANAGER_LEASE,
        namespace=options.leader_election_namespace,
        identity=make_identity(host),
        release_on_cancel=True,
    )


def _extensions() -> tuple[NodeSLOExtension, ...]:
    extensions = installed_extensions()
    if extensions:
        logger.info("extensions of NodeSLOs: %s", ", ".join(extension.key for extension in extensions))
    return extensions


def _greet(options: Options) -> None:
    """One line that says what this is, and what of the configuration will not have the expected effect."""
    namespace = options.leader_election_namespace
    logger.info(
        "%s %s (process %d): %s",
        _PROGRAM,
        koordinator.__version__,
        os.getpid(),
        f"lease {namespace}/{MANAGER_LEASE}" if options.leader_election else "no leader election",
    )
    for remark in options.remarks:
        logger.warning("%s", remark)
