"""On a real kernel, koordlet names the batch pod that takes the CPUs from an online pod.

One agent goes by the pressure of cgroups, another one by how long threads wait. Pods are processes in cgroups of
version 1, with version 2 beside it; kubelet is a stand-in, so that the test waits for none that needs the real one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from koordinator.cli.main import main
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import prepare
from tests.real.polling import until
from tests.real.real_node import EnforcedNode
from tests.real.sandbox_node import kubelet

_NAMESPACE, _NODE = "default", "interference-node"
_MOUNTED = Path("/sys/fs/cgroup")
_HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "unified")
_WORKLOAD = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* workload BUSY PERIOD [FILE]: busy for BUSY of every PERIOD milliseconds; eight threads are always busy while there is
   FILE. */
static const char *file;
static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void burn(long long ns) {
  for (long long end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;) ;
}
static void *disturb(void *_) {
  for (;;) if (access(file, F_OK)) usleep(50000); else burn(20000000);
}
static void stop(int s) { _exit(0); }
int main(int argc, char **argv) {
  long long busy = atoll(argv[1]) * 1000000, period = atoll(argv[2]) * 1000000;
  signal(SIGTERM, stop);
  pthread_t thread;
  if (argc > 3) { file = argv[3]; for (int i = 0; i < 8; i++) pthread_create(&thread, 0, disturb, 0); }
  for (long long next = now(CLOCK_MONOTONIC);;) {
    burn(busy);
    next += period;
    long long rest = next - now(CLOCK_MONOTONIC);
    if (rest > 0) usleep(rest / 1000); else next -= rest;
  }
}
"""
_LEARNED = 40
"""Rounds of a second: thirty make a normal band."""
_GATES = "--feature-gates=InterferenceDetection=true,PSICollector={}"
_FAST = ("--interference-interval=1s", "--psi-collector-interval=1s", "--observe-only")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the pods' program, and the file that starts the antagonist."""
    made = tmp_path_factory.mktemp("shared")
    source = made / "workload.c"
    source.write_text(_WORKLOAD)
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", str(made / "workload"), str(source)], check=True)
    return made


class RealPods:
    """Processes in cgroups that are made as kubelet and runc make them, in a tree of their own: a kubelet that is at
    work on this machine does not notice. ``cgroups`` is what koordlet takes for the mounted hierarchies."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.cgroups = folder / "cgroups"
        self.documents: list[dict[str, Any]] = []
        self._shared = shared
        self._tree = f"interference-{os.getpid()}"
        self._made: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for name in ("", "/burstable", "/besteffort"):
            self._make(f"{self._tree}{name}")
        for hierarchy in _HIERARCHIES:
            (self.cgroups / hierarchy).mkdir(parents=True)
            (self.cgroups / hierarchy / "kubepods").symlink_to(_MOUNTED / hierarchy / self._tree)
        # What else runs on the pods' CPU must not count.
        self._give_weight("", 262144)
        self._give_weight("/burstable", 512)
        self._give_weight("/besteffort", 2)

    def _make(self, relative: str) -> None:
        for hierarchy in _HIERARCHIES:
            path = _MOUNTED / hierarchy / relative
            path.mkdir()
            self._made.append(path)
            for name in ("cpuset.mems", "cpuset.cpus") if hierarchy == "cpuset" else ():
                (path / name).write_text((path.parent / name).read_text())

    def _give_weight(self, below: str, shares: int) -> None:
        (_MOUNTED / "cpu" / f"{self._tree}{below}" / "cpu.shares").write_text(str(shares))

    def run(self, name: str, qos: str, kubernetes_qos: str, *arguments: str) -> None:
        """A pod of one container, with the workload in it."""
        pod = f"{self._tree}/{kubernetes_qos.lower()}/poduid-{name}"
        self._make(pod)
        self._make(f"{pod}/{name}")
        process = subprocess.Popen([str(self._shared / "workload"), *arguments])
        self._processes.append(process)
        # The rest of the machine keeps the other CPUs, and koordlet with it.
        (_MOUNTED / "cpuset" / pod / name / "cpuset.cpus").write_text(str((os.cpu_count() or 1) - 1))
        for hierarchy in _HIERARCHIES:
            (_MOUNTED / hierarchy / pod / name / "cgroup.procs").write_text(str(process.pid))
        self.documents.append(_document(name, qos, kubernetes_qos))

    def disturb(self) -> None:
        """With the weight that kubelet gives best-effort pods, they would disturb nobody."""
        self._give_weight("/besteffort", 8192)
        (self._shared / "go").touch()

    def end_disturbance(self) -> None:
        (self._shared / "go").unlink(missing_ok=True)

    def end(self) -> None:
        self.end_disturbance()
        for process in self._processes:
            process.kill()
            process.wait()
        for path in reversed(self._made):
            path.rmdir()


def _document(name: str, qos: str, kubernetes_qos: str) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"name": "main", "containerID": f"containerd://{name}", "state": state, "ready": True}
    return {
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "uid": f"uid-{name}",
            "labels": {"koordinator.sh/qosClass": qos},
        },
        "spec": {"nodeName": _NODE, "containers": [{"name": "main", "image": "i", "resources": {}}]},
        "status": {"phase": "Running", "qosClass": kubernetes_qos, "containerStatuses": [container]},
    }


@pytest.fixture(scope="module")
def pods(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPods]:
    """An online pod with a rhythm, three batch pods, and one that becomes an antagonist when it is told to."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    if missing := [name for name in _HIERARCHIES if not (_MOUNTED / name).is_dir()]:
        pytest.skip(f"cgroups are not of version 1 with version 2 beside it: there is no {_MOUNTED / missing[0]}")
    made = RealPods(tmp_path_factory.mktemp("node"), folder)
    try:
        made.run("web", "LS", "Burstable", "30", "100")
        for number in range(3):
            made.run(f"batch-{number}", "BE", "BestEffort", str(5 * number + 5), "100")
        made.run("antagonist", "BE", "BestEffort", "5", "100", str(folder / "go"))
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def node(real_control_plane: ControlPlane) -> EnforcedNode:
    """The node that the pods are told to be on."""
    prepare(real_control_plane)
    made = EnforcedNode(real_control_plane.kubeconfig, _NODE)
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": "16Gi", "pods": "10"}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
    code, answer = real_control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}, "status": status})
    assert code == 201, answer
    policy = {"reportIntervalSeconds": 2, "aggregateDurationSeconds": 10}
    header = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": _NODE}}
    made.apply({**header, "spec": {"metricCollectPolicy": policy}})
    return made


class Agent:
    """A koordlet that takes a reading every second, and changes nothing."""

    def __init__(self, node: EnforcedNode, folder: Path, *flags: str) -> None:
        folder.mkdir()
        self.log = folder / "log"
        (self.port,) = free_ports(1)
        address = f"--addr=127.0.0.1:{self.port}"
        forecasts = f"--prediction-checkpoint-filepath={folder}/forecasts"
        self._process = node.start_koordlet(self.log, address, forecasts, *_FAST, *flags)

    def rounds(self) -> float:
        """How often pods were compared with what is normal for them."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if _counts_rounds(line))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(15) == 0, self.log.read_text()


def _counts_rounds(line: str) -> bool:
    return "loop_duration_seconds_count" in line and 'loop="interference"' in line


def _findings(node: EnforcedNode) -> list[dict[str, Any]]:
    """Of the online pod, in the NodeMetric."""
    pods = node.get("nodemetric", node.name).get("status", {}).get("podsMetric", [])
    web = [pod for pod in pods if pod["name"] == "web"]
    return [each for pod in web for each in pod.get("extensions", {}).get("Object", {}).get("interference", [])]


def _told(node: EnforcedNode, indicator: str) -> list[str]:
    """What events say of the online pod, by one indicator, in their order."""
    events = node.get("events", "-n", _NAMESPACE)["items"]
    found = [each for each in events if each["reason"] == "InterferenceDetected"]
    found.sort(key=lambda event: event["metadata"]["creationTimestamp"])
    return [each["message"] for each in found if each["message"].startswith(f"{indicator} is ")]


def _is_told(node: EnforcedNode) -> bool:
    """By events of both agents, and in the NodeMetric."""
    in_events = all(_told(node, name) for name in ("cpu-pressure", "cpu-wait"))
    return in_events and any(each["indicator"] == "cpu-pressure" for each in _findings(node))


@pytest.fixture(scope="module")
def disturbed(node: EnforcedNode, pods: RealPods, tmp_path_factory: pytest.TempPathFactory) -> EnforcedNode:
    """The node after the antagonist was at work. One agent goes by pressure, and reports; the other one has none."""
    logs = tmp_path_factory.mktemp("agents")
    with kubelet(pods.documents) as port, ExitStack() as running:
        common = (f"--cgroup-root-dir={pods.cgroups}", "--kubelet-insecure-tls", f"--kubelet-read-only-port={port}")
        agents = [
            Agent(node, logs / "pressure", *common, _GATES.format("true")),
            Agent(node, logs / "threads", *common, _GATES.format("false"), "--enable-node-metric-report=false"),
        ]
        for agent in agents:
            running.callback(agent.stop)
        until(lambda: all(agent.rounds() >= _LEARNED for agent in agents), 180)
        pods.disturb()
        until(lambda: _is_told(node), 60)
        pods.end_disturbance()
    return node


@pytest.mark.parametrize("indicator", ["cpu-pressure", "cpu-wait"])
def test_an_event_names_the_antagonist(disturbed: EnforcedNode, indicator: str) -> None:
    notes = _told(disturbed, indicator)
    assert notes
    assert f"suspect: BE pod {_NAMESPACE}/antagonist (correlation" in notes[-1]
    assert notes[-1].endswith("advice: suppress it")


def test_the_node_metric_names_the_antagonist_first(disturbed: EnforcedNode) -> None:
    (finding,) = [each for each in _findings(disturbed) if each["indicator"] == "cpu-pressure"]
    first = finding["suspects"][0]
    assert (first["pod"], first["advice"]) == (f"{_NAMESPACE}/antagonist", "suppress")
    assert first["correlation"] >= 0.35


def test_the_explanation_names_the_antagonist(disturbed: EnforcedNode, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = f"--kubeconfig={disturbed.kubeconfig}"
    assert main(["explain", "interference", disturbed.name, "-o", "json", kubeconfig]) == 0
    victims = json.loads(capsys.readouterr().out)["victims"]
    (victim,) = [each for each in victims if each["indicator"] == "cpu-pressure"]
    assert victim["pod"] == f"{_NAMESPACE}/web"
    assert victim["suspects"][0]["pod"] == f"{_NAMESPACE}/antagonist"
