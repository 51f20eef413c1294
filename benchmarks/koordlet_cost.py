"""What koordlet costs a real node, beside the Go original on the same node with the same pods.

A node of containerd and kubelet joins a real API server and runs small pods, every tenth of which burns CPU up to a
limit of 20 milli-CPU. The agents run one after the other, so that neither undoes what the other has written, each as on
a machine: it measures once a second, predicts, reconciles its hooks, and reports. What it uses counts after a warm-up.
``resident_mebibytes`` is that at the end, ``peak_mebibytes`` the largest.

With ``--enforce`` every strategy is on that both have on this machine: all gates but BlkIOReconcile, for which the
original wants LVM's programs, and a NodeSLO that requests all of them. A third of the pods is best-effort then, a third
latency-sensitive, and the rest has CPUs of its own; nobody is to be evicted, which is looked for all the same.

usage, as root: python -m benchmarks.koordlet_cost [--pods 30] [--enforce] [--seconds 70] [--only ours]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.process_usage import OtherLoad, usage_of
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.node_pods import offer_batch, pod_document
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.real_node import EnforcedNode, real_node

_NODE: Final = "koordlet-cost"
_NAMESPACE: Final = "koordlet-cost"
_WARM_UP_SECONDS: Final = 20.0
_LIMIT: Final = "20m"
_PODS_SECONDS: Final = 240.0
_MEBI: Final = 1 << 20
_STRATEGIES: Final = (
    *("BECPUSuppress", "CPUBurst", "RdtResctrl", "CgroupReconcile", "SystemConfig"),
    *("BECPUEvict", "CPUEvict", "CPUAllocatableEvict", "BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict"),
    *("GroupIdentity", "CPUSetAllocator", "BatchResource", "CPUNormalization", "OOMScoreAdj"),
)
"""Gates that are open with ``--enforce``."""
_BATCH_MILLI: Final = 20
_BATCH: Final = {"kubernetes.io/batch-cpu": str(_BATCH_MILLI), "kubernetes.io/batch-memory": "8Mi"}
_EXTENDED: Final = {"containers": {"main": {"requests": _BATCH, "limits": _BATCH}}}
_ANNOTATIONS: Final = {
    "BE": {"node.koordinator.sh/extended-resource-spec": json.dumps(_EXTENDED)},
    "LS": {"koordinator.sh/oom-score-adj": "500"},
    "LSR": {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})},
}
_SYSCTLS: Final = ("min_free_kbytes", "watermark_scale_factor")
"""Which the strategy SystemConfig writes: they are this machine's, and get their values back."""
_MEMORY_QOS: Final = {"minLimitPercent": 30, "lowLimitPercent": 60, "throttlingPercent": 50, "oomKillGroup": 0}
_ENFORCING: Final = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cfsQuota",
        "cpuSuppressThresholdPercent": 65,
        # Nobody goes: what is used never comes near.
        "memoryEvictThresholdPercent": 99,
        "cpuEvictThresholdPercent": 99,
        "cpuEvictBESatisfactionLowerPercent": 1,
        "cpuEvictBESatisfactionUpperPercent": 2,
        "evictEnabledPriorityThreshold": 5999,
        "allocatableEvictPriorityThreshold": 5999,
        "cpuAllocatableEvictThresholdPercent": 200,
        "cpuAllocatableEvictLowerPercent": 190,
        "memoryAllocatableEvictThresholdPercent": 200,
        "memoryAllocatableEvictLowerPercent": 190,
    },
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {
        name: {"memoryQOS": {"enable": True, **_MEMORY_QOS}, "resctrlQOS": {"enable": True}}
        for name in ("lsrClass", "lsClass", "beClass")
    },
    "systemStrategy": {"watermarkScaleFactor": 20},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=30, help="at most 105: kubelet runs no more than 110")
    parser.add_argument("--seconds", type=float, default=70.0, help="for each program: above 60, so that it reports")
    parser.add_argument("--enforce", action="store_true", help="with all strategies on")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="kcost", ignore_cleanup_errors=True) as folder:
        figures = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "koordlet_cost", **vars(given), "programs": figures}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    gates = f"--feature-gates={','.join(f'{name}=true' for name in _STRATEGIES)}"
    commands = agents(programs, given.only)
    with cluster_and_node(programs, folder, _NODE, _NAMESPACE) as node, _same_sysctls():
        _prepare(node, given.pods, enforce=given.enforce)
        return {
            name: _measure(node, [*command, gates] if given.enforce else command, folder / name, given)
            for name, command in commands.items()
        }


@contextmanager
def _same_sysctls() -> Iterator[None]:
    files = [Path("/proc/sys/vm", name) for name in _SYSCTLS]
    before = [file.read_text() for file in files]
    try:
        yield
    finally:
        for file, content in zip(files, before, strict=True):
            if file.read_text() != content:
                file.write_text(content)


def agents(programs: RealPrograms, only: str) -> dict[str, list[str]]:
    """The commands of the agents that are there, or of ``only`` one of them, by name."""
    commands = {
        "ours": [sys.executable, "-m", "koordinator.koordlet"],
        "original": [str(programs.original / "koordlet"), "--logtostderr=true"],
    }
    return {name: each for name, each in commands.items() if Path(each[0]).is_file() and name == (only or name)}


@contextmanager
def cluster_and_node(programs: RealPrograms, folder: Path, name: str, namespace: str) -> Iterator[EnforcedNode]:
    """A real node of a cluster of its own."""
    cluster = ControlPlane(programs.kubernetes, folder / "cluster")
    cluster.start()
    try:
        with real_node(cluster.kubeconfig, folder / "node", name, namespace) as node:
            yield node
    finally:
        cluster.stop()


def _prepare(node: EnforcedNode, pods: int, *, enforce: bool) -> None:
    """The pods run, and there is what koord-manager makes for a node."""
    policy = _ENFORCING if enforce else {}
    for kind, spec in (("NodeMetric", {"metricCollectPolicy": {"reportIntervalSeconds": 60}}), ("NodeSLO", policy)):
        version = "slo.koordinator.sh/v1alpha1"
        node.apply({"apiVersion": version, "kind": kind, "metadata": {"name": _NODE}, "spec": spec})
    if enforce:
        offer_batch(node, str(pods * _BATCH_MILLI))
        node.kubectl("annotate", "node", _NODE, "node.koordinator.sh/cpu-normalization-ratio=1.20")
    make = _pod_of_a_class if enforce else _pod
    node.kubectl("apply", "-f", "-", given="\n".join(json.dumps(make(number)) for number in range(pods)))

    def running() -> bool:
        found = node.kubectl("get", "pods", "-n", _NAMESPACE, "--field-selector=status.phase=Running", "-o", "name")
        return len(found.split()) == pods

    _until(running, _PODS_SECONDS)


def _pod(number: int) -> dict[str, Any]:
    burns = number % 10 == 0
    container = {
        "command": ["/pause", "burn"] if burns else ["/pause"],
        "resources": {"requests": {"cpu": "1m"}, "limits": {"cpu": _LIMIT}},
    }
    return pod_document(_NODE, _NAMESPACE, f"p{number}", container)


def _pod_of_a_class(number: int) -> dict[str, Any]:
    """Every third pod is BE, LS or LSR; of the first two classes some burn CPU."""
    qos = ("BE", "LS", "LSR")[number % 3]
    if qos == "BE":
        resources = {"requests": _BATCH, "limits": _BATCH}
    else:
        limits = {"cpu": _LIMIT, "memory": "16Mi"}
        resources = {"requests": limits if qos == "LSR" else {"cpu": "1m", "memory": "8Mi"}, "limits": limits}
    burns = number % 10 == 0 and qos != "LSR"
    container = {"command": ["/pause", "burn"] if burns else ["/pause"], "resources": resources}
    document = pod_document(_NODE, _NAMESPACE, f"p{number}", container, {"koordinator.sh/qosClass": qos})
    document["metadata"]["annotations"] = _ANNOTATIONS[qos]
    return document


def _measure(node: EnforcedNode, command: Sequence[str], folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    before = _updated(node)
    with agent(node, command, folder) as process:
        time.sleep(_WARM_UP_SECONDS)
        used, others, started = usage_of(process.pid).cpu_seconds, OtherLoad(), time.perf_counter()
        time.sleep(given.seconds)
        usage, seconds, others_busy = usage_of(process.pid), time.perf_counter() - started, others.cores()
        resident = _resident_bytes(process.pid)
    if _updated(node) == before:
        raise RuntimeError(f"{command[0]} has reported nothing: {(folder / 'log').read_text()[-3000:]}")
    reported = node.get("nodemetric", _NODE)["status"].get("podsMetric", ())
    return {
        "cpu_percent_of_core": round(100 * (usage.cpu_seconds - used) / seconds, 2),
        "resident_mebibytes": round(resident / _MEBI, 1),
        "peak_mebibytes": round(usage.peak_bytes / _MEBI, 1),
        "pods_reported": len(reported),
        # The pods and kubelet among them.
        "others_busy_cores": round(others_busy, 2),
        "load_average": os.getloadavg()[0],
    }


def _updated(node: EnforcedNode) -> str:
    return str(node.get("nodemetric", _NODE).get("status", {}).get("updateTime", ""))


@contextmanager
def agent(node: EnforcedNode, command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It runs in the block, with all that it keeps in ``folder``."""
    folder.mkdir()
    address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
    flags = [
        *(f"--kubeconfig={node.kubeconfig}", f"--addr={address}", f"--pprof-addr={profiles}"),
        *(f"--audit-log-dir={folder}", f"--tsdb-path={folder}", f"--prediction-checkpoint-filepath={folder}"),
        *(f"--runtime-hooks-addr={folder}/k.sock", f"--runtime-hooks-config-path={folder}"),
        "--enable-nri-runtime-hook=false",
    ]
    environment = {**os.environ, "NODE_NAME": node.name, "agent_mode": "hostMode"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *flags], env=environment, stdout=log, stderr=log)
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} has ended: {(folder / 'log').read_text()[-3000:]}")
    finally:
        process.terminate()
        process.wait(20)


def _resident_bytes(process_id: int) -> int:
    status = (Path("/proc") / str(process_id) / "status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _until(condition: Callable[[], bool], seconds: float) -> None:
    given_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > given_up:
            raise RuntimeError(f"not all pods ran within {seconds:.0f} s")
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
