"""What koordlet costs a real node, beside the Go original on the same node with the same pods.

A node of containerd and kubelet joins a real API server and runs small pods, every tenth of which burns CPU up to a
limit of 20 milli-CPU. The agents run one after the other, so that neither undoes what the other has written, each as on
a machine: it measures once a second, predicts, reconciles its hooks, and reports. What it uses counts after a warm-up.
``resident_mebibytes`` is that at the end, ``peak_mebibytes`` the largest.

With ``--enforce`` every strategy is on that both have on this machine: all gates but BlkIOReconcile, for which the
original wants LVM's programs, and a NodeSLO that requests all of them. A third of the pods is best-effort then, a third
latency-sensitive, and the rest has CPUs of its own; nobody is to be evicted, which is looked for all the same.

``floor`` is what a small C loop needs on the same node that reads the same files of the kernel as koordlet, as often.

With ``--crash-loop 3``, so many pods more end as soon as they have started, and a kubelet that waits a second restarts
them: what each program uses is measured again meanwhile.

usage, as root: python -m benchmarks.koordlet_cost [--pods 30] [--enforce] [--seconds 70] [--only ours] [--crash-loop 3]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import koordinator
from benchmarks.kernel_file_floor import FilesRead, figures, files_read_by, floor_percent
from benchmarks.process_usage import OtherLoad, usage_of
from tests.free_ports import free_ports
from tests.koordlet import all_strategies
from tests.koordlet.all_strategies import BATCH_MEBIBYTES, BATCH_MILLI, LIMIT, node_slo_spec, qos_of, resources_of
from tests.real.control_plane import ControlPlane
from tests.real.node_pods import offer_batch, pod_document
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.real_node import EnforcedNode, real_node

NODE: Final = "koordlet-cost"
NAMESPACE: Final = "koordlet-cost"
WARM_UP_SECONDS: Final = 20.0
_PODS_SECONDS: Final = 240.0
_STOP_SECONDS: Final = 60.0
"""With hundreds of programs beside it that end, too."""
_MEBI: Final = 1 << 20
_TRACED_SECONDS: Final = 30
"""What is read once a minute is no part of it, or counts twice: it is little beside what is read each second."""
_RESTARTS_AT_ONCE: Final = "crashLoopBackOff: {maxContainerRestartPeriod: 1s}"
_CRASH_LOOP_SECONDS: Final = 10.0
"""Until it is what it stays."""
GATES: Final = f"--feature-gates={','.join(f'{name}=true' for name in all_strategies.GATES)}"
"""Those that are open with ``--enforce``."""
CPU_RATIO: Final = 1.2
"""How many plain cores a core is said to be worth."""
_SYSCTLS: Final = ("min_free_kbytes", "watermark_scale_factor")
"""Which the strategy SystemConfig writes: they are this machine's, and get their values back."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=30, help="at most 105: kubelet runs no more than 110")
    parser.add_argument("--seconds", type=float, default=70.0, help="for each program: above 60, so that it reports")
    parser.add_argument("--enforce", action="store_true", help="with all strategies on")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    parser.add_argument("--crash-loop", type=int, default=0, metavar="PODS", help="that end as soon as they started")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="kcost", ignore_cleanup_errors=True) as folder:
        found = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "koordlet_cost", **vars(given), **found}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    commands = agents(programs, given.only)
    with (
        cluster_and_node(programs, folder, NODE, NAMESPACE, KUBELET_EXTRA=_RESTARTS_AT_ONCE) as node,
        _same_sysctls(),
    ):
        prepare(node, given.pods, enforce=given.enforce)
        stage = _Stage(node, folder, given)
        measured = {
            name: stage.measure(name, [*command, GATES] if given.enforce else command)
            for name, command in commands.items()
        }
        return {"programs": measured} | ({"floor": stage.floor(measured["ours"])} if "ours" in measured else {})


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
    # As an installed package is: a process that compiles what it imports keeps several megabytes of that.
    compileall.compile_dir(Path(koordinator.__file__).parent, quiet=1)
    commands = {
        "ours": [sys.executable, "-m", "koordinator.koordlet"],
        "original": [str(programs.original / "koordlet"), "--logtostderr=true"],
    }
    return {name: each for name, each in commands.items() if Path(each[0]).is_file() and name == (only or name)}


@contextmanager
def cluster_and_node(
    programs: RealPrograms, folder: Path, name: str, namespace: str, **environment: str
) -> Iterator[EnforcedNode]:
    """A real node of a cluster of its own; ``environment`` is that of the program that starts it."""
    cluster = ControlPlane(programs.kubernetes, folder / "cluster")
    cluster.start()
    try:
        with real_node(cluster.kubeconfig, folder / "node", name, namespace, **environment) as node:
            yield node
    finally:
        cluster.stop()


def prepare(node: EnforcedNode, pods: int, *, enforce: bool, room: int = 0, suppress: str = "cfsQuota") -> None:
    """The pods run, and there is what koord-manager makes for a node; with room for so many batch pods more.

    Batch pods have no CPU quota of their own where suppression goes by quotas, and one where it goes by ``cpuset``.
    """
    policy = node_slo_spec(suppress) if enforce else {}
    for kind, spec in (("NodeMetric", {"metricCollectPolicy": {"reportIntervalSeconds": 60}}), ("NodeSLO", policy)):
        version = "slo.koordinator.sh/v1alpha1"
        node.apply({"apiVersion": version, "kind": kind, "metadata": {"name": NODE}, "spec": spec})
    if enforce:
        offer_batch(node, str((pods + room) * BATCH_MILLI), f"{(pods + room) * BATCH_MEBIBYTES}Mi")
        node.kubectl("annotate", "node", NODE, f"node.koordinator.sh/cpu-normalization-ratio={CPU_RATIO:.2f}")
    make = pod_of_a_class if enforce else _pod
    node.kubectl("apply", "-f", "-", given="\n".join(json.dumps(make(number)) for number in range(pods)))
    until(lambda: len(running(node)) == pods, _PODS_SECONDS)


def running(node: EnforcedNode) -> list[dict[str, Any]]:
    """The pods that are."""
    found: list[dict[str, Any]] = node.get("pods", namespace=NAMESPACE, query="?fieldSelector=status.phase=Running")[
        "items"
    ]
    return found


def _pod(number: int) -> dict[str, Any]:
    burns = number % 10 == 0
    container = {
        "command": ["/pause", "burn"] if burns else ["/pause"],
        "resources": {"requests": {"cpu": "1m"}, "limits": {"cpu": LIMIT}},
    }
    return pod_document(NODE, NAMESPACE, f"p{number}", container)


def pod_of_a_class(number: int) -> dict[str, Any]:
    """Every third pod is BE, LS or LSR; of the first two classes some burn CPU."""
    qos = qos_of(number)
    resources, annotations = resources_of(qos, "main")
    burns = number % 10 == 0 and qos != "LSR"
    container = {"command": ["/pause", "burn"] if burns else ["/pause"], "resources": resources}
    document = pod_document(NODE, NAMESPACE, f"p{number}", container, {"koordinator.sh/qosClass": qos})
    document["metadata"]["annotations"] = annotations
    return document


class _Stage:
    """The node with its pods, on which one agent after the other is measured."""

    def __init__(self, node: EnforcedNode, folder: Path, given: argparse.Namespace) -> None:
        self._node = node
        self._folder = folder
        self._given = given
        self._files: FilesRead | None = None

    def measure(self, name: str, command: Sequence[str]) -> dict[str, Any]:
        """``command`` is the agent of this name."""
        before = _updated(self._node)
        with agent(self._node, command, self._folder / name) as process:
            time.sleep(WARM_UP_SECONDS)
            found = self._window(process.pid)
            if self._given.crash_loop:
                found["with_crash_loop"] = self._with_crash_loop(process.pid)
            if name == "ours":
                calls = self._folder / "calls"
                calls.mkdir()
                self._files = files_read_by(process.pid, calls, _TRACED_SECONDS)
        if _updated(self._node) == before:
            log = (self._folder / name / "log").read_text()
            raise RuntimeError(f"{command[0]} has reported nothing: {log[-3000:]}")
        reported = self._node.get("nodemetrics", NODE)["status"].get("podsMetric", ())
        return found | {"pods_reported": len(reported)}

    def floor(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """After koordlet was measured, with what it used."""
        assert self._files is not None
        percent = floor_percent(self._files, self._folder)
        return figures(self._files, percent, ours["cpu_percent_of_core"])

    def _window(self, process_id: int) -> dict[str, Any]:
        used, others, started = usage_of(process_id).cpu_seconds, OtherLoad(), time.perf_counter()
        time.sleep(self._given.seconds)
        usage, seconds, others_busy = usage_of(process_id), time.perf_counter() - started, others.cores()
        return {
            "cpu_percent_of_core": round(100 * (usage.cpu_seconds - used) / seconds, 2),
            "resident_mebibytes": round(_resident_bytes(process_id) / _MEBI, 1),
            "peak_mebibytes": round(usage.peak_bytes / _MEBI, 1),
            # The pods and kubelet among them.
            "others_busy_cores": round(others_busy, 2),
            "load_average": os.getloadavg()[0],
        }

    def _with_crash_loop(self, process_id: int) -> dict[str, Any]:
        with _crashing(self._node, self._folder, self._given.crash_loop) as restarts:
            until(lambda: restarts() > 0, _PODS_SECONDS)
            time.sleep(_CRASH_LOOP_SECONDS)
            before = restarts()
            found = self._window(process_id)
            return found | {"restarts_per_second": round((restarts() - before) / self._given.seconds, 2)}


@contextmanager
def _crashing(node: EnforcedNode, folder: Path, pods: int) -> Iterator[Callable[[], int]]:
    """So many pods end as soon as they have started, in the block; how often they have been restarted so far."""
    crash = folder / "crash"
    if not crash.is_dir():
        crash.mkdir()
        source = "int main(void) { return 1; }"
        command = ["gcc", "-static", "-x", "c", "-o", str(crash / "crash"), "-"]
        subprocess.run(command, input=source, text=True, check=True)
    names = [f"crash{number}" for number in range(pods)]
    for name in names:
        container = {
            "command": ["/served/crash"],
            "volumeMounts": [{"name": "work", "mountPath": "/served"}],
            # They are not below the folder whose quota suppression lowers, so that they start at once.
            "resources": {"requests": {"cpu": "1m"}},
        }
        document = pod_document(NODE, NAMESPACE, name, container, {"koordinator.sh/qosClass": "LS"})
        document["spec"]["volumes"] = [{"name": "work", "hostPath": {"path": str(crash)}}]
        node.apply(document)

    def restarts() -> int:
        found = (node.get("pods", name, namespace=NAMESPACE)["status"] for name in names)
        return sum(each["restartCount"] for status in found for each in status.get("containerStatuses", ()))

    try:
        yield restarts
    finally:
        node.kubectl("delete", "pod", "-n", NAMESPACE, *names)


def _updated(node: EnforcedNode) -> str:
    return str(node.get("nodemetrics", NODE).get("status", {}).get("updateTime", ""))


@contextmanager
def agent(
    node: EnforcedNode, command: Sequence[str], folder: Path, nri: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """It runs in the block, with all that it keeps in ``folder``; with NRI at a socket."""
    folder.mkdir()
    address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
    flags = [
        *(f"--kubeconfig={node.kubeconfig}", f"--addr={address}", f"--pprof-addr={profiles}"),
        *(f"--audit-log-dir={folder}", f"--tsdb-path={folder}", f"--prediction-checkpoint-filepath={folder}"),
        *(f"--runtime-hooks-addr={folder}/k.sock", f"--runtime-hooks-config-path={folder}"),
        f"--enable-nri-runtime-hook={str(nri is not None).lower()}",
    ]
    if nri is not None:
        # The original's is below /var/run, wherever that is.
        flags.append(f"--runtime-hooks-nri-socket-path={os.path.relpath(nri, '/var/run')}")
    environment = {**os.environ, "NODE_NAME": node.name, "agent_mode": "hostMode"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *flags], env=environment, stdout=log, stderr=log)
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} has ended: {(folder / 'log').read_text()[-3000:]}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()


def _resident_bytes(process_id: int) -> int:
    status = (Path("/proc") / str(process_id) / "status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def until(condition: Callable[[], bool], seconds: float) -> None:
    given_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > given_up:
            raise RuntimeError(f"not all pods ran within {seconds:.0f} s")
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
