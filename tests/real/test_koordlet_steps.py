"""Step after step of policy, both koordlets leave the same in every kernel file: ours and the Go original, at the same
time, each on a machine of its own that is a folder.

The node is idle, and cgroups are of version 1. What differs on purpose is not in the table: docs/differences.md has it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from tests.node.machine import FakeMachine
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import prepare
from tests.real.programs import RealPrograms
from tests.real.sandbox_node import both_koordlets, log_of

Document = dict[str, Any]
SLO = "/apis/slo.koordinator.sh/v1alpha1"
LEAST_SECONDS = 2.5
"""Two rounds of both."""
MOST_SECONDS = 25.0
CPUS = os.cpu_count() or 1
PAGE = os.sysconf("SC_PAGESIZE")
GATES = "CgroupReconcile=true,SystemConfig=true,RdtResctrl=false"
HOOKS = "GroupIdentity=false,CPUSetAllocator=false,BatchResource=false,GPUEnvInject=false"
MEMORY = {
    "minLimitPercent": 0,
    "lowLimitPercent": 0,
    "throttlingPercent": 0,
    "wmarkRatio": 0,
    "wmarkScalePermill": 50,
    "wmarkMinAdj": 0,
    "priorityEnable": 0,
    "priority": 0,
    "oomKillGroup": 0,
}
BASE: Document = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressMinPercent": 0,
        "cpuSuppressPolicy": "cfsQuota",
    },
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 100,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "resourceQOSStrategy": {
        name: {"memoryQOS": {"enable": True, **MEMORY}} for name in ("lsrClass", "lsClass", "beClass")
    },
    "systemStrategy": {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150, "memcgReapBackGround": 0},
}
Step = tuple[str, Document, Document]
"""What it is, what of BASE is different, and the annotations of the pod ls."""


def suppress(**settings: Any) -> Step:
    return f"suppress {settings}", {"resourceUsedThresholdWithBE": settings}, {}


def burst(**settings: Any) -> Step:
    return f"burst {settings}", {"cpuBurstStrategy": settings}, {}


def memory(class_: str, **settings: Any) -> Step:
    return f"memory of {class_} {settings}", {"resourceQOSStrategy": {class_: {"memoryQOS": settings}}}, {}


def system(**settings: Any) -> Step:
    return f"system {settings}", {"systemStrategy": settings}, {}


def annotated(name: str, value: Any, difference: Document) -> Step:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"annotation {name} {text}", difference, {f"koordinator.sh/{name}": text}


STEPS: list[Step] = [
    ("nothing special", {}, {}),
    *(suppress(cpuSuppressThresholdPercent=percent) for percent in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 5, 1)),
    *(suppress(cpuSuppressThresholdPercent=10, cpuSuppressMinPercent=percent) for percent in (15, 50, 100)),
    suppress(enable=False),
    suppress(cpuSuppressThresholdPercent=45),
    *(burst(policy="cpuBurstOnly", cpuBurstPercent=percent) for percent in (10, 25, 50, 75, 100)),
    burst(policy="cfsQuotaBurstOnly"),
    burst(policy="auto", cpuBurstPercent=60),
    burst(policy="none"),
    annotated("cpuBurst", {"policy": "cpuBurstOnly", "cpuBurstPercent": 30}, {}),
    annotated("cpuBurst", {"policy": "none"}, {"cpuBurstStrategy": {"policy": "auto"}}),
    annotated("cpuBurst", "{nonsense", {"cpuBurstStrategy": {"policy": "auto"}}),
    *(memory("lsClass", minLimitPercent=percent) for percent in (20, 50, 100)),
    *(memory("lsClass", lowLimitPercent=percent) for percent in (30, 100)),
    memory("lsClass", minLimitPercent=60, lowLimitPercent=75),
    *(memory("lsClass", throttlingPercent=percent) for percent in (40, 80, 100)),
    *(memory("lsClass", wmarkRatio=percent) for percent in (50, 95)),
    memory("lsClass", wmarkScalePermill=20),
    *(memory("lsClass", wmarkMinAdj=percent) for percent in (-25, 50)),
    memory("lsClass", priorityEnable=1, priority=10),
    memory("lsClass", oomKillGroup=1),
    memory("lsrClass", minLimitPercent=40, lowLimitPercent=80),
    memory("lsrClass", throttlingPercent=60, wmarkRatio=90),
    memory("beClass", minLimitPercent=25),
    memory("beClass", lowLimitPercent=50, throttlingPercent=50),
    memory("beClass", wmarkRatio=80, wmarkMinAdj=50, wmarkScalePermill=30),
    memory("beClass", priorityEnable=1, priority=0, oomKillGroup=1),
    annotated("memoryQOS", {"policy": "none"}, {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"wmarkRatio": 70}}}}),
    annotated("memoryQOS", {"policy": "auto"}, {}),
    annotated("memoryQOS", {"minLimitPercent": 35}, {}),
    annotated("memoryQOS", {"wmarkRatio": 60, "throttlingPercent": 70}, {}),
    annotated("memoryQOS", "{nonsense", {}),
    *(system(minFreeKbytesFactor=factor) for factor in (50, 120, 200)),
    *(system(watermarkScaleFactor=factor) for factor in (10, 100, 400)),
    system(memcgReapBackGround=1),
    ("nothing special again", {}, {}),
]
HOOK_GATES = (
    "CPUNormalization=true,BatchResource=true,CPUSetAllocator=true,CPUBurst=false,RdtResctrl=false,GroupIdentity=false,"
    "GPUEnvInject=false,OOMScoreAdj=true"
)
UNSUPPRESSED: Document = {"resourceUsedThresholdWithBE": {"enable": False}}
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
OWN_CPU = {RESOURCE_STATUS: json.dumps({"cpuset": "0"})}
OOM_SCORE, OOM_SCORES = "koordinator.sh/oom-score-adj", "koordinator.sh/oom-score-adj-spec"
HookStep = tuple[str, Document, dict[str, str], dict[str, dict[str, str]]]
"""What it is, what of BASE is different, the annotations of the node, and those of pods."""
HOOK_STEPS: list[HookStep] = [
    ("batch resources", UNSUPPRESSED, {}, {}),
    ("suppression by quota lifts them", {}, {}, {}),
    ("suppression by CPUs does not", {"resourceUsedThresholdWithBE": {"cpuSuppressPolicy": "cpuset"}}, {}, {}),
    *((f"a ratio of {ratio}", UNSUPPRESSED, {RATIO: ratio}, {}) for ratio in ("1.20", "2.50", "1.03", "1.00", "4.00")),
    # It stays as it was where the ratio says nothing.
    ("a ratio that is none", UNSUPPRESSED, {RATIO: "fast"}, {}),
    ("a ratio below 1", UNSUPPRESSED, {RATIO: "0.50"}, {}),
    ("a ratio, and suppression by quota", {}, {RATIO: "1.50"}, {}),
    ("a ratio of 1 again", UNSUPPRESSED, {RATIO: "1.00"}, {}),
    ("a CPU for an LSR pod", UNSUPPRESSED, {RATIO: "1.00"}, {"lsr": OWN_CPU}),
    ("and a ratio", UNSUPPRESSED, {RATIO: "1.50"}, {"lsr": OWN_CPU}),
    ("no CPU any more", UNSUPPRESSED, {RATIO: "1.00"}, {}),
    ("an OOM score", UNSUPPRESSED, {}, {"ls": {OOM_SCORE: "500"}, "be": {OOM_SCORE: "1000"}}),
    ("one for the container", UNSUPPRESSED, {}, {"ls": {OOM_SCORE: "500", OOM_SCORES: '{"c": -200}'}}),
    ("one for another container", UNSUPPRESSED, {}, {"ls": {OOM_SCORE: "300", OOM_SCORES: '{"other": -200}'}}),
    ("none that the kernel has", UNSUPPRESSED, {}, {"ls": {OOM_SCORE: "1001"}}),
    ("one that cannot be read", UNSUPPRESSED, {}, {"ls": {OOM_SCORE: "100", OOM_SCORES: "{nonsense"}}),
    ("no OOM score any more", UNSUPPRESSED, {}, {}),
]
PARTS = {"part 0": STEPS[:24], "part 1": STEPS[24:44], "part 2": STEPS[44:]}
"""Each is taken by two programs of its own. What comes before a step in its part has left its traces."""
CPU_FILES = {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000, "cpu.cfs_burst_us": 0, "cpu.shares": 1024}
MEMORY_FILES = {
    "memory.limit_in_bytes": 9223372036854771712,
    "memory.min": 0,
    "memory.low": 0,
    "memory.high": 9223372036854771712,
    "memory.wmark_ratio": 0,
    "memory.wmark_scale_factor": 50,
    "memory.wmark_min_adj": 0,
    "memory.priority": 0,
    "memory.use_priority_oom": 0,
    "memory.oom.group": 0,
}
NODE_FILES = {
    "/proc/sys/vm/min_free_kbytes": 67584,
    "/proc/sys/vm/watermark_scale_factor": 10,
    "/sys/kernel/mm/memcg_reaper/reap_background": 0,
}
MEMORY_STAT = "".join(
    f"{prefix}{name} 0\n"
    for prefix in ("", "total_")
    for name in ("cache", "rss", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable")
)


def pod(name: str, qos: str, kubernetes: str, requests: Document, limits: Document) -> Document:
    resources = {"requests": requests, "limits": limits}
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"name": "c", "containerID": f"containerd://{name:f>64}", "state": state, "ready": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"koordinator.sh/qosClass": qos},
        },
        "spec": spec,
        "status": {"phase": "Running", "qosClass": kubernetes, "containerStatuses": [container]},
    }


def pods() -> list[Document]:
    half, whole = {"cpu": "500m", "memory": "512Mi"}, {"cpu": "1", "memory": "1Gi"}
    batch = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    return [
        pod("ls", "LS", "Burstable", half, whole),
        pod("lsr", "LSR", "Guaranteed", whole, whole),
        pod("be", "BE", "BestEffort", batch, batch),
    ]


def folders(given: list[Document]) -> Iterator[str]:
    yield from ("kubepods", "kubepods/burstable", "kubepods/besteffort")
    for each in given:
        qos = each["status"]["qosClass"]
        parent = "kubepods" if qos == "Guaranteed" else f"kubepods/{qos.lower()}"
        yield f"{parent}/pod{each['metadata']['uid']}"
        identifier = each["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        yield f"{parent}/pod{each['metadata']['uid']}/{identifier}"


def write_machine(machine: FakeMachine, given: list[Document]) -> None:
    # As many as `lscpu` tells the original of, which asks this machine.
    machine.write_cpus([(0, cpu, 0) for cpu in range(CPUS)])
    machine.write_numa_memory(0, 16 << 20)
    machine.write("/proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
    machine.write("/proc/meminfo", f"MemTotal: {16 << 20} kB\nMemFree: {15 << 20} kB\nMemAvailable: {15 << 20} kB\n")
    machine.write("/proc/cpuinfo", Path("/proc/cpuinfo").read_text())
    for path, value in NODE_FILES.items():
        machine.write(path, f"{value}\n")
    for folder in ("", *folders(given)):
        write_cgroup(machine, folder)


def write_cgroup(machine: FakeMachine, folder: str) -> None:
    """Its files in all controllers, as they are before anybody has written any."""
    files: dict[str, object] = {f"cpu/{folder}/{name}": value for name, value in CPU_FILES.items()}
    files |= {f"memory/{folder}/{name}": value for name, value in MEMORY_FILES.items()}
    files[f"cpu/{folder}/cpu.stat"] = "nr_periods 0\nnr_throttled 0\nthrottled_time 0"
    files[f"cpuset/{folder}/cpuset.cpus"] = f"0-{CPUS - 1}"
    files[f"cpuacct/{folder}/cpuacct.usage"] = 0
    files[f"memory/{folder}/memory.stat"] = MEMORY_STAT.strip()
    files[f"memory/{folder}/memory.usage_in_bytes"] = 0
    if "uid-ls" in folder:
        # What kubelet has made of the limits.
        files[f"cpu/{folder}/cpu.cfs_quota_us"] = 100000
    if "uid-be" in folder:
        # What kubelet gives to a pod without resources of Kubernetes' own.
        files[f"cpu/{folder}/cpu.shares"] = 2
    for path, content in files.items():
        machine.write(f"/sys/fs/cgroup/{path}", f"{content}\n")


def shown(machine: FakeMachine) -> dict[str, str]:
    """Every file that may be written, by its path on the machine."""
    names = {*CPU_FILES, *MEMORY_FILES, "cpuset.cpus"}
    found = [*(machine.root / "proc").glob("*/oom_score_adj")]
    found += [path for path in (machine.root / "sys/fs/cgroup").rglob("*") if path.name in names]
    found += [machine.root / path.lstrip("/") for path in NODE_FILES]
    return {str(path.relative_to(machine.root)): comparable(path) for path in found}


def comparable(path: Path) -> str:
    """The content as the kernel would show it: in whole pages, with lists of CPUs in their order, and -1 for any quota
    below 0, into which the original divides the -1 of no quota at all."""
    text = path.read_text().strip()
    if not text:
        # It is being written: a file in a folder is empty for a moment.
        return text
    if path.name == "cpuset.cpus":
        return format_cpu_list(parse_cpu_list(text))
    if path.name == "cpu.cfs_quota_us":
        return str(max(int(text), -1))
    return str(int(text) // PAGE * PAGE) if path.name in ("memory.min", "memory.low", "memory.high") else text


def differences(ours: FakeMachine, original: FakeMachine) -> dict[str, tuple[str, str]]:
    """Path -> what ours and the original have left there."""
    first, second = shown(ours), shown(original)
    return {path: (first[path], second[path]) for path in first if first[path] != second[path]}


def merged(base: Document, difference: Document) -> Document:
    return base | {
        name: merged(base[name], value) if isinstance(value, dict) and name in base else value
        for name, value in difference.items()
    }


class Bench:
    """Both programs at work, each on its machine."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.pods = pods()
        self.machines = {name: FakeMachine(folder / name) for name in ("ours", "original")}
        for name, machine in self.machines.items():
            write_machine(machine, self.pods)
            for process, each in enumerate(folders(self.pods), start=1000):
                machine.write(f"/sys/fs/cgroup/cpu/{each}/cgroup.procs", f"{process}\n" if each.count("/") > 1 else "")
                machine.write(f"/proc/{process}/oom_score_adj", "0\n")
            self._create_node(name)

    def _create_node(self, name: str) -> None:
        amounts = {"cpu": str(CPUS), "memory": "16Gi", "pods": "10"}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        self._must("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        for kind, spec in (("NodeSLO", BASE), ("NodeMetric", {})):
            document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": name}}
            self._must("POST", f"{SLO}/{kind.lower()}s", {**document, "spec": spec})

    def _must(self, method: str, path: str, document: Document) -> None:
        code, response = self.plane.request(method, path, document)
        assert code in (200, 201), response.get("message")

    def take(self, step: Step) -> dict[str, tuple[str, str]]:
        """What still differs when both had time enough."""
        _, difference, annotations = step
        self.pods[0]["metadata"]["annotations"] = annotations
        for name in self.machines:
            self._must("PATCH", f"{SLO}/nodeslos/{name}", {"spec": merged(BASE, difference)})
        return self._settled()

    def take_of_hooks(self, step: HookStep) -> dict[str, tuple[str, str]]:
        _, difference, node, annotations = step
        for pod in self.pods:
            pod["metadata"]["annotations"] = annotations.get(pod["metadata"]["name"], {})
        for name in self.machines:
            self._must("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {RATIO: None, **node}}})
            self._must("PATCH", f"{SLO}/nodeslos/{name}", {"spec": merged(BASE, difference)})
        return self._settled()

    def _settled(self) -> dict[str, tuple[str, str]]:
        started = time.monotonic()
        time.sleep(LEAST_SECONDS)
        while (found := self.differences()) and time.monotonic() - started < MOST_SECONDS:
            time.sleep(0.25)
        return found

    def differences(self) -> dict[str, tuple[str, str]]:
        return differences(self.machines["ours"], self.machines["original"])


def _bench(programs: RealPrograms, plane: ControlPlane, folder: Path, gates: str) -> Iterator[Bench]:
    prepare(plane)
    made = Bench(plane, folder)
    arguments = ["--kubelet-sync-interval=1s", "--disable-query-kubelet-config", f"--feature-gates={gates}"]
    arguments += ["--node-topology-sync-interval=1s", "--runtime-hooks-reconcile-interval=1s"]
    pods = dict.fromkeys(made.machines, made.pods)
    with both_koordlets(programs, made.machines, pods, plane.kubeconfig, folder, arguments):
        yield made


@pytest.fixture
def bench(real_programs: RealPrograms, plane: ControlPlane, tmp_path: Path) -> Iterator[Bench]:
    yield from _bench(real_programs, plane, tmp_path, f"{GATES},{HOOKS}")


@pytest.fixture
def hooked_bench(real_programs: RealPrograms, plane: ControlPlane, tmp_path: Path) -> Iterator[Bench]:
    """With the hooks, and no feature beside suppression that would write their files."""
    yield from _bench(real_programs, plane, tmp_path, HOOK_GATES)


def _compare(bench: Bench, steps: Mapping[str, Callable[[], dict[str, tuple[str, str]]]]) -> int:
    """Take the steps, by name; in how many of them some file has changed. AssertionError if one differs."""
    changed, before, wrong = 0, shown(bench.machines["original"]), {}
    for name, take in steps.items():
        if found := take():
            wrong[name] = found
        after = shown(bench.machines["original"])
        changed += after != before
        before = after
    logs = "".join(log_of(machine).read_text(errors="replace")[-3000:] for machine in bench.machines.values())
    assert wrong == {}, f"{json.dumps(wrong, indent=1)}\n{logs}"
    return changed


@pytest.mark.parametrize("steps", [pytest.param(each, id=part) for part, each in PARTS.items()])
def test_every_step_leaves_what_the_original_leaves(steps: Sequence[Step], bench: Bench) -> None:
    changed = _compare(bench, {step[0]: partial(bench.take, step) for step in steps})
    # Most steps show in some file, or the test would be none.
    assert changed >= len(steps) * 3 // 4


def test_every_step_of_the_hooks_leaves_what_the_original_leaves(hooked_bench: Bench) -> None:
    changed = _compare(hooked_bench, {step[0]: partial(hooked_bench.take_of_hooks, step) for step in HOOK_STEPS})
    assert changed >= len(HOOK_STEPS) * 2 // 3
