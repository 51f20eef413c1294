"""Nodes that report, as a process of its own: what a manager has to reconcile while something else is measured.

usage: python -m benchmarks.node_reports KUBECONFIG --nodes 300 --pods-per-node 30 --rate 40
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import workload
from benchmarks.manager_scale import Nodes, node_name
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES
from koordinator.base.clock import SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

_TOGETHER: Final = 16
_NAMESPACE: Final = "koordinator-system"


@contextmanager
def reporting(kubeconfig: Path, *, nodes: int, pods_per_node: int, rate: float) -> Iterator[None]:
    """Nodes are there and report around a block."""
    numbers = {"--nodes": nodes, "--pods-per-node": pods_per_node, "--rate": rate}
    flags = [f"{name}={number}" for name, number in numbers.items()]
    command = [sys.executable, "-m", "benchmarks.node_reports", str(kubeconfig), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"reporting\n":
                raise RuntimeError(f"no node reports: {process.wait()}")
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the nodes stopped reporting: {process.returncode}")
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--rate", type=float, default=40.0, help="reports a second, of all nodes together")
    asyncio.run(_run(parser.parse_args()))
    return 0


async def _run(given: argparse.Namespace) -> None:
    client = await connect(ClientOptions(kubeconfig=str(given.kubeconfig)))
    try:
        await _make(client, given.nodes)
        print("reporting", flush=True)
        await _report(client, Nodes(given.nodes, given.pods_per_node, SystemClock()), given.nodes, given.rate)
    finally:
        await client.close()


async def _make(client: KubeClient, count: int) -> None:
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": _NAMESPACE},
        "data": {"colocation-config": '{"enable": true}'},
    }
    at_once = asyncio.Semaphore(_TOGETHER)

    async def node(number: int) -> None:
        async with at_once:
            await _created(client.create(NODES, workload.node(number)))

    await _created(client.create(CONFIG_MAPS, configuration, _NAMESPACE))
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(node(number))


async def _created(request: Coroutine[Any, Any, object]) -> None:
    try:
        await request
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise


async def _report(client: KubeClient, nodes: Nodes, count: int, rate: float) -> None:
    start, number = time.perf_counter(), 0
    while True:
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        name, report = node_name(number % count), nodes.report(number % count)
        try:
            await client.patch(NODE_METRICS, name, report, PatchType.MERGE, subresource="status")
        except ApiStatusError as error:
            # The manager makes the objects that nodes report in, and may not have come to this one yet.
            if not error.is_not_found:
                raise
        number += 1


if __name__ == "__main__":
    sys.exit(main())
