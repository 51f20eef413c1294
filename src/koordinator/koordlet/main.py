"""The program koordlet: flags and environment in, a running agent out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from koordinator.api.node import Node
from koordinator.base import logs
from koordinator.base.garbage_collection import spare_imports
from koordinator.base.process import set_nice
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.agent_context import Dependencies
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.enforce.plugins import Plugins, installed_plugins
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.kubelet_connection import KubeletConnection
from koordinator.kube.connect import ClientOptions, connect, connected, user_agent
from koordinator.kube.secure_serving import SecureServing
from koordinator.node import netlink_traffic_control
from koordinator.node.connection_delays import read_delays
from koordinator.node.core_scheduling import kernel_prctl
from koordinator.node.kernel_writer import MachineFiles
from koordinator.node.kubelet import kubelet_url
from koordinator.node.writer_thread import WriterThread

_PROGRAM: Final = "koordlet"


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""

    def prepare() -> Run:
        variables = os.environ if environment is None else environment
        options = parse_options(sys.argv[1:] if arguments is None else arguments, variables)
        logs.configure(options.verbosity)
        # A container that starts waits for koordlet, and so for a collection.
        spare_imports()
        greet(_PROGRAM, f"node {options.node_name}", (*options.remarks, *set_nice(options.nice)))
        return partial(_run, options)

    return run_program(_PROGRAM, prepare)


async def _run(options: Options, process: Process) -> None:
    client_options = ClientOptions(
        kubeconfig=options.kubeconfig,
        qps=options.qps,
        burst=options.burst,
        user_agent=user_agent(_PROGRAM),
        metrics=process.metrics,
    )
    async with connected(client_options) as client:
        given = Dependencies(
            client,
            partial(_connect_kubelet, options),
            process.clock,
            process.random,
            process.metrics,
            kernel_files=MachineFiles() if options.cleanup else WriterThread(MachineFiles(), process.clock),
            prctl=kernel_prctl,
            traffic_control=netlink_traffic_control.KERNEL,
            read_delays=read_delays,
            set_verbosity=logs.configure,
            # What is taken back is taken back of everybody.
            secure=SecureServing(options.secure, client_options, process),
            plugins=Plugins() if options.cleanup else installed_plugins(backend=options.backend),
        )
        agent = Agent(options, given)
        if options.cleanup:
            done = await agent.clean_up()
            print(f"koordlet enforces nothing any more: {done} values are as kubelet has them")  # noqa: T201
        else:
            await agent.run(process.stop)


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
