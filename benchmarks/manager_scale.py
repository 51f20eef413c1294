"""What a large cluster costs koord-manager, beside the Go original on the same real API server.

Each program runs as in a cluster, webhooks included, and both with the same limit on requests (``--qps``): at the
default of 30 a second nothing but that limit would be measured. A control plane is filled once and started from a copy
of its data for each of them. When all nodes have reported, the program is started. ``first_sync`` is the time and CPU
from its start until every node has batch capacity; ``rest`` is the CPU that it needs after that until it has nothing
left to do. Then nodes report for some minutes, each of them once a minute (``--share`` says how many of them do), with
readings that move a little; ``report`` is the program's CPU for one. ``peak_mebibytes`` is the largest resident size of
the process until then.

Needs the real Kubernetes programs and the original. The last line is one JSON document.

usage: python -m benchmarks.manager_scale [--nodes 5000] [--pods-per-node 30] [--minutes 2] [--only ours]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from benchmarks.node_reports import CONFIGURATION, Nodes, node_name, report, report_once
from benchmarks.pod_mixes import Document
from benchmarks.process_usage import OtherLoad, cpu_clock, until_quiet, usage_of
from benchmarks.stored_clusters import StoredClusters
from benchmarks.workload import create, together
from koordinator.api.kinds import CONFIG_MAPS, NODES
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.base.clock import SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client, Malformed
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, gates, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_MINUTE: Final = 60.0
_AT_ONCE: Final = 64
"""Objects in a transaction of etcd, which takes 128 and 1.5 MB."""
_SYNC_SECONDS: Final = 900.0
_REST_SECONDS: Final = 300.0
_RATIOS: Final = ("first_sync_seconds", "first_sync_cpu_seconds", "report_cpu_ms", "peak_mebibytes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of reports (default 2)")
    parser.add_argument("--share", type=float, default=1.0, help="which share of the nodes report (default all)")
    parser.add_argument("--qps", type=int, default=1000, help="requests a second that a program may make")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        figures = uvloop.run(Comparison(programs, Path(folder), given).measure())
    print(json.dumps({"benchmark": "manager_scale", **vars(given), **figures}))
    return 0


class Comparison:
    """Both programs, one after the other."""

    def __init__(self, programs: RealPrograms, folder: Path, given: argparse.Namespace) -> None:
        self._given = given
        self._folder = folder
        self._clusters = StoredClusters(programs.kubernetes, folder)
        self._nodes = Nodes(given.nodes, given.pods_per_node, SystemClock())
        self._commands = {"ours": OURS, "original": (str(programs.original / "koord-manager"),)}

    async def measure(self) -> Document:
        stored = await self._clusters.stored("managed", None, self._fill)
        figures: Document = {}
        for name, command in self._commands.items():
            if self._given.only not in ("", name):
                continue
            async with self._clusters.started_from(stored) as (plane, client):
                figures[name] = await self._run(plane, client, command, self._folder / name)
            sys.stderr.write(f"{name}: {json.dumps(figures[name])}\n")
        if not self._given.only:
            figures["ratios"] = {name: round(figures["original"][name] / figures["ours"][name], 2) for name in _RATIOS}
        return figures

    async def _fill(self, plane: ControlPlane, client: Client) -> None:
        """What administrators write, through the API server; what is there in thousands, straight into etcd."""
        await asyncio.to_thread(prepare, plane)
        await asyncio.to_thread(install, plane)
        await create(client, CONFIG_MAPS, CONFIGURATION, NAMESPACE)
        plane.kill_api_server()
        nodes, count = self._nodes, self._given.nodes
        pods = range(count * self._given.pods_per_node)
        metrics = "/registry/slo.koordinator.sh/nodemetrics/"
        async with aiohttp.ClientSession(plane.etcd_url) as session:
            await _put(session, "/registry/minions/", "v1", "Node", map(nodes.node, range(count)))
            await _put(session, "/registry/pods/default/", "v1", "Pod", map(nodes.pod, pods))
            await _put(
                session, metrics, "slo.koordinator.sh/v1alpha1", "NodeMetric", map(nodes.node_metric, range(count))
            )

    async def _run(self, plane: ControlPlane, client: Client, command: Sequence[str], folder: Path) -> Document:
        given, nodes = self._given, self._nodes
        await together((report_once(client, nodes, number) for number in range(given.nodes)), 16)
        version = (await client.list(NODES, limit=1)).resource_version
        arguments = (
            "--enable-leader-election=false",
            gates(),
            f"--rest-config-qps={given.qps}",
            f"--rest-config-burst={given.qps}",
        )
        started, load = time.perf_counter(), OtherLoad()
        with manager(command, plane.kubeconfig, folder, arguments=arguments) as running:
            await _unless_ended(running, _until_all_lend(client, version, given.nodes), _SYNC_SECONDS)
            synced, first = time.perf_counter() - started, cpu_clock(running.process.pid)
            await until_quiet(running.process.pid, _REST_SECONDS)
            rest = cpu_clock(running.process.pid)
            reporting = max(1, round(given.nodes * given.share))
            seconds = given.minutes * _MINUTE
            reports = await report(client, nodes, reporting, reporting / _MINUTE, seconds)
            end, other_cores = cpu_clock(running.process.pid), load.cores()
            peak = usage_of(running.process.pid).peak_bytes
        return _figures(synced, (first, rest, end), reports, seconds, peak) | {"other_cores": round(other_cores, 2)}


def _figures(synced: float, used: tuple[float, float, float], reports: int, seconds: float, peak: int) -> Document:
    """``used`` is CPU since the program's start: when nodes lend, when it rests, at the end."""
    first, rest, end = used
    return {
        "first_sync_seconds": round(synced, 1),
        "first_sync_cpu_seconds": round(first, 2),
        "rest_cpu_seconds": round(rest - first, 2),
        "reports": reports,
        "report_cpu_ms": round((end - rest) / reports * 1000, 3),
        "report_percent_of_a_core": round((end - rest) / seconds * 100, 2),
        "peak_mebibytes": round(peak / 2**20, 1),
    }


async def _put(
    session: aiohttp.ClientSession, folder: str, version: str, kind: str, documents: Iterable[Document]
) -> None:
    """Store objects as an API server does, but for the encoding of built-in kinds, which it reads as JSON, too."""
    waiting: list[Document] = []
    for document in documents:
        key, value = folder + document["metadata"]["name"], {"apiVersion": version, "kind": kind, **document}
        waiting.append({"requestPut": {"key": _base64(key), "value": _base64(json.dumps(value))}})
        if len(waiting) == _AT_ONCE:
            await _commit(session, waiting)
            waiting = []
    if waiting:
        await _commit(session, waiting)


async def _commit(session: aiohttp.ClientSession, operations: list[Document]) -> None:
    async with session.post("/v3/kv/txn", json={"success": operations}) as response:
        if not response.ok:
            raise KoordinatorError(f"etcd stores nothing: {response.status} {await response.text()}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


async def _until_all_lend(client: Client, version: str, count: int) -> None:
    """Until every node has batch capacity."""
    waiting = {node_name(number) for number in range(count)}
    while waiting:
        async with aclosing(client.watch(NODES, resource_version=version)) as events:  # type: ignore[type-var]
            async for event in events:
                version, node = event.resource_version, event.object
                if node is None or isinstance(node, Malformed):
                    continue
                if {BATCH_CPU, BATCH_MEMORY} <= node.status.allocatable.keys():
                    waiting.discard(node.metadata.name)
                    if not waiting:
                        break


async def _unless_ended(running: ManagerProcess, work: Awaitable[Any], seconds: float) -> None:
    """Await ``work``. Raises KoordinatorError when the program ends before, or the time is up."""
    working = asyncio.ensure_future(work)
    deadline = time.perf_counter() + seconds
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=1.0)
            if not working.done() and (running.process.poll() is not None or time.perf_counter() > deadline):
                raise KoordinatorError(f"not all nodes have batch capacity:\n{running.log_tail()}")
        working.result()
    finally:
        working.cancel()


if __name__ == "__main__":
    sys.exit(main())
