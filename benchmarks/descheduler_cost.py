"""What a cycle of koord-descheduler costs, beside the Go original over the same objects of a real API server.

Each program starts, reads all nodes, pods and reports, runs one cycle of LowNodeLoad without evicting anybody, and
comes to rest. A tenth of the nodes is hot. ``cpu_seconds`` and ``peak_mebibytes`` are those of the whole process until
it is at rest; ``cycle_seconds`` are those from the start of the process to the end of the cycle. Of a program that is
stopped in its cycle after ``--limit`` seconds (``is_finished`` is false), they are what it had used by then.

usage: python -m benchmarks.descheduler_cost [--nodes 5000] [--pods 100000] [--limit 1800] [--only ours]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from benchmarks import workload
from benchmarks.control_planes import started
from benchmarks.descheduler_cycle import describe_node, describe_pod, describe_report, usages_of
from benchmarks.process_usage import until_quiet, usage_of
from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.timestamps import format_time
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client, PatchType
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_HOT: Final = 0.1
_CYCLE_IS_OVER: Final = ("Successfully processed nodePool", "Descheduling cycle done")
"""As the original and as ours says so."""
_WOULD_EVICT: Final = "in dry run mode"
_MEBI: Final = 1 << 20
_READY: Final = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000, help="of all nodes together")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which a program is stopped")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="descheduler-cost", ignore_cleanup_errors=True) as folder:
        figures = asyncio.run(_compare(programs, Path(folder), given))
    print(json.dumps({"benchmark": "descheduler_cost", **vars(given), "programs": figures}))
    return 0


async def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    commands = {
        "ours": [sys.executable, "-m", "koordinator.descheduler", "-v=4"],
        "original": [str(programs.original / "koord-descheduler"), "-v=4", "--secure-port=0"],
    }
    wanted = [name for name, (program, *_) in commands.items() if _is_there(program) and name == (given.only or name)]
    plane = ControlPlane(programs.kubernetes, folder / "cluster")
    async with started(plane) as client:
        await _fill(client, given.nodes, given.pods)
        return {name: await _measure(commands[name], plane.kubeconfig, folder / name, given.limit) for name in wanted}


def _is_there(program: str) -> bool:
    return Path(program).is_file()


async def _fill(client: Client, nodes: int, pods: int) -> None:
    await workload.install_definitions(client)
    random, now = Random(1), format_time(datetime.now(UTC))

    async def one(index: int) -> None:
        document, usages = describe_node(index), usages_of(index, pods // nodes, _HOT, random)
        name = document["metadata"]["name"]
        await workload.create(client, NODES, {**document, "status": {**document["status"], **_READY}})
        for pod in usages:
            # The API server would ask for the class of a priority.
            written = describe_pod(pod, name, random)
            spec = {key: value for key, value in written["spec"].items() if key != "priority"}
            metadata = {key: written["metadata"][key] for key in ("name", "labels", "ownerReferences")}
            await workload.create(client, PODS, {"metadata": metadata, "spec": spec}, "default")
        status = {**describe_report(name, usages)["status"], "updateTime": now}
        await workload.create(client, NODE_METRICS, {"metadata": {"name": name}, "spec": {}})
        await client.patch(NODE_METRICS, name, {"status": status}, PatchType.MERGE, subresource="status")

    await workload.together(one(index) for index in range(nodes))


async def _measure(command: Sequence[str], kubeconfig: Path, folder: Path, limit: float) -> dict[str, Any]:
    process, log = _start(command, kubeconfig, folder)
    begun = time.monotonic()
    try:
        is_finished = await asyncio.to_thread(_comes_to_the_end, process, log, begun + limit)
        seconds = time.monotonic() - begun
        if is_finished:
            await until_quiet(process.pid)
        usage = usage_of(process.pid)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
    return {
        "is_finished": is_finished,
        "cycle_seconds": round(seconds, 1),
        "cpu_seconds": round(usage.cpu_seconds, 1),
        "peak_mebibytes": round(usage.peak_bytes / _MEBI),
        "evictions": (await asyncio.to_thread(_text, log)).count(_WOULD_EVICT),
    }


def _start(command: Sequence[str], kubeconfig: Path, folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """The running process, and its log."""
    folder.mkdir()
    configuration, log = folder / "configuration.yaml", folder / "log"
    configuration.write_text(yaml.safe_dump(_configuration(kubeconfig)))
    with log.open("wb") as output:
        process = subprocess.Popen([*command, f"--config={configuration}"], stdout=output, stderr=subprocess.STDOUT)
    return process, log


def _comes_to_the_end(process: subprocess.Popen[bytes], log: Path, deadline: float) -> bool:
    """Whether its first cycle was over in time. Raises KoordinatorError when it ends instead."""
    while not any(line in (text := _text(log)) for line in _CYCLE_IS_OVER):
        if process.poll() is not None:
            raise KoordinatorError(f"{process.args!r} came to the end of no cycle: {text[-2000:]}")
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _text(log: Path) -> str:
    return log.read_text(errors="replace")


def _configuration(kubeconfig: Path) -> Mapping[str, Any]:
    (port,) = free_ports(1)
    arguments = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "LowNodeLoadArgs",
        "dryRun": True,
        "nodeMetricExpirationSeconds": 24 * 3600,
        "lowThresholds": {"cpu": 30, "memory": 60},
        "highThresholds": {"cpu": 50, "memory": 80},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    }
    evictor = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "healthzBindAddress": f"127.0.0.1:{port}",
        "metricsBindAddress": f"127.0.0.1:{port}",
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {"evict": evictor, "filter": evictor, "balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [{"name": "LowNodeLoad", "args": arguments}],
            }
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
