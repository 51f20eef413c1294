"""A batch pod that burns CPU on a real node is held down when an online pod wakes up, and released afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.modification import AUDIT_ACTION, SUPPRESSED, Modification, decode_record
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import NO_LIMIT, CgroupReader
from tests.real.manager_process import OURS, manager
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node

_NAMESPACE = "suppress-test"
_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_READER = CgroupReader(_LAYOUT, os.sysconf("SC_PAGESIZE"))
_BEST_EFFORT = _LAYOUT.qos("BestEffort")
_QUIET_SECONDS = 3.0
"""Two rounds, and two of kubelet's."""
_MOST_SECONDS = 40.0
_WHOLE = (os.cpu_count() or 1) * 100_000
"""Microseconds: the quota of all CPUs."""
_BATCH_CPU = {"kubernetes.io/batch-cpu": "4000"}
_LAST_CPU = (os.cpu_count() or 1) - 1
_FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpuset.cpus", "memory.limit_in_bytes")
_BY_QUOTA = {"cpuSuppressPolicy": "cfsQuota"}
_BY_CPUSET = {"cpuSuppressPolicy": "cpuset"}
_OFF = {"enable": False}
_SHARE = {"enable": True, "cpuSuppressThresholdPercent": 60, "cpuSuppressMinPercent": 60}
"""The least is the most, so that the load has no effect."""
_Step = tuple[str, dict[str, Any], str]
"""Name, policy, and the pod that has the last CPU."""
_STEPS: list[_Step] = [
    ("off", _OFF, ""),
    ("by quota", _BY_QUOTA, ""),
    ("by CPUs", _BY_CPUSET, ""),
    ("by quota again", _BY_QUOTA, ""),
    ("off again", _OFF, ""),
    ("a CPU of an LSR pod, by CPUs", _BY_CPUSET, "LSR"),
    ("a CPU of an LSR pod, by quota", _BY_QUOTA, "LSR"),
    ("off, and a CPU of an LSE pod", _OFF, "LSE"),
    ("a CPU of an LSE pod, by quota", _BY_QUOTA, "LSE"),
    ("off at the end", _OFF, ""),
]


class QuietMachine:
    """A copy of /proc in which nothing runs on the machine but its pods, so that other programs do not matter.

    The pods' CPU time is the kernel's own; it is copied many times while the agent reads once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._copy)
        for name in ("meminfo", "cpuinfo", "uptime", "zoneinfo", "swaps"):
            if Path("/proc", name).exists():
                shutil.copyfile(f"/proc/{name}", folder / name)
        self._write()

    def __enter__(self) -> QuietMachine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _copy(self) -> None:
        while not self._stop.wait(0.05):
            self._write()

    def _write(self) -> None:
        ticks = _READER.cpu_usage(_LAYOUT.kubepods) * os.sysconf("SC_CLK_TCK") // 10**9
        fresh = self.folder / "stat.new"
        fresh.write_text(f"cpu {ticks} 0 0 0 0 0 0 0 0 0\ncpu0 {ticks} 0 0 0 0 0 0 0 0 0\n")
        fresh.replace(self.folder / "stat")


@pytest.fixture(scope="module")
def node(real_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcedNode]:
    with real_node(real_cluster, tmp_path_factory.mktemp("node"), "suppress-node", _NAMESPACE) as made:
        status = json.dumps({"status": {"capacity": _BATCH_CPU, "allocatable": _BATCH_CPU}})
        made.kubectl("patch", "node", made.name, "--subresource=status", "--type=merge", "-p", status)
        made.run_pod(_pod("batch", made.name, "BE", requests={"kubernetes.io/batch-cpu": "1000"}))
        yield made


@pytest.fixture(scope="module")
def online(node: EnforcedNode) -> list[int]:
    """The processes of an online pod that burns a CPU whenever it is let; it is stopped."""
    pod = node.run_pod(_pod("online", node.name, "LS", requests={"cpu": "100m"}))
    folder = _LAYOUT.pod(pod["metadata"]["uid"], pod["status"]["qosClass"])
    # What else runs on the machine must not keep the pod from the CPU that it wants.
    for cgroup in (_LAYOUT.kubepods, _LAYOUT.qos("Burstable"), folder):
        Path(f"/sys/fs/cgroup/cpu/{cgroup}/cpu.shares").write_text("262144")
    containers = [entry.name for entry in Path(f"/sys/fs/cgroup/cpu/{folder}").iterdir() if entry.is_dir()]
    pids = [pid for name in containers for pid in _READER.processes(f"{folder}/{name}")]
    burning = [pid for pid in pids if b"burn" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert burning
    _signal(burning, signal.SIGSTOP)
    return burning


@pytest.fixture
def quiet(node: EnforcedNode, tmp_path: Path) -> Iterator[QuietMachine]:
    folder = tmp_path / "proc"
    folder.mkdir()
    with QuietMachine(folder) as machine:
        yield machine


def _pod(name: str, node_name: str, qos: str, *, requests: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "docker.io/library/pause:latest",
        "imagePullPolicy": "Never",
        "command": ["/pause", "burn"],
        "resources": {"requests": requests, "limits": requests if qos == "BE" else {}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "labels": {"koordinator.sh/qosClass": qos}},
        "spec": {
            "nodeName": node_name,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _set_policy(node: EnforcedNode, **threshold: Any) -> None:
    node.apply(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeSLO",
            "metadata": {"name": node.name},
            "spec": {"resourceUsedThresholdWithBE": {"cpuSuppressPolicy": "cfsQuota", **threshold}},
        }
    )


def _quota() -> int:
    return _READER.cpu_quota(_BEST_EFFORT)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def _stop(agent: subprocess.Popen[bytes], log: Path) -> None:
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(15) == 0, log.read_text()


def test_a_batch_pod_is_held_down_within_two_seconds_and_released(
    node: EnforcedNode, online: list[int], quiet: QuietMachine, tmp_path: Path
) -> None:
    _set_policy(node, enable=True, cpuSuppressThresholdPercent=65)
    log = tmp_path / "koordlet.log"
    agent = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}")
    try:
        until(lambda: _quota() != NO_LIMIT and _quota() >= _WHOLE * 0.55, 60)
        before = _quota()
        _signal(online, signal.SIGCONT)
        seconds = until(lambda: _quota() <= before - 30_000, 10)
        with _preferred_batch():
            until(lambda: _recorded(node), 30, "a record for the audit")
        _signal(online, signal.SIGSTOP)
        print(f"{before} -> {_quota()} us after {seconds:.2f} s")  # noqa: T201
        low = _quota()
        until(lambda: _quota() > low, 10)
        assert seconds <= 2.0
        _set_policy(node, enable=False)
        until(lambda: _quota() == NO_LIMIT, 5)
    finally:
        _signal(online, signal.SIGSTOP)
        _stop(agent, log)
    record = _recorded(node)[0]
    assert (record.node, record.cause.code, record.pods) == (node.name, "cfsQuota", [f"{_NAMESPACE}/batch"])
    assert 0 < record.numbers["cpus.least"] <= _WHOLE / 100_000


@contextmanager
def _preferred_batch() -> Iterator[None]:
    """What else runs on the machine does not keep best-effort pods from what their quota lets them use."""
    before = {file: file.read_text() for file in Path("/sys/fs/cgroup/cpu", _BEST_EFFORT).rglob("cpu.shares")}
    try:
        for file in before:
            file.write_text("262144")
        yield
    finally:
        for file, shares in before.items():
            file.write_text(shares)


def _recorded(node: EnforcedNode) -> list[Modification]:
    """That best-effort pods were held down."""
    label = f"{AUDIT_ACTION}={SUPPRESSED}"
    events = json.loads(node.kubectl("get", "events.v1.events.k8s.io", "-A", "-l", label, "-o", "json"))["items"]
    return [decode_record(convert(event["metadata"], ObjectMeta)) for event in events]


def _kill_an_agent_that_suppresses(node: EnforcedNode, quiet: QuietMachine, folder: Path) -> Path:
    """Its log. The quota that it has written stays."""
    _set_policy(node, enable=True, cpuSuppressThresholdPercent=65)
    log = folder / "koordlet.log"
    agent = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}")
    try:
        until(lambda: _quota() != NO_LIMIT, 60)
    finally:
        agent.kill()
        agent.wait(5)
    assert _quota() != NO_LIMIT
    return log


def test_an_agent_that_is_killed_converges_when_it_is_started_again(
    node: EnforcedNode, online: list[int], quiet: QuietMachine, tmp_path: Path
) -> None:
    log = _kill_an_agent_that_suppresses(node, quiet, tmp_path)
    _set_policy(node, enable=False)
    agent = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}")
    try:
        until(lambda: _quota() == NO_LIMIT, 60)
    finally:
        _stop(agent, log)


def test_what_a_killed_agent_enforced_is_taken_back(
    node: EnforcedNode, online: list[int], quiet: QuietMachine, tmp_path: Path
) -> None:
    log = _kill_an_agent_that_suppresses(node, quiet, tmp_path)
    cleanup = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}", "--cleanup")
    assert cleanup.wait(60) == 0, log.read_text()
    assert _quota() == NO_LIMIT


def test_an_agent_that_only_observes_writes_nothing(
    node: EnforcedNode, online: list[int], quiet: QuietMachine, tmp_path: Path
) -> None:
    _set_policy(node, enable=True, cpuSuppressThresholdPercent=65)
    before = _quota()
    log = tmp_path / "koordlet.log"
    agent = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}", "--observe-only")
    try:
        until(lambda: f"{_BEST_EFFORT}/cpu.cfs_quota_us would get" in log.read_text(), 60)
        assert _quota() == before
    finally:
        _stop(agent, log)


_ADAPTIVE = {
    "colocation-config": {"enable": True},
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65, **_BY_QUOTA},
    },
    "adaptive-slo-config": {
        "clusterStrategy": {
            "enable": True,
            "steps": 2,
            "holdSeconds": 1,
            "recoverSeconds": 1,
            "cpuSuppressFloorPercent": 25,
        }
    },
}


def _report(node: EnforcedNode, *findings: dict[str, Any]) -> bool:
    """What another agent of the node would report of the online pod. Whether there is a NodeMetric to write it to."""
    usage = {"resources": {"cpu": "100m", "memory": "64Mi"}}
    web = {"name": "online", "namespace": _NAMESPACE, "podUsage": usage}
    web["extensions"] = {"Object": {"interference": list(findings)}}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = {"updateTime": now, "nodeMetric": {"nodeUsage": usage}, "podsMetric": [web]}
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{node.name}/status"
    return node.administrator.request("PATCH", path, {"status": status})[0] == 200


@pytest.fixture
def adapting(node: EnforcedNode, tmp_path: Path) -> Iterator[None]:
    """koord-manager is at work, and takes the co-location of the node back when its online pods suffer."""
    system = "koordinator-system"
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": system}})
    data = {key: json.dumps(document) for key, document in _ADAPTIVE.items()}
    metadata = {"name": "slo-controller-config", "namespace": system}
    node.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    flags = ("--enable-leader-election=false", "--feature-gates=WebhookFramework=false")
    try:
        with manager(OURS, node.kubeconfig, tmp_path / "manager", arguments=flags):
            yield
    finally:
        node.kubectl("delete", "configmap", "slo-controller-config", "-n", system)
        _set_policy(node, enable=False)


def test_while_an_online_pod_suffers_batch_pods_are_held_down_further(
    node: EnforcedNode, online: list[int], quiet: QuietMachine, adapting: None, tmp_path: Path
) -> None:
    log = tmp_path / "koordlet.log"
    agent = node.start_koordlet(log, f"--proc-root-dir={quiet.folder}", "--enable-node-metric-report=false")
    finding = {"indicator": "cpu-pressure", "value": 42.1, "limit": 9.9}
    try:
        until(lambda: _report(node), 60)
        until(lambda: _quota() != NO_LIMIT and _quota() >= _WHOLE * 0.55, 60)
        until(lambda: _report(node, finding) and _quota() <= _WHOLE * 0.3, 60)
        until(lambda: _report(node) and _quota() >= _WHOLE * 0.55, 60)
    finally:
        _stop(agent, log)


def test_every_step_leaves_the_kernels_files_as_the_original_does(
    node: EnforcedNode, online: list[int], real_programs: RealPrograms, tmp_path: Path
) -> None:
    for qos in ("LSR", "LSE"):
        pinned = _pod(f"pinned-{qos.lower()}", node.name, qos, requests={"cpu": "100m"})
        pinned["spec"]["containers"][0]["command"] = ["/pause"]
        node.run_pod(pinned)
    flags = ("--kubelet-sync-interval=1s", "--node-topology-sync-interval=1s", "--feature-gates=RdtResctrl=false")
    with node.original(real_programs, tmp_path / "original", *flags):
        theirs = [_after(node, step, None) for step in _STEPS]
    # Or nothing would be compared with nothing.
    assert {left[_file("cpu.cfs_quota_us")] for left in theirs} == {str(NO_LIMIT), str(_WHOLE * 60 // 100)}
    assert len({left[_file("cpuset.cpus")] for left in theirs}) == 2
    log = tmp_path / "koordlet.log"
    agent = node.start_koordlet(log, *flags)
    try:
        ours = [_after(node, step, left) for step, left in zip(_STEPS, theirs, strict=True)]
    finally:
        _stop(agent, log)
    differing = {
        step[0]: {path: (left.get(path), other.get(path)) for path in left | other if left.get(path) != other.get(path)}
        for step, left, other in zip(_STEPS, ours, theirs, strict=True)
        if left != other
    }
    assert differing == {}, log.read_text()[-3000:]


def _after(node: EnforcedNode, step: _Step, expected: dict[str, str] | None) -> dict[str, str]:
    """What the files of best-effort pods show when they have been as expected, or unchanged if nothing is expected, for
    a while."""
    _, policy, pinned = step
    for qos in ("LSR", "LSE"):
        status = json.dumps({"cpuset": str(_LAST_CPU)}) if qos == pinned else ""
        annotation = f"scheduling.koordinator.sh/resource-status={status}"
        node.kubectl("annotate", "--overwrite", "pod", f"pinned-{qos.lower()}", "-n", _NAMESPACE, annotation)
    _set_policy(node, **(_SHARE | policy))
    shown, since, started = _shown(), time.monotonic(), time.monotonic()
    while time.monotonic() - started < _MOST_SECONDS:
        time.sleep(0.1)
        if (now := _shown()) != shown or (expected is not None and now != expected):
            shown, since = now, time.monotonic()
        if time.monotonic() - since > (_QUIET_SECONDS if expected is not None else 2 * _QUIET_SECONDS):
            break
    return shown


def _file(name: str) -> str:
    """Of the folder of best-effort pods, as a path."""
    return str(Path(_LAYOUT.folder(name.partition(".")[0], _BEST_EFFORT), name))


def _shown() -> dict[str, str]:
    """What the files of the folder of best-effort pods, and of all below, show, by their paths."""
    found: dict[str, str] = {}
    for controller in ("cpu", "cpuset", "memory"):
        root = Path(_LAYOUT.folder(controller, _BEST_EFFORT))
        for file in (path for path in sorted(root.rglob("*")) if path.name in _FILES):
            found[str(file)] = file.read_text().strip()
    return found
