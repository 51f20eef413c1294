"""Nodes that report, as a process of its own: what a manager has to reconcile while something else is measured.

usage: python -m benchmarks.node_reports KUBECONFIG --nodes 300 --pods-per-node 30 --rate 40
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks import pod_mixes, stored_objects, workload
from benchmarks.pod_mixes import Document
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock, SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

_TOGETHER: Final = 16
_NAMESPACE: Final = "koordinator-system"
_REPLICAS: Final = 10
_TEAMS: Final = 50
CONFIGURATION: Final[Document] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": _NAMESPACE},
    "data": {"colocation-config": '{"enable": true}'},
}
"""Of a cluster whose nodes lend what they have left."""


class Nodes:
    """The documents of a cluster whose pods are replicas of workloads, ten of each."""

    def __init__(self, nodes: int, pods_per_node: int, clock: Clock) -> None:
        self._nodes = nodes
        self._pods_per_node = pods_per_node
        self._clock = clock
        self._random = Random(7)

    def node(self, number: int) -> Document:
        """Without batch capacity, which it is the manager's to add."""
        document = workload.node(number)
        for amounts in (document["status"]["capacity"], document["status"]["allocatable"]):
            for resource in (BATCH_CPU, BATCH_MEMORY):
                amounts.pop(resource, None)
        return stored_objects.node(document, number + 1)

    def pod(self, number: int) -> Document:
        (document,) = pod_mixes.different(1, first=number)
        name = f"app-{number // _REPLICAS}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        labels = {"app": name, "pod-template-hash": f"{number // _REPLICAS:010x}", "team": f"team-{number % _TEAMS}"}
        document["metadata"] |= {
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [owner],
        }
        document["spec"]["nodeName"] = node_name(number % self._nodes)
        return stored_objects.running_pod(document, 100_000 + number)

    def node_metric(self, number: int) -> Document:
        node = workload.node(number)
        return {**stored_objects.node_metric(node, self.report(number)["status"], 1_000_000 + number), "spec": {}}

    def report(self, number: int) -> Document:
        """What the agent of a node says now: a load of its own, moved a little."""
        return {"status": self._status(number, self._clock.now())}

    def _status(self, number: int, now: datetime) -> Document:
        load = (10 + number * 7 % 31) / 100 * self._random.uniform(0.97, 1.03)
        share = load / (self._pods_per_node + 5)
        pods = [
            {
                "namespace": "default",
                "name": f"pod-{number + place * self._nodes:06d}",
                "priority": "koord-prod",
                "qos": "LS",
                "podUsage": {"resources": _amounts(share * self._random.uniform(0.9, 1.1))},
            }
            for place in range(self._pods_per_node)
        ]
        return {
            "updateTime": format_time(now),
            "nodeMetric": {
                "nodeUsage": {"resources": _amounts(load)},
                "systemUsage": {"resources": _amounts(share * 5)},
            },
            "podsMetric": pods,
            "prodReclaimableMetric": {"resource": {"resources": _amounts(load / 10)}},
        }


def node_name(number: int) -> str:
    return str(workload.node(number)["metadata"]["name"])


def _amounts(share: float) -> Document:
    return {"cpu": f"{int(32_000 * share)}m", "memory": str(int(128 * 2**30 * share))}


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
        await report(client, Nodes(given.nodes, given.pods_per_node, SystemClock()), given.nodes, given.rate)
    finally:
        await client.close()


async def _make(client: KubeClient, count: int) -> None:
    at_once = asyncio.Semaphore(_TOGETHER)

    async def node(number: int) -> None:
        async with at_once:
            await _created(client.create(NODES, workload.node(number)))

    await _created(client.create(CONFIG_MAPS, CONFIGURATION, _NAMESPACE))
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(node(number))


async def _created(request: Coroutine[Any, Any, object]) -> None:
    try:
        await request
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise


async def report(client: Client, nodes: Nodes, count: int, rate: float, seconds: float = math.inf) -> int:
    """Nodes report in turn, so many of them a second, for some time; how many have."""
    start, number = time.perf_counter(), 0
    while number < rate * seconds:
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        await report_once(client, nodes, number % count)
        number += 1
    await asyncio.sleep(max(0.0, start + seconds - time.perf_counter()))
    return number


async def report_once(client: Client, nodes: Nodes, number: int) -> None:
    try:
        await client.patch(NODE_METRICS, node_name(number), nodes.report(number), PatchType.MERGE, subresource="status")
    except ApiStatusError as error:
        # The manager makes the objects that nodes report in, and may not have come to this one yet.
        if not error.is_not_found:
            raise


if __name__ == "__main__":
    sys.exit(main())
