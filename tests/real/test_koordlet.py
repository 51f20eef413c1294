"""koordlet on a real node: containerd, runc and kubelet, with pods whose usage the kernel accounts for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordinator.base.protobuf_wire import contents, text, texts
from koordinator.koordlet.report.pod_resources_proxy import SOCKET
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from tests.free_ports import free_ports
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node

_NODE = "koordlet-node"
_PODS = int(os.environ.get("KOORDINATOR_TEST_PODS", "30"))
"""kubelet takes 110 on a node; a hundred need minutes to start."""
_BEST_EFFORT = Path("/sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us")
_WINDOW = 60
"""Seconds that a report averages over."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the node's programs."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def node(real_cluster: Path, folder: Path) -> Iterator[EnforcedNode]:
    """A node with pods, of which one burns as much CPU as its quota of a tenth of a CPU gives it."""
    with real_node(real_cluster, folder, _NODE, "koordlet-test") as real:
        real.kubectl("apply", "-f", "-", given="\n".join(_manifest(number) for number in range(_PODS)))
        # What suppression by quota writes.
        _until(_BEST_EFFORT.is_file, 60)
        _BEST_EFFORT.write_text("10000")
        _until(lambda: len(_running(real)) == _PODS, 60 + 6 * _PODS)
        yield real


def _manifest(number: int) -> str:
    """Pod 0 burns CPU up to its limit; pod 1 burns CPU as best effort, and has no limit of its own."""
    labels = {"koordinator.sh/qosClass": "BE"} if number == 1 else {}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "koordlet-test", "labels": labels},
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
                        "command": ["/pause", "burn"] if number < 2 else ["/pause"],
                        "resources": {"limits": {"cpu": "100m"}} if number == 0 else {},
                    }
                ],
            },
        }
    )


def _running(real: EnforcedNode) -> list[dict[str, Any]]:
    pods = real.get("pods", namespace="koordlet-test")["items"]
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def _until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the time limit"
        time.sleep(0.5)


def _start(real: EnforcedNode, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "NODE_NAME": _NODE, "agent_mode": "hostMode"}
    # It would take back the quota of best-effort pods that the fixture has set.
    observing = (f"--kubeconfig={real.kubeconfig}", "--observe-only", "--runtime-hooks-addr=", *arguments)
    forecasts = f"--prediction-checkpoint-filepath={log.parent}/forecasts"
    command = [sys.executable, "-m", "koordinator.koordlet", forecasts, *observing]
    with log.open("wb") as stderr:
        return subprocess.Popen(command, env=environment, stderr=stderr)


def _want_reports(node: EnforcedNode, name: str) -> None:
    policy = {"reportIntervalSeconds": _WINDOW, "aggregateDurationSeconds": _WINDOW}
    header = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    node.apply({**header, "spec": {"metricCollectPolicy": policy}})


def _other_name(node: EnforcedNode) -> str:
    """Another Node of the same machine and kubelet, so that two agents report beside each other."""
    name = f"{_NODE}-original"
    node.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    known = node.get("nodes", _NODE)["status"]
    shared = {key: known[key] for key in ("addresses", "daemonEndpoints", "capacity", "allocatable", "nodeInfo")}
    node.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": shared}))
    _want_reports(node, name)
    return name


def test_the_report_agrees_with_the_original_in_the_same_minute(
    node: EnforcedNode, real_programs: RealPrograms, tmp_path: Path
) -> None:
    _want_reports(node, _NODE)
    other, before = _other_name(node), node.get("nodemetrics", _NODE).get("status", {}).get("updateTime")
    log = tmp_path / "koordlet.log"
    try:
        with node.original(real_programs, tmp_path / "original", name=other):
            agent = _start(node, log, "--addr=0")
            try:
                _until(lambda: "updateTime" in node.get("nodemetrics", other).get("status", {}), _WINDOW + 60)
                _until(
                    lambda: node.get("nodemetrics", _NODE).get("status", {}).get("updateTime") != before, _WINDOW + 60
                )
                ours, theirs = (_used(node.get("nodemetrics", name)["status"]) for name in (_NODE, other))
            finally:
                agent.send_signal(signal.SIGTERM)
                assert agent.wait(10) == 0, log.read_text()
    finally:
        node.kubectl("delete", "node", other, "--ignore-not-found")
    assert ours.keys() == theirs.keys()
    for name in ("p0", "p1"):
        # Both held at a tenth of a CPU, over minutes that begin some seconds apart.
        assert ours[name][0] == pytest.approx(theirs[name][0], rel=0.03), name
    for name, (_, memory) in theirs.items():
        assert ours[name][1] == pytest.approx(memory, abs=os.sysconf("SC_PAGESIZE")), name


def _used(status: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Cores and bytes by pod."""
    return {
        pod["name"]: (_cores(pod["podUsage"]["resources"]["cpu"]), _bytes(pod["podUsage"]["resources"]["memory"]))
        for pod in status["podsMetric"]
    }


def _cores(quantity: str) -> float:
    units = {"m": 1e-3, "u": 1e-6, "n": 1e-9}
    return float(quantity[:-1]) * units[quantity[-1]] if quantity[-1] in units else float(quantity)


def test_the_report_agrees_with_the_kernels_counters(node: EnforcedNode, tmp_path: Path) -> None:
    _want_reports(node, _NODE)
    before = node.get("nodemetrics", _NODE).get("status", {}).get("updateTime")
    burning = next(pod for pod in _running(node) if pod["metadata"]["name"] == "p0")
    layout = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    folder = layout.pod(burning["metadata"]["uid"], burning["status"]["qosClass"])
    log = tmp_path / "koordlet.log"
    agent = _start(node, log, "--addr=0")
    try:
        started, used = time.monotonic(), reader.cpu_usage(folder)
        _until(lambda: node.get("nodemetrics", _NODE).get("status", {}).get("updateTime") != before, _WINDOW + 30)
        cores = (reader.cpu_usage(folder) - used) / (time.monotonic() - started) / 1e9
        status = node.get("nodemetrics", _NODE)["status"]
        memory = reader.memory_stat(folder).usage
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()
    pods = {pod["name"]: pod["podUsage"]["resources"] for pod in status["podsMetric"]}
    assert set(pods) == {f"p{number}" for number in range(_PODS)}
    reported = _cores(pods["p0"]["cpu"])
    assert reported == pytest.approx(cores, rel=0.02)
    assert _bytes(pods["p0"]["memory"]) == pytest.approx(memory, abs=os.sysconf("SC_PAGESIZE"))
    node_cores = status["nodeMetric"]["nodeUsage"]["resources"]["cpu"]
    assert node_cores != pods["p0"]["cpu"]
    assert datetime.now(UTC) - datetime.fromisoformat(status["updateTime"]) < timedelta(seconds=30)


def _bytes(quantity: str) -> int:
    return int(quantity.removesuffix("Ki")) * 1024 if quantity.endswith("Ki") else int(quantity)


@pytest.fixture
def host_application() -> Iterator[str]:
    """A program beside Kubernetes that uses a tenth of a CPU; its name."""
    name = "koordlet-test"
    folders = [Path(f"/sys/fs/cgroup/{part}/host-latency-sensitive/{name}") for part in ("cpu", "cpuacct", "memory")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    (folders[0] / "cpu.cfs_quota_us").write_text("10000")
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for folder in folders:
            (folder / "cgroup.procs").write_text(str(program.pid))
        yield name
    finally:
        program.kill()
        program.wait()
        for folder in folders:
            _until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), 10)
            folder.rmdir()
            folder.parent.rmdir()


def test_metrics_of_best_effort_pods_and_host_applications(
    node: EnforcedNode, host_application: str, tmp_path: Path
) -> None:
    applications = [{"name": host_application, "qos": "LS", "priority": "koord-prod"}]
    slo = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": _NODE},
        "spec": {"hostApplications": applications},
    }
    node.kubectl("apply", "-f", "-", given=json.dumps(slo))
    (port,) = free_ports(1)
    log = tmp_path / "koordlet.log"
    agent = _start(node, log, f"--addr=127.0.0.1:{port}")
    seen: list[dict[str, float]] = []
    try:
        _until(lambda: _scraped(port, "metrics", seen), 60)
        before, began = _counters(host_application), time.monotonic()
        _until(lambda: len(_scraped(port, "metrics", seen)) > 20, 60)
        after, took = _counters(host_application), time.monotonic() - began
        internal, external = (_scraped(port, path, []) for path in ("internal-metrics", "external-metrics"))
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()
    best_effort = f'koordlet_be_suppress_be_used_cpu_cores{{node="{_NODE}"}}'
    application = (
        f'koordlet_host_application_resource_usage{{host_application_name="{host_application}",node="{_NODE}",'
        f'priority_class="koord-prod",qos="LS",resource="cpu"}}'
    )
    for name, first, last in zip((best_effort, application), before, after, strict=True):
        cores = sum(sample[name] for sample in seen) / len(seen)
        # A second has ten periods of the quota, and a sample may see one more or less. On a busy machine it gets less
        # than its quota.
        assert cores == pytest.approx((last - first) / took / 1e9, abs=0.02), name
        assert 0.01 < cores < 0.12, name
    assert seen[-1][f'koordlet_node_used_cpu_cores{{node="{_NODE}"}}'] > 0.2
    assert best_effort in internal[-1]
    assert not internal[-1].keys() & external[-1].keys()


def _counters(application: str) -> list[int]:
    """Nanoseconds of CPU that best-effort pods and the application have used."""
    folders = ("kubepods/besteffort", f"host-latency-sensitive/{application}")
    return [int(Path(f"/sys/fs/cgroup/cpuacct/{folder}/cpuacct.usage").read_text()) for folder in folders]


def _scraped(port: int, path: str, seen: list[dict[str, float]]) -> list[dict[str, float]]:
    """One more sample, once host applications have been measured."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as response:
            lines = response.read().decode().splitlines()
    except OSError:
        return seen
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    sample = {name: float(value) for name, value in pairs}
    if path != "metrics" or any(name.startswith("koordlet_host_application_resource_usage") for name in sample):
        seen.append(sample)
    return seen


def test_a_new_pod_is_noticed_though_kubelet_would_be_queried_in_an_hour(node: EnforcedNode, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    log = tmp_path / "koordlet.log"
    agent = _start(node, log, f"--addr=127.0.0.1:{port}", "--kubelet-sync-interval=1h")
    series = f'koordlet_metric_cache_series{{node="{_NODE}"}}'

    def count() -> float:
        found = _scraped(port, "internal-metrics", [])
        return found[-1].get(series, 0) if found else 0

    try:
        _until(lambda: count() > 2 * _PODS, 60)
        before = count()
        node.kubectl("apply", "-f", "-", given=_manifest(_PODS))
        # CPU, memory and throttling of the pod.
        _until(lambda: count() >= before + 3, 60)
    finally:
        node.kubectl("delete", "pod", f"p{_PODS}", "-n", "koordlet-test", "--ignore-not-found")
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()


def test_the_audit_log_over_http(node: EnforcedNode, tmp_path: Path) -> None:
    """What is recorded, tests of the parts that record it say; here, that it is served."""
    (tmp_path / "audit.log").write_text('{"type":"node","reason":"first"}\n{"type":"node","reason":"second"}\n')
    (port,) = free_ports(1)
    log = tmp_path / "koordlet.log"
    gates = "--feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true"
    agent = _start(node, log, f"--addr=127.0.0.1:{port}", gates, f"--audit-log-dir={tmp_path}")
    try:
        _until(lambda: _scraped(port, "internal-metrics", []), 60)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/events?size=1", headers={"Accept": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as response:
            page = json.load(response)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/events?pageToken={page['NextPageToken']}") as response:
            rest = response.read().decode()
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()
    assert [event["reason"] for event in page["Events"]] == ["second"]
    assert rest == '{"type":"node","reason":"first"}\n'


def test_the_pod_resources_of_kubelet_with_devices_of_the_scheduler(
    node: EnforcedNode, folder: Path, tmp_path: Path
) -> None:
    allocated = json.dumps({"gpu": [{"minor": 0, "id": "GPU-0"}]})
    annotation = f"scheduling.koordinator.sh/device-allocated={allocated}"
    node.kubectl("annotate", "pod", "p2", "-n", "koordlet-test", annotation)
    log, served = tmp_path / "koordlet.log", tmp_path / "served"
    flags = (f"--pod-resources-proxy-path={served}", f"--var-lib-kubelet-dir={folder}/kubelet")
    agent = _start(node, log, "--addr=0", "--feature-gates=PodResourcesProxy=true", *flags)
    try:
        _until((served / SOCKET).is_socket, 60)
        # Kubelet hears of the annotation by its watch.
        _until(lambda: _devices(served).get("p2"), 30)
        devices = _devices(served)
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0, log.read_text()
    assert devices == {f"p{number}": ["GPU-0"] if number == 2 else [] for number in range(_PODS)}


def _devices(served: Path) -> dict[str, list[str]]:
    """IDs by pod, as another implementation of gRPC is answered."""
    with grpc.insecure_channel(f"unix://{served}/{SOCKET}") as channel:
        response = channel.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=10)
    return {
        text(pod, 1): [
            identifier
            for container in contents(pod, 3)
            for entry in contents(container, 2)
            for identifier in texts(entry, 2)
        ]
        for pod in contents(response, 1)
    }
