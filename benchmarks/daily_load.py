"""A day of a cluster of 2,000 nodes on which 150,000 pods are created and deleted, in less time than a day.

koord-scheduler and koord-manager, ours or the Go original's, run as in a cluster, webhooks and all of the chart's
plugins included, against a real API server. Pods come in the shape of a day, with peaks in office hours; each is
deleted when it has had its node for a tenth of the day. There are no kubelets. A pod is lost if it has no node a while
after the last one has come. Memory and CPU are those of the two programs; ``pods_per_second`` is that of the best
minute.

Needs the real Kubernetes programs and the original. Progress goes to stderr; the last line of stdout is
one JSON document.

usage: python -m benchmarks.daily_load [--nodes 2000] [--pods 150000] [--minutes 60] [--only ours|original]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvloop
import yaml

from benchmarks import workload
from benchmarks.contenders import ROOT, Contender
from benchmarks.daily_pods import Day, best_minute, percentile
from benchmarks.measurement import chart_configuration
from benchmarks.process_usage import OtherLoad, Usage, until_quiet, usage_of
from benchmarks.soak_checks import Bookings
from benchmarks.soak_readings import Reading, growth, read_process
from benchmarks.stored_clusters import StoredClusters
from koordinator.api.kinds import NODE_METRICS, NODES
from koordinator.api.priority import PriorityClass
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client
from tests.real.control_plane import ControlPlane, ControlPlaneError
from tests.real.manager_cluster import gates, install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

Document = dict[str, Any]
_LIFE: Final = 0.1
"""Of the day."""
_PATIENCE: Final = 120.0
_INTERVAL: Final = 15.0
_SAID: Final = 4
"""After how many readings progress is reported."""
_REQUESTS: Final = 2000


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="what the day takes (default 60)")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    parser.add_argument("--folder", type=Path, help="work below this folder (default: the system's)")
    options = parser.parse_args(arguments)
    if min(options.nodes, options.pods, options.minutes) <= 0:
        parser.error("--nodes, --pods and --minutes must be above 0")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when ours lost nothing and gave nothing out twice."""
    given = parse(arguments)
    programs = find_real_programs()
    if programs is None:
        print(f"daily_load: {HOW_TO_GET}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="koordinator-day-", dir=given.folder) as folder:
        try:
            figures = uvloop.run(Comparison(programs, Path(folder), given).measure())
        except (KoordinatorError, ControlPlaneError, OSError) as error:
            print(f"daily_load: {error}", file=sys.stderr)
            return 1
    print(json.dumps({"benchmark": "daily_load", **vars(given), "folder": None, **figures}))
    ours = figures.get("ours")
    return 0 if ours is None or ours["ok"] else 1


class Comparison:
    """Ours and the original, one after the other, each on a copy of the same cluster."""

    def __init__(self, programs: RealPrograms, folder: Path, given: argparse.Namespace) -> None:
        self._programs = programs
        self._folder = folder
        self._given = given
        self._clusters = StoredClusters(programs.kubernetes, folder)

    async def measure(self) -> Document:
        stored = await self._clusters.stored("nodes", None, self._fill)
        figures: Document = {}
        for contender in (Contender.OURS, Contender.ORIGINAL):
            if self._given.only in ("", contender.value):
                async with self._clusters.started_from(stored) as (plane, client):
                    figures[contender.value] = await self._day(contender, plane, client)
                _say(contender, json.dumps(figures[contender.value]))
        return figures

    async def _fill(self, plane: ControlPlane, client: Client) -> None:
        await asyncio.to_thread(prepare, plane)
        await workload.create_priority_class(client, PriorityClass.BATCH.value, 5000)
        await workload.create_nodes(client, self._given.nodes, NODE_METRICS)
        await asyncio.to_thread(install, plane)

    async def _day(self, contender: Contender, plane: ControlPlane, client: Client) -> Document:
        given = self._given
        nodes = {node.metadata.name: node for node in (await client.list(NODES)).items}
        async with self._running(contender, plane) as processes:
            for process in processes.values():
                await until_quiet(process)
            started = {name: usage_of(process).cpu_seconds for name, process in processes.items()}
            load, seconds = OtherLoad(), given.minutes * 60
            bookings = Bookings(nodes.get)
            day = Day(client, bookings, count=given.pods, seconds=seconds, life=seconds * _LIFE)
            readings: dict[str, list[Reading]] = {name: [] for name in processes}
            reading = asyncio.create_task(self._read(contender, processes, readings, day), name="readings")
            try:
                await day.run(_PATIENCE)
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading
            usage = _usages(processes)
        return _figures(day, bookings, started, usage, readings) | {"other_cores": round(load.cores(), 2)}

    @asynccontextmanager
    async def _running(self, contender: Contender, plane: ControlPlane) -> AsyncIterator[dict[str, int]]:
        folder = self._folder / contender.value
        folder.mkdir()
        configuration = folder / "scheduler.yaml"
        document = yaml.safe_load(chart_configuration(plane.kubeconfig))
        # Where programs and API server share a machine that has too few cores, a lease is lost that nobody else wants.
        configuration.write_text(yaml.safe_dump({**document, "leaderElection": {"leaderElect": False}}))
        command = contender.command(self._programs, configuration, plane.kubeconfig)
        ours = contender is Contender.OURS
        arguments = (
            gates(),
            "--enable-leader-election=false",
            f"--rest-config-qps={_REQUESTS}",
            f"--rest-config-burst={_REQUESTS}",
        )
        managers = OURS if ours else (str(self._programs.original / "koord-manager"),)
        with ExitStack() as stack:
            running = stack.enter_context(manager(managers, plane.kubeconfig, folder, arguments=arguments))
            await asyncio.to_thread(running.wait_ready)
            log = stack.enter_context((folder / "scheduler.log").open("wb"))
            scheduler = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, cwd=ROOT)
            try:
                yield {"manager": running.process.pid, "scheduler": scheduler.pid}
            finally:
                if scheduler.returncode is None:
                    scheduler.kill()
                    await scheduler.wait()

    async def _read(
        self, contender: Contender, processes: dict[str, int], readings: dict[str, list[Reading]], day: Day
    ) -> None:
        loop = asyncio.get_running_loop()
        started, count = loop.time(), 0
        while True:
            for name, process in processes.items():
                # A program that has ended is said to have, in the end.
                with suppress(OSError):
                    readings[name].append(read_process(process, loop.time() - started))
            seen = day.seen
            if count % _SAID == 0:
                resident = ", ".join(f"{name} {each[-1].resident:.0f} MiB" for name, each in readings.items() if each)
                _say(
                    contender,
                    f"{(loop.time() - started) / 60:.1f} min: {seen.created} created, {seen.bound} bound, "
                    f"{seen.waiting} wait, {seen.gone} gone, {seen.late_by:.1f} s late at most; {resident}",
                )
            count += 1
            await asyncio.sleep(_INTERVAL)


def _usages(processes: dict[str, int]) -> dict[str, Usage]:
    """Of those that have not ended."""
    found = {}
    for name, process in processes.items():
        # One that has ended is a zombie without memory until it is waited for, or gone.
        with suppress(OSError, StopIteration):
            found[name] = usage_of(process)
    return found


def _figures(
    day: Day,
    bookings: Bookings,
    started: dict[str, float],
    usage: dict[str, Usage],
    readings: dict[str, list[Reading]],
) -> Document:
    seen = day.seen
    programs: Document = {}
    for name, before in started.items():
        if name not in usage:
            programs[name] = {"ended": True, "resident_most": max(each.resident for each in readings[name])}
            continue
        used = usage[name].cpu_seconds - before
        programs[name] = {
            "cpu_seconds": round(used, 1),
            "cpu_ms_per_pod": round(used * 1000 / max(seen.bound, 1), 3),
            "peak_mebibytes": round(usage[name].peak_bytes / 2**20, 1),
            "resident": growth(readings[name], "resident"),
        }
    return {
        "ok": not (seen.refused or seen.waiting or bookings.faults or seen.gone < seen.created or len(usage) < 2),
        "created": seen.created,
        "refused": seen.refused,
        "bound": seen.bound,
        "lost": seen.waiting,
        "gone": seen.gone,
        "given_out_twice": dict(bookings.faults),
        "most_pods_at_once": seen.most_pods,
        "pods_per_second": best_minute(seen.bound_at),
        "creation_late_seconds": round(seen.late_by, 1),
        "create_ms": _spread(seen.create_seconds),
        "bind_ms": _spread(seen.bind_seconds),
        "programs": programs,
    }


def _spread(seconds: list[float]) -> Document:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {name: round(1000 * percentile(seconds, share), 1) for name, share in shares.items()}


def _say(contender: Contender, text: str) -> None:
    print(f"daily_load: {contender.value}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
