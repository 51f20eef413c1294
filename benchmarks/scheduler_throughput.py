"""Pods per second, CPU per pod and memory of koord-scheduler and of the Go original, on a real kube-apiserver.

Both run one after the other against a fresh control plane with the same nodes, node metrics and pods and the same
configuration file. Pods are created before the scheduler starts, so that creating them costs it nothing; the rate is
taken between 10 % and 90 % bound, so that start-up does not count.

usage: python -m benchmarks.scheduler_throughput [--nodes 1000] [--pods 3000] [--only ours|original]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import workload
from benchmarks.process_usage import usage_of
from koordinator.api.kinds import NODE_METRICS, PODS
from koordinator.base.errors import KoordinatorError
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client, Malformed
from tests.real.control_plane import ControlPlane
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_PROFILE = Path(__file__).parent / "scheduler_profile.yaml"
_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one scheduler in one case."""

    pods_per_second: float
    cpu_milliseconds_per_pod: float
    peak_mebibytes: float
    seconds_to_first_binding: float
    nodes_used: int


def command(who: str, programs: RealPrograms, configuration: Path, kubeconfig: Path) -> list[str]:
    if who == "ours":
        return [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0"]
    return [
        str(programs.original / "koord-scheduler"),
        f"--config={configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--secure-port=0",
        "--port=0",
    ]


async def measure(who: str, nodes: int, pods: int, programs: RealPrograms) -> Result:
    with tempfile.TemporaryDirectory(prefix="koordinator-benchmark-") as folder:
        plane = ControlPlane(programs.kubernetes, Path(folder) / "plane")
        await asyncio.to_thread(plane.start)
        try:
            client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
            try:
                await workload.install_definitions(client)
                await workload.create_nodes(client, nodes, NODE_METRICS)
                names = [f"pod-{number:06d}" for number in range(pods)]
                await workload.create_pods(
                    client, (workload.pod(name, scheduler_name="koord-scheduler") for name in names)
                )
                return await _schedule(who, programs, plane, client, pods, Path(folder))
            finally:
                await client.close()
        finally:
            await asyncio.to_thread(plane.stop)


async def _schedule(
    who: str, programs: RealPrograms, plane: ControlPlane, client: Client, pods: int, folder: Path
) -> Result:
    configuration = folder / "scheduler.yaml"
    configuration.write_text(_PROFILE.read_text().replace("KUBECONFIG", str(plane.kubeconfig)))
    page = await client.list(PODS, "default", limit=1)
    with (folder / "scheduler.log").open("wb") as log:
        started = time.perf_counter()
        scheduler = await asyncio.create_subprocess_exec(
            *command(who, programs, configuration, plane.kubeconfig), stdout=log, stderr=log
        )
        try:
            bound = await asyncio.wait_for(_watch_bindings(client, pods, page.resource_version), _TIMEOUT)
            usage = usage_of(scheduler.pid)
        except TimeoutError as error:
            tail = (folder / "scheduler.log").read_text(errors="replace")[-2000:]
            raise KoordinatorError(f"{who}: not all {pods} pods were bound in {_TIMEOUT:.0f} s\n{tail}") from error
        finally:
            scheduler.terminate()
            await asyncio.wait_for(scheduler.wait(), 30)
    moments = sorted(moment for moment, _ in bound.values())
    first, last = moments[pods // 10], moments[pods * 9 // 10 - 1]
    return Result(
        pods_per_second=round((pods * 9 // 10 - 1 - pods // 10) / (last - first), 1),
        cpu_milliseconds_per_pod=round(usage.cpu_seconds * 1000 / pods, 3),
        peak_mebibytes=round(usage.peak_bytes / 2**20, 1),
        seconds_to_first_binding=round(moments[0] - started, 2),
        nodes_used=len({node for _, node in bound.values()}),
    )


async def _watch_bindings(client: Client, pods: int, resource_version: str) -> dict[str, tuple[float, str]]:
    """Pod name -> (moment, node) of each binding, as this client sees them."""
    bound: dict[str, tuple[float, str]] = {}
    while len(bound) < pods:
        async for event in client.watch(PODS, "default", resource_version=resource_version):
            resource_version = event.resource_version
            pod = event.object
            if pod is None or isinstance(pod, Malformed) or not pod.spec.node_name:
                continue
            before = bound.setdefault(pod.metadata.name, (time.perf_counter(), pod.spec.node_name))
            if before[1] != pod.spec.node_name:
                raise KoordinatorError(f"{pod.metadata.name} moved from {before[1]} to {pod.spec.node_name}")
            if len(bound) == pods:
                break
    return bound


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--only", choices=["ours", "original"])
    options = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        print(json.dumps({"benchmark": "scheduler_throughput", "skipped": HOW_TO_GET}))
        return 0
    report: dict[str, object] = {"benchmark": "scheduler_throughput", "nodes": options.nodes, "pods": options.pods}
    results: dict[str, Result] = {}
    for who in ("original", "ours"):
        if options.only in (None, who):
            results[who] = asyncio.run(measure(who, options.nodes, options.pods, programs))
            report[who] = asdict(results[who])
    if len(results) == 2:
        ours, original = results["ours"], results["original"]
        report["ratios"] = {
            "pods_per_second": round(ours.pods_per_second / original.pods_per_second, 2),
            "cpu_per_pod": round(ours.cpu_milliseconds_per_pod / original.cpu_milliseconds_per_pod, 3),
            "peak_memory": round(ours.peak_mebibytes / original.peak_mebibytes, 2),
        }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
