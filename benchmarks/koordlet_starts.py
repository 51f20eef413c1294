"""How long starts of containers wait for koordlet through NRI, in a burst, beside the Go original on the same node.

A node of containerd and kubelet runs small pods of all classes, with every strategy on as in ``koordlet_cost``. Then
so many best-effort pods come at once, and the kubelet starts them as fast as it can: it calls the runtime for all of
them at the same time. The runtime calls its plugin for one pod or container after the other, each of which waits for
the response: ``calls`` has the times in milliseconds, by the method, as a relay between the two takes them. Neither
program is called when a container is started that has been created. ``seconds_in_calls`` is their sum.

``made_without_limits`` counts containers that were made without the CPU shares, the CPU quota or the memory limit of
their batch resources, ``without_limits_in_the_end`` those whose cgroup, or that of their pod, lacks one of them when
all pods run. ``unanswered`` calls were given up by the runtime after two seconds, which ends the connection.

usage, as root: python -m benchmarks.koordlet_starts [--pods 100] [--starts 200] [--only ours]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.koordlet_cost import (
    CPU_RATIO,
    GATES,
    NAMESPACE,
    NODE,
    WARM_UP_SECONDS,
    agent,
    agents,
    cluster_and_node,
    pod_of_a_class,
    prepare,
    running,
    until,
)
from benchmarks.nri_relay import Call, NRIRelay
from benchmarks.process_usage import usage_of, waited_seconds
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from tests.koordlet.all_strategies import BATCH_MEBIBYTES, BATCH_MILLI
from tests.real.nri_containerd import containerd_with_nri, put_before_path
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.real_node import EnforcedNode

_LAYOUT: Final = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_LIMITS: Final = {
    ("cpu", "cpu.shares"): BATCH_MILLI * 1024 // 1000,
    ("cpu", "cpu.cfs_quota_us"): math.ceil(BATCH_MILLI * 100 / CPU_RATIO),
    ("memory", "memory.limit_in_bytes"): BATCH_MEBIBYTES << 20,
}
"""Of a pod and container with the batch resources of these pods, by the kernel's file."""
_OF_THE_PLUGIN: Final = frozenset({"Configure", "Synchronize"})
"""Calls when a plugin has connected anew, for which no start waits."""
_CLIENTS: Final = 8
_BURST_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 5.0
_GONE_SECONDS: Final = 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=100, help="that run already")
    parser.add_argument("--starts", type=int, default=200, help="pods of one container in the burst")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="kstarts", ignore_cleanup_errors=True) as folder:
        found = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "koordlet_starts", **vars(given), "programs": found}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    nri = folder / "nri.sock"
    environment = {
        "PATH": put_before_path(containerd_with_nri(), folder / "bin", nri),
        "KUBELET_EXTRA": f"maxPods: {given.pods + given.starts + 10}",
    }
    with cluster_and_node(programs, folder, NODE, NAMESPACE, **environment) as node:
        prepare(node, given.pods, enforce=True, room=given.starts, suppress="cpuset")
        return {
            name: _burst(node, [*command, GATES], folder, name, given)
            for name, command in agents(programs, given.only).items()
        }


def _burst(
    node: EnforcedNode, command: Sequence[str], folder: Path, name: str, given: argparse.Namespace
) -> dict[str, Any]:
    relay = NRIRelay(folder / f"{name}.sock", folder / "nri.sock")
    with relay.running(), agent(node, command, folder / name, relay.socket) as process:
        until(lambda: any(call.method == "Synchronize" for call in relay.calls), WARM_UP_SECONDS)
        time.sleep(WARM_UP_SECONDS)
        before, used, waited = len(relay.calls), usage_of(process.pid).cpu_seconds, waited_seconds(process.pid)
        with _started(node, f"{name}-", given) as (pods, seconds):
            # The runtime has called for all of them by now.
            calls = [call for call in relay.calls[before:] if call.method not in _OF_THE_PLUGIN]
            cpu, waited = usage_of(process.pid).cpu_seconds - used, waited_seconds(process.pid) - waited
            time.sleep(_SETTLE_SECONDS)
            return {
                "seconds": round(seconds, 1),
                "calls": _times(calls),
                "seconds_in_calls": round(sum(call.seconds or 0 for call in calls), 2),
                "unanswered": sum(call.seconds is None for call in calls),
                "connections": relay.connections,
                "cpu_seconds": round(cpu, 2),
                "waited_for_a_cpu_seconds": round(waited, 2),
                "made_without_limits": sum(not _is_made_with_limits(pod, folder) for pod in pods),
                "without_limits_in_the_end": sum(not _has_limits(pod) for pod in pods),
            }


@contextmanager
def _started(
    node: EnforcedNode, prefix: str, given: argparse.Namespace
) -> Iterator[tuple[list[dict[str, Any]], float]]:
    """The pods of the burst, which run, and the seconds that took; they are gone in the end."""
    # Every third one is best-effort.
    documents = [pod_of_a_class(3 * number) for number in range(given.starts)]
    for number, document in enumerate(documents):
        document["metadata"]["name"] = f"{prefix}{number}"
        # None of them burns CPU: on the node's few CPUs, kubelet and the runtime need them.
        document["spec"]["containers"][0]["command"] = ["/pause"]
    path, begun = f"/api/v1/namespaces/{NAMESPACE}/pods", time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        made = clients.map(lambda document: node.administrator.request("POST", path, document)[0], documents)
        if refused := [status for status in made if status != 201]:
            raise RuntimeError(f"{len(refused)} pods were refused: {refused[0]}")

    def of_the_burst() -> list[dict[str, Any]]:
        return [pod for pod in running(node) if pod["metadata"]["name"].startswith(prefix)]

    try:
        until(lambda: len(of_the_burst()) == given.starts, _BURST_SECONDS)
        yield of_the_burst(), time.monotonic() - begun
    finally:
        node.administrator.request("DELETE", f"{path}?fieldSelector={_others(given)}")
        until(lambda: len(node.get("pods", namespace=NAMESPACE)["items"]) == given.pods, _GONE_SECONDS)


def _others(given: argparse.Namespace) -> str:
    """All pods but those that ran before."""
    return ",".join(f"metadata.name!=p{number}" for number in range(given.pods))


def _times(calls: Sequence[Call]) -> dict[str, Any]:
    by_method: dict[str, list[float]] = {}
    for call in calls:
        # One that was given up has waited for two seconds.
        taken = 2.0 if call.seconds is None else call.seconds
        for method in (call.method, "all"):
            by_method.setdefault(method, []).append(taken * 1000)
    return {method: _percentiles(sorted(times)) for method, times in sorted(by_method.items())}


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    at = {"p50": 0.5, "p99": 0.99}
    found = {name: round(times[min(int(share * len(times)), len(times) - 1)], 2) for name, share in at.items()}
    return {"count": len(times), **found, "longest": round(times[-1], 2)}


def _container(pod: Mapping[str, Any]) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2])


def _is_made_with_limits(pod: Mapping[str, Any], folder: Path) -> bool:
    """As the runtime had it made, whatever was written afterwards."""
    tasks = folder / "node/containerd/state/io.containerd.runtime.v2.task/k8s.io"
    resources = json.loads((tasks / _container(pod) / "config.json").read_text())["linux"]["resources"]
    cpu, memory = resources.get("cpu", {}), resources.get("memory", {})
    return [cpu.get("shares"), cpu.get("quota"), memory.get("limit")] == list(_LIMITS.values())


def _has_limits(pod: Mapping[str, Any]) -> bool:
    """As the kernel has them, of the pod and of its container."""
    of_pod = _LAYOUT.pod(pod["metadata"]["uid"], pod["status"]["qosClass"])
    return all(
        int(Path(_LAYOUT.folder(controller, folder), file).read_text()) == limit
        for folder in (of_pod, f"{of_pod}/{_container(pod)}")
        for (controller, file), limit in _LIMITS.items()
    )


if __name__ == "__main__":
    sys.exit(main())
