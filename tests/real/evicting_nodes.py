"""Nodes that are folders, from which our koordlet and the Go original evict pods at the same time, each from its own.

Pods that are evicted give back what they use there, so that each program sees what its evictions bring about.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.node.machine import FakeMachine
from tests.real.control_plane import ControlPlane
from tests.real.cpu_counters import CPUCounters
from tests.real.manager_cluster import prepare
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.sandbox_node import both_koordlets, log_of, pretended_lscpu

Document = dict[str, Any]
SLO = "/apis/slo.koordinator.sh/v1alpha1"
NAMES = ("ours", "original")
"""Of the programs, of their nodes, and of the namespaces with the pods there."""
GIB = 1 << 30
TOTAL = 16 * GIB
CPUS = 10
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
ALLOCATABLE = {BATCH_CPU: "4000", BATCH_MEMORY: "8Gi"}
BEST_EFFORT = "kubepods/besteffort"
NO_QUOTA = -1
MEMORY_STAT = [
    f"{prefix}{name}"
    for prefix in ("", "total_")
    for name in ("cache", "rss", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable")
]
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
    cores: float = 0.0
    """That it uses."""

    def document(self, namespace: str) -> Document:
        resources = {"requests": dict(self.requests), "limits": dict(self.requests)}
        return {
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": {"koordinator.sh/qosClass": self.qos, "app": self.name, **self.labels},
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
    system_cores: float = 0.0
    limit: float = 0.0
    """Cores that CPU suppress, where its gate is on, leaves best-effort pods; 0 if it is not to do anything."""
    kept: str = ""
    """A pod that a disruption budget keeps."""

    def __str__(self) -> str:
        return self.name


class Node:
    """One program's: its folder, and the pods that its kubelet and the API server have."""

    def __init__(self, name: str, plane: ControlPlane, folder: Path, counters: CPUCounters) -> None:
        self.name = name
        self.machine = FakeMachine(folder / name)
        self.pods: list[Document] = []
        """As kubelet tells."""
        self.gone_at: dict[str, float] = {}
        """When it was seen that a pod is gone."""
        self._plane = plane
        self._counters = counters
        self._path = f"/api/v1/namespaces/{name}/pods"
        self._budgets = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
        self._cases: dict[str, PodCase] = {}
        """Those that use something."""
        self._system = self._system_cores = 0.0
        self._create()

    def _create(self) -> None:
        self._must("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        amounts = {"cpu": str(CPUS), "memory": str(TOTAL), "pods": "10", **ALLOCATABLE}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        self._must("POST", "/api/v1/nodes", {"metadata": {"name": self.name}, "status": status})
        for kind in ("NodeSLO", "NodeMetric"):
            document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": self.name}}
            self._must("POST", f"{SLO}/{kind.lower()}s", {**document, "spec": {}})
        self.machine.write_cpus([(0, cpu, 0) for cpu in range(CPUS)])
        self.machine.write_numa_memory(0, TOTAL >> 10)
        self.machine.write("/proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
        self.machine.write("/proc/cpuinfo", Path("/proc/cpuinfo").read_text())
        for qos in ("", "kubepods", "kubepods/burstable", BEST_EFFORT):
            self._write_cpu(qos)
        self._write_usage()

    def _must(self, method: str, path: str, document: Document) -> Document:
        code, response = self._plane.request(method, path, document)
        assert code in (200, 201), response.get("message")
        return response

    def set_thresholds(self, thresholds: Mapping[str, Any]) -> None:
        spec = {"resourceUsedThresholdWithBE": thresholds}
        current = self._plane.request("GET", f"{SLO}/nodeslos/{self.name}")[1]
        self._must("PUT", f"{SLO}/nodeslos/{self.name}", {**current, "spec": spec})

    def start(self, scenario: Scenario) -> None:
        """The pods run, and use what they use."""
        self._plane.request("DELETE", self._budgets)
        self._plane.request("DELETE", self._path)
        self._cases = {pod.name: pod for pod in scenario.pods}
        self._system, self._system_cores = scenario.system, scenario.system_cores
        self.gone_at = {}
        self.pods[:] = [self._run(pod) for pod in scenario.pods]
        if scenario.kept:
            self._keep(scenario.kept)
        self._write_usage()

    def use(self, system_cores: float) -> None:
        """From now on, what is no pod uses so much."""
        self._system_cores = system_cores
        self._write_usage()

    def _keep(self, name: str) -> None:
        """By a disruption budget that allows nothing.

        No controller is there to find that out, and no kubelet to tell that the pod runs: no budget counts for others.
        """
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._must("PATCH", f"{self._path}/{name}/status", {"status": running})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
        made = self._must("POST", self._budgets, {"metadata": {"name": name}, "spec": spec})
        counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        status = {"observedGeneration": made["metadata"]["generation"], **counts}
        self._must("PUT", f"{self._budgets}/{name}/status", {**made, "status": status})

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
        for path in _folders(created):
            self._write_cpu(path)
        return created

    def _write_cpu(self, folder: str) -> None:
        """Of a cgroup: what does not change while it is there. The counters are another's to write."""
        cgroups = Path(self.machine.host.cgroup)
        for path, content in {
            f"cpuacct/{folder}/cpuacct.usage": 0,
            f"cpu/{folder}/cpu.cfs_quota_us": NO_QUOTA,
            f"cpu/{folder}/cpu.cfs_period_us": 100000,
            f"cpu/{folder}/cpu.shares": 2,
            f"cpu/{folder}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
            f"cpuset/{folder}/cpuset.cpus": f"0-{CPUS - 1}",
        }.items():
            if not (path.endswith("usage") and (cgroups / path).exists()):
                self.machine.write(f"/sys/fs/cgroup/{path}", f"{content}\n")

    def _write_memory(self, folder: str, gib: float) -> None:
        amount = int(gib * GIB)
        anonymous = {"rss": amount, "active_anon": amount}
        stat = "".join(f"{each} {anonymous.get(each.removeprefix('total_'), 0)}\n" for each in MEMORY_STAT).strip()
        for path, content in {
            f"memory/{folder}/memory.usage_in_bytes": amount,
            f"memory/{folder}/memory.stat": stat,
            f"memory/{folder}/memory.limit_in_bytes": 9223372036854771712,
        }.items():
            self.machine.write(f"/sys/fs/cgroup/{path}", f"{content}\n")

    def _write_usage(self) -> None:
        gib = self._system + sum(case.used for case in self._cases.values())
        free = (TOTAL - int(gib * GIB)) >> 10
        self.machine.write(
            "/proc/meminfo", f"MemTotal: {TOTAL >> 10} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n"
        )
        for folder in ("", "kubepods", "kubepods/burstable", BEST_EFFORT):
            self._write_memory(folder, gib)
        cores: dict[str, float] = {BEST_EFFORT: sum(case.cores for case in self._cases.values() if case.qos == "BE")}
        for pod in self.pods:
            case = self._cases.get(pod["metadata"]["name"])
            for folder in _folders(pod):
                if case is not None:
                    self._write_memory(folder, case.used)
                    cores[folder] = case.cores
        used = sum(case.cores for case in self._cases.values())
        self._counters.run(self.machine, cores, used + self._system_cores)

    def refresh(self) -> set[str]:
        """The pods that the API server has no more; they use nothing any more, and kubelet has forgotten them."""
        there = {item["metadata"]["name"] for item in self._plane.request("GET", self._path)[1]["items"]}
        for name in self._cases.keys() - there:
            del self._cases[name]
            self.gone_at[name] = time.monotonic()
            self.pods[:] = [each for each in self.pods if each["metadata"]["name"] in there]
            self._write_usage()
        return set(self.gone_at)


def _folders(pod: Document) -> tuple[str, str]:
    """Of the pod and of its container."""
    status = pod["status"]
    folder = f"kubepods/{status['qosClass'].lower()}/pod{pod['metadata']['uid']}"
    return folder, f"{folder}/{status['containerStatuses'][0]['containerID'].rpartition('/')[2]}"


class Evictions:
    """Both programs at work, each on its node."""

    def __init__(self, nodes: Sequence[Node], quiet_seconds: float) -> None:
        """``quiet_seconds`` are more than a cool-down and a round."""
        self.nodes = nodes
        self._quiet_seconds = quiet_seconds

    def check(self, scenario: Scenario) -> None:
        """AssertionError unless each program evicts what the scenario says."""
        self.begin(scenario)
        gone = self.until_quiet(scenario.evicted)
        logs = "".join(log_of(node.machine).read_text(errors="replace")[-3000:] for node in self.nodes)
        assert gone == {name: set(scenario.evicted) for name in NAMES}, json.dumps(gone, default=sorted) + logs

    def begin(self, scenario: Scenario) -> None:
        for node in self.nodes:
            node.set_thresholds({"enable": False})
            node.start(scenario)
        limit: Document = {"enable": False}
        if scenario.limit:
            # What it leaves at least is all that it leaves, so that the load has no effect.
            percent = round(scenario.limit / CPUS * 100)
            limit = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": percent}
            limit["cpuSuppressMinPercent"] = percent
        self._until_quota(NO_QUOTA)
        for node in self.nodes:
            node.set_thresholds(limit)
        self._until_quota(round(scenario.limit * 100_000) or NO_QUOTA)
        time.sleep(self._quiet_seconds / 2)  # Both know what is used now.
        for node in self.nodes:
            node.set_thresholds({**limit, "enable": True, **scenario.thresholds})

    def _until_quota(self, quota: int) -> None:
        """Of best-effort pods."""
        files = [Path(node.machine.host.cgroup, "cpu", BEST_EFFORT, "cpu.cfs_quota_us") for node in self.nodes]
        until(lambda: [file.read_text().strip() for file in files] == [str(quota)] * len(files), MOST_SECONDS)

    def until_quiet(self, expected: frozenset[str]) -> dict[str, set[str]]:
        """What is gone by program, when nothing has changed for a while and it is as expected, or for long."""
        started = changed = time.monotonic()
        before: dict[str, set[str]] = {}
        while True:
            gone = {node.name: node.refresh() for node in self.nodes}
            now = time.monotonic()
            if gone != before:
                before, changed = gone, now
            patience = self._quiet_seconds * (1 if all(each == expected for each in gone.values()) else 3)
            if now - changed > patience or now - started > MOST_SECONDS:
                return gone
            time.sleep(0.1)


@contextmanager
def evictions(
    programs: RealPrograms, folder: Path, gates: Sequence[str], cool_down: int, quiet_seconds: float
) -> Iterator[Evictions]:
    """With the gates on, and nothing else that acts; ``cool_down`` in seconds."""
    switches = {"BECPUSuppress": False, "RdtResctrl": False, **dict.fromkeys(gates, True)}
    plane = ControlPlane(programs.kubernetes, folder / "cluster")
    arguments = ["--feature-gates=" + ",".join(f"{gate}={str(is_on).lower()}" for gate, is_on in switches.items())]
    arguments += [f"--{resource}-evict-cool-time-seconds={cool_down}" for resource in ("cpu", "memory")]
    arguments += ["--kubelet-sync-interval=1s", "--disable-query-kubelet-config", "--only-evict-by-api"]
    with plane:
        prepare(plane)
        with CPUCounters() as counters:
            nodes = {name: Node(name, plane, folder, counters) for name in NAMES}
            machines = {name: node.machine for name, node in nodes.items()}
            pods = {name: node.pods for name, node in nodes.items()}
            cpus = [(0, cpu) for cpu in range(CPUS)]
            with (
                pretended_lscpu(folder / "bin", cpus),
                both_koordlets(programs, machines, pods, plane.kubeconfig, folder, arguments),
            ):
                yield Evictions(list(nodes.values()), quiet_seconds)
