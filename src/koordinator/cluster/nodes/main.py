"""The program of the simulated nodes: flags, client, signals."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import uvloop

from koordinator.base.build import VersionAction
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.process import stop_on_signals
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import Scenario, default_scenario, load_scenario, scale, with_gpu_nodes
from koordinator.cluster.nodes.scenario_checks import MAX_NODES, check_scenario
from koordinator.kube.connect import ClientOptions, connect, user_agent

logger = logging.getLogger(__name__)

_KOORDLETS: Final = 10
"""As many as `koord up` has nodes by default."""


def _is_of_simulation(record: logging.LogRecord) -> bool:
    """koordlet logs what is new on its node without the name of the node: it expects to be alone."""
    return not record.name.startswith("koordinator.koordlet") or record.levelno >= logging.WARNING


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; 1 for whatever prevents a start, in one line on stderr."""
    options = _parser().parse_args(arguments)
    level = logging.WARNING if options.verbosity < 1 else logging.INFO if options.verbosity < 4 else logging.DEBUG
    handler = logging.StreamHandler(sys.stderr)
    if options.verbosity < 4:
        handler.addFilter(_is_of_simulation)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])
    try:
        scenario = _scenario(options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, scenario))
    except KoordinatorError as error:
        print(f"simulated nodes: {error}", file=sys.stderr)  # noqa: T201  the program's output to its user
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(options: argparse.Namespace, scenario: Scenario) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    client = await connect(
        ClientOptions(
            kubeconfig=options.kubeconfig,
            qps=options.kube_api_qps,
            burst=options.kube_api_burst,
            user_agent=user_agent("koord-simulated-nodes"),
        )
    )
    try:
        # A wrong address or credential is said at once, not in the log of a loop that keeps trying.
        await client.raw("GET", "/version")
        with TemporaryDirectory(prefix="koord-kernels-") as kernels:
            random = Random(scenario.seed)
            fleet = Fleet(
                client,
                scenario,
                random=random,
                koordlets=options.koordlets,
                kernels=Path(kernels),
                pace=options.pace,
            )
            await run_until(stop, fleet)
    finally:
        await client.close()


async def run_until(stop: asyncio.Event, fleet: Fleet) -> None:
    """Run the fleet until ``stop`` is set. Raises the KoordinatorError that ended it early."""
    running = asyncio.create_task(fleet.run(), name="fleet")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        logger.info("stopping; the nodes stay registered")
    except ExceptionGroup as group:
        expected, unexpected = group.split(KoordinatorError)
        if expected is None or unexpected is not None:
            raise
        raise _first(expected) from group
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


def _first(group: ExceptionGroup[KoordinatorError]) -> KoordinatorError:
    error: KoordinatorError | ExceptionGroup[KoordinatorError] = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _scenario(options: argparse.Namespace) -> Scenario:
    scenario = load_scenario(options.scenario) if options.scenario is not None else default_scenario()
    if options.nodes is not None:
        if not 0 < options.nodes <= MAX_NODES:
            raise ConfigurationError("--nodes", options.nodes, f"from 1 to {MAX_NODES}")
        scenario = scale(scenario, options.nodes)
    if options.gpu_nodes < 0:
        raise ConfigurationError("--gpu-nodes", options.gpu_nodes, "0 or more")
    scenario = with_gpu_nodes(scenario, options.gpu_nodes)
    if options.seed is not None:
        scenario = msgspec.structs.replace(scenario, seed=options.seed)
    if options.speed is not None:
        scenario = msgspec.structs.replace(
            scenario, timing=msgspec.structs.replace(scenario.timing, speed=options.speed)
        )
    check_scenario(scenario)
    return scenario


def _namespace_and_name(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r}: the namespace and the name of a ConfigMap, as in default/pace")
    return namespace, name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m koordinator.cluster.nodes",
        description="Simulated nodes: they register, keep their leases, run pods and report usage.",
    )
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="the cluster to join")
    parser.add_argument("--nodes", type=int, metavar="N", help="scale the scenario to so many nodes")
    parser.add_argument(
        "--gpu-nodes",
        type=int,
        default=0,
        metavar="N",
        help="beside them, so many nodes with 8 GPUs each (%(default)s)",
    )
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="sizes, zones, labels, usage (default: built in)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the simulated usage (default: the scenario's)")
    parser.add_argument(
        "--speed", type=float, metavar="X", help="simulated seconds per real second (default: the scenario's)"
    )
    parser.add_argument(
        "--pace",
        type=_namespace_and_name,
        metavar="NAMESPACE/NAME",
        help="a ConfigMap that says how far simulated time may go on, instead of --speed",
    )
    parser.add_argument(
        "--koordlets",
        type=int,
        default=_KOORDLETS,
        metavar="N",
        help="nodes that run koordlet itself, at real speed; the others report by the model (%(default)s)",
    )
    parser.add_argument(
        "--kube-api-qps", type=float, default=300.0, metavar="N", help="requests a second (%(default)s)"
    )
    parser.add_argument("--kube-api-burst", type=int, default=600, metavar="N", help="requests at once (%(default)s)")
    parser.add_argument("-v", type=int, default=1, dest="verbosity", metavar="LEVEL", help="log level (default: 1)")
    parser.add_argument("--version", action=VersionAction)
    return parser
