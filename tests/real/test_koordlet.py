"""koordlet on a real node: containerd, runc and kubelet, with pods whose usage the kernel accounts for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader

_REPOSITORY = Path(__file__).resolve().parents[2]
_NODE = "koordlet-node"
_PODS = 5
_WINDOW = 60
"""Seconds that a report averages over."""


@dataclass(frozen=True)
class RealNode:
    kubeconfig: Path

    def kubectl(self, *arguments: str, given: str = "") -> str:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))


@pytest.fixture(scope="module")
def node(real_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A node with pods, of which one burns as much CPU as its quota of a tenth of a CPU gives it."""
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
    script = shared / "tools/real-node.sh"
    if not script.is_file():
        pytest.skip("there is no program that starts a real node")
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    if missing := [program for program in ("containerd", "runc", "gcc") if shutil.which(program) is None]:
        pytest.skip(f"apt-get install containerd runc containernetworking-plugins gcc: {missing[0]} is absent")
    folder = tmp_path_factory.mktemp("node")
    environment = {**os.environ, "NODE": _NODE}
    real = RealNode(real_cluster)
    try:
        subprocess.run([str(script), "up", str(folder), str(real_cluster)], env=environment, check=True, timeout=120)
        real.kubectl("apply", "-f", str(_REPOSITORY / "config/crd"))
        real.kubectl("create", "namespace", "koordlet-test")
        real.kubectl("apply", "-f", "-", given="\n".join(_manifest(number) for number in range(_PODS)))
        _until(lambda: len(_running(real)) == _PODS, 60)
        yield real
    finally:
        subprocess.run([str(script), "down", str(folder)], env=environment, check=False, timeout=120)
        real.kubectl("delete", "node", _NODE, "--ignore-not-found")
        real.kubectl("delete", "namespace", "koordlet-test", "--ignore-not-found", "--wait=false")


def _manifest(number: int) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "koordlet-test"},
            "spec": {
                "nodeName": _NODE,
                "hostNetwork": True,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "docker.io/library/pause:latest",
                        "imagePullPolicy": "Never",
                        "command": ["/pause", "burn"] if number == 0 else ["/pause"],
                        "resources": {"limits": {"cpu": "100m"}} if number == 0 else {},
                    }
                ],
            },
        }
    )


def _running(real: RealNode) -> list[dict[str, Any]]:
    pods = real.get("pods", "-n", "koordlet-test")["items"]
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def _until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the time limit"
        time.sleep(0.5)


def _start(real: RealNode, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "NODE_NAME": _NODE, "agent_mode": "hostMode"}
    command = [sys.executable, "-m", "koordinator.koordlet.main", f"--kubeconfig={real.kubeconfig}", "--addr=0"]
    with log.open("wb") as stderr:
        return subprocess.Popen(command, env=environment, stderr=stderr)


def test_the_report_agrees_with_the_kernels_counters(node: RealNode, tmp_path: Path) -> None:
    metric = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": _NODE},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": _WINDOW, "aggregateDurationSeconds": _WINDOW}},
    }
    node.kubectl("apply", "-f", "-", given=json.dumps(metric))
    burning = next(pod for pod in _running(node) if pod["metadata"]["name"] == "p0")
    layout = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    folder = layout.pod(burning["metadata"]["uid"], burning["status"]["qosClass"])
    log = tmp_path / "koordlet.log"
    agent = _start(node, log)
    try:
        started, used = time.monotonic(), reader.cpu_usage(folder)
        _until(lambda: "updateTime" in node.get("nodemetric", _NODE).get("status", {}), _WINDOW + 30)
        cores = (reader.cpu_usage(folder) - used) / (time.monotonic() - started) / 1e9
        status = node.get("nodemetric", _NODE)["status"]
        memory = reader.memory_stat(folder).usage
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()
    pods = {pod["name"]: pod["podUsage"]["resources"] for pod in status["podsMetric"]}
    assert set(pods) == {f"p{number}" for number in range(_PODS)}
    reported = int(pods["p0"]["cpu"].removesuffix("m")) / 1000
    # The two windows begin and end a second apart.
    assert reported == pytest.approx(cores, rel=0.05)
    assert _bytes(pods["p0"]["memory"]) == pytest.approx(memory, abs=os.sysconf("SC_PAGESIZE"))
    node_cores = status["nodeMetric"]["nodeUsage"]["resources"]["cpu"]
    assert node_cores != pods["p0"]["cpu"]
    assert datetime.now(UTC) - datetime.fromisoformat(status["updateTime"]) < timedelta(seconds=30)


def _bytes(quantity: str) -> int:
    return int(quantity.removesuffix("Ki")) * 1024 if quantity.endswith("Ki") else int(quantity)
