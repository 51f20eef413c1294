"""The program koordlet: flags and environment in, a running agent out."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

import uvloop

import koordinator
from koordinator.api.node import Node
from koordinator.base import logs
from koordinator.base.clock import SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.process import exit_status, stop_on_signals
from koordinator.koordlet.agent import Agent, Dependencies, KubeletConnection
from koordinator.koordlet.command_line import Options, parse_options
from koordinator.kube.connect import ClientOptions, connect, user_agent
from koordinator.node.kubelet import kubelet_url

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koordlet"


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    variables = os.environ if environment is None else environment
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments, variables)
        logs.configure(options.verbosity)
        logger.info("%s %s (process %d) on %s", _PROGRAM, koordinator.__version__, os.getpid(), options.node_name)
        for remark in options.remarks:
            logger.warning("%s", remark)
        uvloop.run(_run(options))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(_PROGRAM, error)
    return 0


async def _run(options: Options) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    metrics = Metrics()
    metrics.add_process_metrics()
    client = await connect(
        ClientOptions(
            kubeconfig=options.kubeconfig,
            qps=options.qps,
            burst=options.burst,
            user_agent=user_agent(_PROGRAM),
            metrics=metrics,
        )
    )
    given = Dependencies(client, partial(_connect_kubelet, options), SystemClock(), Random(), metrics)
    try:
        await Agent(options, given).run(stop)
    finally:
        await client.close()


async def _connect_kubelet(options: Options, node: Node) -> KubeletConnection:
    port = options.kubelet.read_only_port if options.kubelet.insecure else None
    client = await connect(
        ClientOptions(
            kubeconfig=options.kubeconfig,
            master=kubelet_url(node, options.kubelet.address_type, port),
            insecure=True,
            user_agent=user_agent(_PROGRAM),
            timeout_seconds=options.kubelet.sync_timeout,
            max_connections=2,
        )
    )
    return KubeletConnection(partial(client.raw, "GET"), client.close)


if __name__ == "__main__":
    sys.exit(main())
