"""What a large cluster costs koord-manager, in this process: the first look at every node, and a report of each node a
minute.

Everything is as in the running program but sockets, webhooks and leader election. ``first_sync`` is CPU from the first
list to the last write: every node gets its NodeSLO, its spec of what to collect and its batch and mid resources.
``report`` is CPU for each report of a node in the minutes after that, whose readings move a little from one to the
next, with all that is written for it. ``writes_per_minute`` counts those writes. ``peak_megabytes`` is that of the
process with everything that stands for the cluster, ``cluster_megabytes`` the peak before the manager began.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import mean
from typing import Final, cast

import uvloop

from benchmarks.node_reports import Nodes, node_name
from benchmarks.watched_cluster import Document, WatchedCluster, turns
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES, PODS
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.client import KubeClient
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.reconciler import run_controllers
from koordinator.kube.sender import Sender
from koordinator.manager.controller_table import BUILT
from koordinator.manager.controllers import ControllerContext, make_controllers
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options

_NAMESPACE: Final = "koordinator-system"
_MINUTE: Final = 60.0
_TOGETHER: Final = 50
"""So many reports come between two moves of the clock, each with a read of its own."""
_TURNS: Final = 10
"""Turns of the event loop after each report."""
_QUIET_TURNS: Final = 200
_RECONCILED: Final = (
    "koordinator_manager_reconcile_total",
    "Keys that a controller has seen to",
    ("controller", "result"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """CPU seconds of the manager, and how often what was written."""

    seconds: float
    writes: dict[str, int]


class Measurement:
    """One manager with a cluster of its own."""

    def __init__(self, nodes: int, pods_per_node: int) -> None:
        self._count = nodes
        self._pods = nodes * pods_per_node
        self._clock = ManualClock()
        self._nodes = Nodes(nodes, pods_per_node, self._clock)
        self._cluster = cluster = WatchedCluster()
        self._metrics = Metrics()
        names = {"name": "slo-controller-config", "namespace": _NAMESPACE, "uid": "1", "resourceVersion": "1"}
        configuration = {"metadata": names, "data": {"colocation-config": json.dumps({"enable": True})}}
        cluster.keep(NODES, map(self._nodes.node, range(nodes)))
        cluster.keep(NODE_METRICS, map(self._nodes.node_metric, range(nodes)))
        cluster.make(PODS, self._pods, self._nodes.pod)
        cluster.keep(CONFIG_MAPS, [configuration], _NAMESPACE)

    async def measure(self, minutes: int, last_minute: AbstractContextManager[object] | None = None) -> Document:
        """``last_minute`` is entered around the last one."""
        gc.collect()
        held = _peak_megabytes()
        clock = SystemClock()
        client = KubeClient(cast("Sender", self._cluster), TimeLimits(clock), Random(1))
        informers = InformerSet(client, clock=clock, random=Random(1))
        # Nobody sends events on: there are none but about broken configuration.
        events = EventBroadcaster(client, instance="benchmark", clock=clock, random=Random(1))
        context = ControllerContext(client, informers, events, Options(), self._metrics, self._clock, Random(1))
        controllers = make_controllers(context, BUILT)
        async with asyncio.TaskGroup() as tasks:
            started = self._mark()
            working = [tasks.create_task(informers.run())]
            working.append(tasks.create_task(run_controllers(informers, controllers)))
            await informers.wait_synced()
            await self._until_settled(self._count)
            first = self._since(started)
            steady = [await self._minute() for _ in range(minutes - 1)]
            with last_minute or nullcontext():
                steady.append(await self._minute())
            for task in working:
                task.cancel()
        await client.close()
        return self._report(first, steady, held)

    async def _minute(self) -> Part:
        """A minute passes, in which every node reports."""
        reconciled, started = self._reconciled(), self._mark()
        for number in range(self._count):
            if number % _TOGETHER == 0:
                await self._clock.advance(_MINUTE * _TOGETHER / self._count)
            self._cluster.change(NODE_METRICS, node_name(number), partial(self._nodes.report, number))
            await turns(_TURNS)
        await self._until_settled(reconciled + self._count)
        return self._since(started)

    async def _until_settled(self, least: int) -> None:
        """Until so many nodes have been seen to, and no more are."""
        before = -1
        while (now := self._reconciled()) != before or now < least:
            before = now
            await turns(_QUIET_TURNS)

    def _reconciled(self) -> int:
        return int(self._metrics.counter(*_RECONCILED).labels(NodeResourceController.name, "success").value)

    def _mark(self) -> Part:
        return Part(time.thread_time() - self._cluster.own_seconds, dict(self._cluster.writes))

    def _since(self, before: Part) -> Part:
        now = self._mark()
        writes = {what: count - before.writes.get(what, 0) for what, count in now.writes.items()}
        return Part(now.seconds - before.seconds, {what: count for what, count in writes.items() if count})

    def _report(self, first: Part, steady: Sequence[Part], held: int) -> Document:
        a_minute = mean(part.seconds for part in steady)
        return {
            "benchmark": "manager_cost",
            "nodes": self._count,
            "pods": self._pods,
            "first_sync": {"seconds": round(first.seconds, 2), "writes": first.writes},
            "report": {
                "microseconds": round(a_minute / self._count * 1e6, 1),
                "percent_of_a_core": round(a_minute / _MINUTE * 100, 2),
                "percent_of_a_core_in_the_worst_minute": round(max(part.seconds for part in steady) / _MINUTE * 100, 2),
            },
            "writes_per_minute": [part.writes for part in steady],
            "peak_megabytes": _peak_megabytes(),
            "cluster_megabytes": held,
        }


def _peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of the cluster (default 5000)")
    parser.add_argument("--pods-per-node", type=int, default=30, help="pods on each of them (default 30)")
    parser.add_argument("--minutes", type=int, default=6, help="minutes of reports (default 6)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    measurement = Measurement(options.nodes, options.pods_per_node)
    print(json.dumps(uvloop.run(measurement.measure(options.minutes))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
