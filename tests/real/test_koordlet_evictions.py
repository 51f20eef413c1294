"""Both koordlets evict the same pods: ours and the Go original, at the same time, each for a node of its own that is a
folder. Pods that are evicted give back their memory there, so that each sees what its evictions bring about."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_ports
from tests.node.machine import FakeMachine
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import prepare
from tests.real.programs import RealPrograms
from tests.real.sandbox_node import OURS, koordlet, kubelet, log_of

Document = dict[str, Any]
SLO = "/apis/slo.koordinator.sh/v1alpha1"
NAMES = ("ours", "original")
"""Of the programs, of their nodes, and of the namespaces with the pods there."""
GIB = 1 << 30
TOTAL = 16 * GIB
ALLOCATABLE = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"}
GATES = ("BEMemoryEvict", "CPUAllocatableEvict", "MemoryAllocatableEvict")
MEMORY_STAT = [
    f"{prefix}{name}"
    for prefix in ("", "total_")
    for name in ("cache", "rss", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable")
]
QUIET_SECONDS = 5.0
"""More than a cool-down and a round."""
MOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PodCase:
    name: str
    used: float = 1.0
    """GiB of memory."""
    qos: str = "BE"
    priority: int | None = 5500
    requests: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def document(self, namespace: str) -> Document:
        resources = {"requests": dict(self.requests), "limits": dict(self.requests)}
        return {
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": {"koordinator.sh/qosClass": self.qos, **self.labels},
                "annotations": dict(self.annotations),
            },
            "spec": {
                "nodeName": namespace,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i", "resources": resources}],
            },
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    pods: Sequence[PodCase]
    thresholds: Mapping[str, Any]
    """Of ``resourceUsedThresholdWithBE``."""
    evicted: frozenset[str]
    """So that a comparison of nothing with nothing is noticed."""
    system: float = 0.0
    """GiB that no pod uses."""

    def __str__(self) -> str:
        return self.name


def be(name: str, used: float, priority: int | None = 5500, **fields: Any) -> PodCase:
    return PodCase(name, used, priority=priority, **fields)


def asking(name: str, cpu: int, memory: str, **fields: Any) -> PodCase:
    """A batch pod that may be evicted for what it requests."""
    labels = {"koordinator.sh/eviction-enabled": "true", **fields.pop("labels", {})}
    requests = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": memory}
    return PodCase(name, 0.1, requests=requests, labels=labels, **fields)


SEVENTY = {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 60}
BY_MEMORY_REQUESTS = {
    "memoryAllocatableEvictThresholdPercent": 100,
    "memoryAllocatableEvictLowerPercent": 80,
    "allocatableEvictPriorityThreshold": 5999,
}
BY_CPU_REQUESTS = {
    "cpuAllocatableEvictThresholdPercent": 100,
    "cpuAllocatableEvictLowerPercent": 75,
    "allocatableEvictPriorityThreshold": 5999,
}
LS = PodCase("ls", 3, "LS", 9500)

SCENARIOS = [
    Scenario("below the threshold", [be("a", 3), be("b", 3)], SEVENTY, frozenset(), 5),
    Scenario("not enabled", [be("a", 4), be("b", 3)], {**SEVENTY, "enable": False}, frozenset(), 8),
    Scenario("the default threshold", [be("a", 4), be("b", 3)], {}, frozenset({"a"}), 8),
    Scenario(
        "a lower percentage above the threshold",
        [be("a", 4), be("b", 3)],
        {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 80},
        frozenset(),
        8,
    ),
    Scenario("the largest first", [be("a", 1), be("b", 3), be("c", 2), LS], SEVENTY, frozenset({"b"}), 3.4),
    Scenario(
        "a low priority before a large one",
        [be("a", 1, 5100), be("b", 3, 5900), be("c", 2, 5500), LS],
        SEVENTY,
        frozenset({"a", "c"}),
        3.4,
    ),
    Scenario("all of them are not enough", [be("a", 1), be("b", 1), LS], SEVENTY, frozenset({"a", "b"}), 9),
    Scenario(
        "the threshold less two percent",
        [be("a", 0.2), be("b", 0.3), LS],
        {"memoryEvictThresholdPercent": 70},
        frozenset({"b", "a"}),
        8,
    ),
    Scenario(
        "a policy that leaves it out",
        [
            be("a", 1),
            be("b", 3, annotations={"koordinator.sh/eviction-policy": '["CPUAllocatableEvict"]'}),
            be("c", 2, annotations={"koordinator.sh/eviction-policy": '["BEMemoryEvict"]'}),
            LS,
        ],
        SEVENTY,
        frozenset({"c", "a"}),
        3.4,
    ),
    Scenario(
        "a policy that cannot be read",
        [be("a", 2), be("b", 3, annotations={"koordinator.sh/eviction-policy": "BEMemoryEvict"}), LS],
        SEVENTY,
        frozenset({"a"}),
        4.4,
    ),
    Scenario(
        "memory that is requested",
        [asking("a", 100, "4Gi"), asking("b", 100, "3Gi"), asking("c", 100, "2Gi")],
        BY_MEMORY_REQUESTS,
        frozenset({"a"}),
    ),
    Scenario(
        "memory that is requested, within the threshold",
        [asking("a", 100, "4Gi"), asking("b", 100, "3Gi"), asking("c", 100, "1Gi")],
        BY_MEMORY_REQUESTS,
        frozenset(),
    ),
    Scenario(
        "CPUs that are requested",
        [asking("a", 1500, "1Gi"), asking("b", 2000, "1Gi"), asking("c", 1000, "1Gi")],
        BY_CPU_REQUESTS,
        frozenset({"b"}),
    ),
    Scenario(
        "by eviction priority",
        [
            asking("a", 1500, "1Gi", annotations={"koordinator.sh/eviction-priority": "10"}),
            asking("b", 2000, "1Gi"),
            asking("c", 1600, "1Gi", annotations={"koordinator.sh/eviction-priority": "-10"}),
        ],
        BY_CPU_REQUESTS,
        frozenset({"c", "b"}),
    ),
    Scenario(
        "by priority",
        [
            asking("a", 1500, "1Gi", priority=5900),
            asking("b", 2000, "1Gi", priority=5800),
            asking("c", 1600, "1Gi", priority=5100),
        ],
        BY_CPU_REQUESTS,
        frozenset({"c", "b"}),
    ),
    Scenario(
        "by the label for the order within a class",
        [
            asking("a", 1500, "1Gi", labels={"koordinator.sh/priority": "1"}),
            asking("b", 2000, "1Gi", labels={"koordinator.sh/priority": "30"}),
            asking("c", 1600, "1Gi", labels={"koordinator.sh/priority": "20"}),
        ],
        BY_CPU_REQUESTS,
        frozenset({"a", "c"}),
    ),
    Scenario(
        "those above the priority stay",
        [asking("a", 3000, "1Gi", priority=5900), asking("b", 2500, "1Gi", priority=5100)],
        {**BY_CPU_REQUESTS, "allocatableEvictPriorityThreshold": 5500},
        frozenset(),
    ),
    Scenario(
        "those that nobody declared evictable stay",
        [
            asking("a", 3000, "1Gi", labels={"koordinator.sh/eviction-enabled": "false"}),
            asking("b", 2500, "1Gi"),
        ],
        BY_CPU_REQUESTS,
        frozenset({"b"}),
    ),
    Scenario(
        "production pods are never looked at",
        [asking("a", 3000, "1Gi"), asking("b", 2500, "1Gi")],
        {**BY_CPU_REQUESTS, "allocatableEvictPriorityThreshold": 9000},
        frozenset(),
    ),
]


class Node:
    """One program's: its folder, and the pods that its kubelet and the API server have."""

    def __init__(self, name: str, plane: ControlPlane, folder: Path) -> None:
        self.name = name
        self.machine = FakeMachine(folder / name)
        self.pods: list[Document] = []
        """As kubelet tells."""
        self._plane = plane
        self._path = f"/api/v1/namespaces/{name}/pods"
        self._used: dict[str, float] = {}
        self._system = 0.0
        self._lock = threading.Lock()
        self._create()

    def _create(self) -> None:
        self._must("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        amounts = {"cpu": str(os.cpu_count()), "memory": str(TOTAL), "pods": "10", **ALLOCATABLE}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        self._must("POST", "/api/v1/nodes", {"metadata": {"name": self.name}, "status": status})
        for kind in ("NodeSLO", "NodeMetric"):
            document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": self.name}}
            self._must("POST", f"{SLO}/{kind.lower()}s", {**document, "spec": {}})
        self.machine.write_cpus([(0, cpu, 0) for cpu in range(os.cpu_count() or 1)])
        self.machine.write_numa_memory(0, TOTAL >> 10)
        self.machine.write("/proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
        self.machine.write("/proc/cpuinfo", Path("/proc/cpuinfo").read_text())
        self._write_memory()

    def _must(self, method: str, path: str, document: Document) -> Document:
        code, answer = self._plane.request(method, path, document)
        assert code in (200, 201), answer.get("message")
        return answer

    def set_thresholds(self, thresholds: Mapping[str, Any]) -> None:
        spec = {"resourceUsedThresholdWithBE": thresholds}
        current = self._plane.request("GET", f"{SLO}/nodeslos/{self.name}")[1]
        self._must("PUT", f"{SLO}/nodeslos/{self.name}", {**current, "spec": spec})

    def start(self, scenario: Scenario) -> None:
        """The pods run, and use what they use."""
        with self._lock:
            self._plane.request("DELETE", self._path)
            self._system, self._used = scenario.system, {pod.name: pod.used for pod in scenario.pods}
            self.pods[:] = [self._run(pod) for pod in scenario.pods]
            self._write_memory()

    def _run(self, case: PodCase) -> Document:
        document = case.document(self.name)
        created = self._must("POST", self._path, document)
        # Kubelet knows the rest from elsewhere; the API server would ask for the class of a priority.
        created["spec"]["priority"] = case.priority
        identifier = f"{case.name:f>64}"
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        container = {"name": "c", "containerID": f"containerd://{identifier}", "state": state, "ready": True}
        qos = "Burstable" if case.qos == "LS" else "BestEffort"
        created["status"] = {"phase": "Running", "qosClass": qos, "containerStatuses": [container]}
        folder = f"kubepods/{qos.lower()}/pod{created['metadata']['uid']}"
        for path in (folder, f"{folder}/{identifier}"):
            self._write_cgroup(path, case.used)
        return created

    def _write_cgroup(self, folder: str, gib: float) -> None:
        amount = int(gib * GIB)
        anonymous = {"rss": amount, "active_anon": amount}
        stat = "".join(f"{each} {anonymous.get(each.removeprefix('total_'), 0)}\n" for each in MEMORY_STAT).strip()
        for path, content in {
            f"memory/{folder}/memory.usage_in_bytes": amount,
            f"memory/{folder}/memory.stat": stat,
            f"memory/{folder}/memory.limit_in_bytes": 9223372036854771712,
            f"cpuacct/{folder}/cpuacct.usage": 0,
            f"cpu/{folder}/cpu.cfs_quota_us": -1,
            f"cpu/{folder}/cpu.cfs_period_us": 100000,
            f"cpu/{folder}/cpu.shares": 2,
            f"cpu/{folder}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
            f"cpuset/{folder}/cpuset.cpus": "0",
        }.items():
            self.machine.write(f"/sys/fs/cgroup/{path}", f"{content}\n")

    def _write_memory(self) -> None:
        gib = self._system + sum(self._used.values())
        free = (TOTAL - int(gib * GIB)) >> 10
        self.machine.write(
            "/proc/meminfo", f"MemTotal: {TOTAL >> 10} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n"
        )
        for folder in ("", "kubepods", "kubepods/burstable", "kubepods/besteffort"):
            self._write_cgroup(folder, gib)

    def follow(self) -> set[str]:
        """The pods that the API server has no more; they use nothing any more, and kubelet has forgotten them."""
        with self._lock:
            there = {item["metadata"]["name"] for item in self._plane.request("GET", self._path)[1]["items"]}
            gone = self._used.keys() - there
            if any(each["metadata"]["name"] in gone for each in self.pods):
                self.pods[:] = [each for each in self.pods if each["metadata"]["name"] in there]
            used = {name: 0.0 if name in gone else gib for name, gib in self._used.items()}
            if used != self._used:
                self._used = used
                self._write_memory()
            return set(gone)


@pytest.fixture(scope="module")
def nodes(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Node]]:
    """Both programs at work, each on its node."""
    original = real_programs.original / "koordlet"
    if not original.is_file():
        pytest.skip(f"the original's koordlet is absent: put it into {real_programs.original}")
    folder = tmp_path_factory.mktemp("evictions")
    plane = ControlPlane(real_programs.kubernetes, folder / "cluster")
    address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
    gates = "--feature-gates=" + ",".join(f"{gate}=true" for gate in GATES) + ",BECPUSuppress=false,RdtResctrl=false"
    common = [gates, "--kubelet-sync-interval=1s", "--disable-query-kubelet-config", "--only-evict-by-api"]
    common += ["--memory-evict-cool-time-seconds=2", "--cpu-evict-cool-time-seconds=2"]
    programs = {
        "ours": (OURS, ["--addr=0"]),
        # It wants a port that is not 0 for each of its two servers.
        "original": ((str(original),), [f"-addr={address}", f"-pprof-addr={profiles}", "--logtostderr=true"]),
    }
    plane.start()
    with ExitStack() as running:
        running.callback(plane.stop)
        prepare(plane)
        made = [Node(name, plane, folder) for name in NAMES]
        for node in made:
            program, arguments = programs[node.name]
            port = running.enter_context(kubelet(node.pods))
            hooks = [f"--runtime-hooks-addr={folder}/{node.name}.sock", f"--runtime-hooks-config-path={folder}"]
            given = [*common, *arguments, *hooks, "--enable-nri-runtime-hook=false"]
            running.enter_context(koordlet(program, node.name, node.machine, port, plane.kubeconfig, given))
        yield made


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_same_pods_are_evicted(scenario: Scenario, nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.set_thresholds({"enable": False})
        node.start(scenario)
    time.sleep(QUIET_SECONDS / 2)  # Both know what is used now.
    for node in nodes:
        node.set_thresholds({"enable": True, **scenario.thresholds})
    gone = _until_quiet(nodes, scenario.evicted)
    logs = "".join(log_of(node.machine).read_text(errors="replace")[-3000:] for node in nodes)
    assert gone == {name: set(scenario.evicted) for name in NAMES}, json.dumps(gone, default=sorted) + logs


def _until_quiet(nodes: Sequence[Node], expected: frozenset[str]) -> dict[str, set[str]]:
    """What is gone by program, when nothing has changed for a while and it is as expected, or for long."""
    started = changed = time.monotonic()
    before: dict[str, set[str]] = {}
    while True:
        gone = {node.name: node.follow() for node in nodes}
        now = time.monotonic()
        if gone != before:
            before, changed = gone, now
        patience = QUIET_SECONDS if all(each == expected for each in gone.values()) else 3 * QUIET_SECONDS
        if now - changed > patience or now - started > MOST_SECONDS:
            return gone
        time.sleep(0.1)
