"""The entry point of koord-manager: parses flags and environment, and runs the manager."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from koordinator.api.installation import MANAGER_LEASE
from koordinator.base import logs
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.kube.connect import ClientOptions, connected, user_agent
from koordinator.kube.leader_election import LeaderElectionConfig, make_identity
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import lease_watchdog
from koordinator.kube.secure_serving import SecureServing
from koordinator.manager.command_line import parse_options
from koordinator.manager.node_policy.installed_extensions import installed_extensions
from koordinator.manager.options import Options
from koordinator.manager.program import IS_LEADER_METRIC, Dependencies, Manager
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koord-manager"


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""

    def prepare() -> Run:
        variables = os.environ if environment is None else environment
        options = parse_options(sys.argv[1:] if arguments is None else arguments, variables)
        logs.configure(options.verbosity)
        namespace = options.leader_election_namespace
        lease = f"lease {namespace}/{MANAGER_LEASE}" if options.leader_election else "no leader election"
        greet(_PROGRAM, lease, options.remarks)
        return partial(_run, options, _extensions())

    return run_program(_PROGRAM, prepare)


async def _run(options: Options, extensions: tuple[NodeSLOExtension, ...], process: Process) -> None:
    client_options = ClientOptions(
        kubeconfig=options.kubeconfig,
        qps=options.qps,
        burst=options.burst,
        user_agent=user_agent(MANAGER_LEASE),
        lists_in_slices=True,
        metrics=process.metrics,
    )
    async with connected(client_options) as client:
        options.features.export(process.metrics)
        leadership = Leadership(
            client,
            _election(options, process.host),
            clock=process.clock,
            random=process.random,
            metrics=process.metrics,
            watchdog=lease_watchdog(),
            again=True,
            is_leader_metric=IS_LEADER_METRIC,
        )
        given = Dependencies(
            client=client,
            leader_client=leadership.guard(client),
            clock=process.clock,
            random=process.random,
            metrics=process.metrics,
            instance=f"{_PROGRAM}-{process.host}",
            extensions=extensions,
            secure=SecureServing(options.secure, client_options, process),
        )
        await Manager(options, leadership, given).run(process.stop)


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
