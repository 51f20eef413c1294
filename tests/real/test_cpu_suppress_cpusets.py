"""CPU suppress with the policy ``cpuset``: best-effort pods get the same CPUs from ours and from the Go original.

Both are at work at the same time, each on a machine of its own that is a folder with 16 CPUs.

This machine has too few CPUs for that: best-effort pods always keep two. What the kernel makes of the writes is in
test_cpu_suppress.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.cpu_list import parse_cpu_list
from tests.node.machine import FakeMachine
from tests.real.control_plane import ControlPlane
from tests.real.cpu_counters import CPUCounters
from tests.real.manager_cluster import prepare
from tests.real.programs import RealPrograms
from tests.real.sandbox_node import both_koordlets, log_of, pretended_lscpu
from tests.real.test_koordlet_steps import SLO, differences, folders, pod, write_cgroup, write_machine

Document = dict[str, Any]
CPUS = 16
CORES = 8
"""Of two sockets, each of which is a NUMA node. CPU 8 is the other thread of core 0, as kernels count."""
TOPOLOGY = [(cpu % CORES // 4, cpu % 4, cpu % CORES // 4) for cpu in range(CPUS)]
"""Socket, core within it, and NUMA node."""
EVERY_CPU = f"0-{CPUS - 1}"
ROOT = "kubepods/besteffort"
QUIET_SECONDS = 2.5
"""Two rounds of both."""
MOST_SECONDS = 40.0
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
GATES = "RdtResctrl=false,CPUBurst=false,GroupIdentity=false,BatchResource=false,GPUEnvInject=false"


@dataclass(frozen=True, slots=True)
class Step:
    """``cpus`` and ``quota`` are what best-effort pods have at its end: so that a comparison of nothing with nothing is
    noticed. ``load`` is in cores of the latency-sensitive pod, ``system`` of what is no pod."""

    name: str
    cpus: str
    load: float = 2.9
    system: float = 0.0
    quota: int = -1
    threshold: Mapping[str, Any] = field(default_factory=dict)
    node: Mapping[str, Any] = field(default_factory=dict)
    """Annotations."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """CPUs that the scheduler has given to the pods of a class."""
    above: str = ""
    """What the folders above containers have, where that is something else."""
    applications: tuple[Mapping[str, Any], ...] = ()
    """That run on the host, in no pod."""
    hosted: str = EVERY_CPU
    """The CPUs of those of class LS."""

    def __str__(self) -> str:
        return self.name


CFS_QUOTA = {"cpuSuppressPolicy": "cfsQuota", "cpuSuppressMinPercent": 65}
"""The least is the most, so that the load has no effect: in microseconds, it would show in the quota."""
OFF = {"enable": False}
RESERVED = "node.koordinator.sh/reservation"
SYSTEM = "node.koordinator.sh/system-qos-resource"
STEPS = [
    Step("off", EVERY_CPU, threshold=OFF),
    Step("on: 10.4 less 2.9 CPUs", "0-1,4-5,8-9,12-13"),
    Step("the load rises", "0,4,8,12", load=6.9),
    Step("the load is above the threshold", "0,8", load=12.0),
    Step("the load falls", "0-1,4,8-9,12", load=4.9),
    Step("half a core, of the first NUMA node", "0-1,4,8,12", load=5.9),
    Step("half a core, of the second NUMA node", "0,4,8", load=7.9),
    Step("the least percentage", "0,4,8,12", load=12.0, threshold={"cpuSuppressMinPercent": 25}),
    Step("what is no pod counts", "0-1,4,8-9,12", system=2.0),
    Step("all of the node", EVERY_CPU, load=0.4, threshold={"cpuSuppressThresholdPercent": 100}),
    Step("quota instead", EVERY_CPU, quota=1_040_000, threshold=CFS_QUOTA),
    Step("CPUs again", "0-1,4-5,8-9,12-13"),
    Step("off again", EVERY_CPU, threshold=OFF),
    Step("CPUs that the node reserves", "2,4-5,10,12-13", node={RESERVED: {"reservedCPUs": "0-1"}}),
    Step("off, with CPUs that the node reserves", "2-15", threshold=OFF, node={RESERVED: {"reservedCPUs": "0-1"}}),
    Step("an amount that the node reserves", "1,4-5,9,12-13", node={RESERVED: {"resources": {"cpu": "2"}}}),
    Step("off, with an amount", "1-7,9-15", threshold=OFF, node={RESERVED: {"resources": {"cpu": "2"}}}),
    Step("CPUs of the system alone", "1-2,4-5,9-10,12-13", node={SYSTEM: {"cpuset": "0"}}),
    Step("off, with CPUs of the system alone", "1-15", threshold=OFF, node={SYSTEM: {"cpuset": "0"}}),
    Step(
        "CPUs of the system that others may use",
        "0-1,4-5,8-9,12-13",
        node={SYSTEM: {"cpuset": "0", "cpusetExclusive": False}},
    ),
    Step("a part of the CPUs of LSR pods", "0-1,4-6,12-14", pinned={"LSR": "0-3"}),
    Step("too few to take one of the LSR pod", "4,8,12", load=7.9, pinned={"LSR": "0-3"}),
    Step("off, with an LSR pod", EVERY_CPU, threshold=OFF, pinned={"LSR": "0-3"}),
    Step("no CPU of LSE pods", "4-7,12-15", pinned={"LSE": "0-3,8-11"}),
    Step("quota, and no CPU of LSE pods", "4-15", quota=1_040_000, threshold=CFS_QUOTA, pinned={"LSE": "0-3"}),
    Step("off, and no CPU of LSE pods", "4-15", threshold=OFF, pinned={"LSE": "0-3"}),
    Step("LSE and LSR pods", "2,4-6,12-14", load=3.9, pinned={"LSE": "0-1,8-9", "LSR": "2-3"}),
    Step("off at the end", EVERY_CPU, threshold=OFF),
]
WEB = {"name": "web", "qos": "LS", "priority": "koord-prod"}
PROXY = {
    "name": "proxy",
    "qos": "LS",
    "cgroupPath": {"base": "CgroupRoot", "parentDir": "edge", "relativePath": "proxy"},
}
CRON = {"name": "cron", "qos": "BE", "priority": "koord-batch"}
HOSTED = {"host-latency-sensitive/web": True, "edge/proxy": True, "host-best-effort/cron": False}
"""The folders of these applications, and whether koordlet gives them CPUs."""
HOST_STEPS = [
    Step("applications of the host", EVERY_CPU, threshold=OFF, applications=(WEB, CRON)),
    Step("no CPU of LSE pods", "4-15", threshold=OFF, pinned={"LSE": "0-3"}, applications=(WEB, PROXY), hosted="4-15"),
    Step(
        "none for another class",
        "4-11",
        threshold=OFF,
        pinned={"LSE": "0-3,12-15"},
        applications=(WEB, PROXY, CRON),
        hosted="4-11",
    ),
    Step("all CPUs again", EVERY_CPU, threshold=OFF, applications=(WEB, PROXY)),
]
STATIC_STEPS = [
    Step("off", EVERY_CPU, threshold=OFF),
    Step("on: 10.4 less 2.9 CPUs", "0-1,4-5,8-9,12-13", above=EVERY_CPU),
    Step("the load rises", "0,4,8,12", load=6.9, above=EVERY_CPU),
    # What they have now is read from the folder above, so that nothing comes back step by step.
    Step("the load falls", "0-1,4-5,8-9,12-13", above=EVERY_CPU),
    Step("quota instead", EVERY_CPU, quota=1_040_000, threshold=CFS_QUOTA),
    Step("no CPU of LSE pods", "4-7,12-15", pinned={"LSE": "0-3,8-11"}, above="4-7,12-15"),
    Step("off at the end", EVERY_CPU, threshold=OFF),
]
"""Kubelet writes the folders above containers itself."""


def pods() -> list[Document]:
    amounts = {"cpu": "4", "memory": "1Gi"}
    batch = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "1Gi"}
    return [
        pod("ls", "LS", "Burstable", {"cpu": "500m"}, {}),
        pod("lsr", "LSR", "Guaranteed", amounts, amounts),
        pod("lse", "LSE", "Guaranteed", amounts, amounts),
        pod("be", "BE", "BestEffort", batch, batch),
        pod("other", "BE", "BestEffort", {}, {}),
    ]


class Bench:
    """Both programs at work, each on its machine."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.pods = pods()
        self.machines = {name: FakeMachine(folder / name) for name in ("ours", "original")}
        for name, machine in self.machines.items():
            write_machine(machine, self.pods)
            machine.write_cpus(TOPOLOGY)
            machine.write_numa_memory(1, 16 << 20)
            for each in HOSTED:
                write_cgroup(machine, each)
            for each in ("", *folders(self.pods), *HOSTED):
                machine.write(f"/sys/fs/cgroup/cpuset/{each}/cpuset.cpus", f"{EVERY_CPU}\n")
            self._create_node(name)
        self.counters = CPUCounters()

    def _create_node(self, name: str) -> None:
        amounts = {"cpu": str(CPUS), "memory": "16Gi", "pods": "10"}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        self._must("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        for kind in ("NodeSLO", "NodeMetric"):
            document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": name}}
            self._must("POST", f"{SLO}/{kind.lower()}s", {**document, "spec": {}})

    def _must(self, method: str, path: str, document: Document) -> None:
        code, response = self.plane.request(method, path, document)
        assert code in (200, 201), response.get("message")

    def take(self, step: Step) -> str:
        """What is not as it should be when both had time enough; empty if all is."""
        busy = {each: step.load for each in folders(self.pods) if "uid-ls/" in f"{each}/"}
        for machine in self.machines.values():
            self.counters.run(machine, busy, step.load + step.system if step.system else 0.0)
        for each in self.pods:
            cpus = step.pinned.get(each["metadata"]["labels"]["koordinator.sh/qosClass"])
            each["metadata"]["annotations"] = {RESOURCE_STATUS: json.dumps({"cpuset": cpus})} if cpus else {}
        threshold = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset", **step.threshold}
        threshold.setdefault("cpuSuppressMinPercent", 0)
        annotations = {key: json.dumps(step.node[key]) if key in step.node else None for key in (RESERVED, SYSTEM)}
        for name in self.machines:
            self._must("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})
            spec = {"resourceUsedThresholdWithBE": threshold, "hostApplications": step.applications}
            self._must("PATCH", f"{SLO}/nodeslos/{name}", {"spec": spec})
        started = quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_SECONDS and time.monotonic() - started < MOST_SECONDS:
            time.sleep(0.1)
            if wrong := self._wrong(step):
                quiet_since = time.monotonic()
        return wrong

    def _wrong(self, step: Step) -> str:
        shown = {name: _best_effort(machine) for name, machine in self.machines.items()}
        expected = parse_cpu_list(step.cpus), parse_cpu_list(step.above or step.cpus), step.quota
        hosted = {name: _hosted(machine) for name, machine in self.machines.items()}
        in_host = {
            folder: parse_cpu_list(step.hosted if is_given else EVERY_CPU) for folder, is_given in HOSTED.items()
        }
        others = differences(*self.machines.values())
        is_right = all(each == expected for each in shown.values())
        if is_right and not others and (not step.applications or all(each == in_host for each in hosted.values())):
            return ""
        return f"{step.name}: {shown}, not {expected}; {hosted}, not {in_host}; {others}"


def _hosted(machine: FakeMachine) -> dict[str, frozenset[int]]:
    """The CPUs of the applications of the host, by their folders."""
    cpusets = Path(machine.host.cgroup) / "cpuset"
    return {folder: parse_cpu_list((cpusets / folder / "cpuset.cpus").read_text().strip()) for folder in HOSTED}


def _best_effort(machine: FakeMachine) -> tuple[frozenset[int], frozenset[int], int] | str:
    """The CPUs of best-effort pods' containers, those of all folders above, and the quota; a text where folders of one
    kind differ."""
    cgroups = Path(machine.host.cgroup)
    root = cgroups / "cpuset" / ROOT
    containers, above = ([*root.glob("*/*/cpuset.cpus")], [root / "cpuset.cpus", *root.glob("*/cpuset.cpus")])
    texts = {str(file.relative_to(cgroups)): file.read_text().strip() for file in (*containers, *above)}
    kinds = [{parse_cpu_list(file.read_text().strip()) for file in files} for files in (containers, above)]
    if any(len(kind) != 1 for kind in kinds):
        return json.dumps(texts)
    (cpus,), (wide,) = kinds
    # Empty while it is being written, as a file in a folder may be.
    return cpus, wide, int((cgroups / "cpu" / ROOT / "cpu.cfs_quota_us").read_text() or 0)


def _bench(programs: RealPrograms, folder: Path, *arguments: str, **kubelet_configuration: str) -> Iterator[Bench]:
    plane = ControlPlane(programs.kubernetes, folder / "cluster")
    given = ["--kubelet-sync-interval=1s", "--node-topology-sync-interval=1s", f"--feature-gates={GATES}", *arguments]
    with plane:
        prepare(plane)
        made = Bench(plane, folder)
        pods = dict.fromkeys(made.machines, made.pods)
        cpus = [(socket, cpu % CORES) for cpu, (socket, _, _) in enumerate(TOPOLOGY)]
        kubelets = kubelet_configuration
        for machine in made.machines.values():
            # The static CPU manager has given nothing to anybody.
            machine.write("/var/lib/kubelet/cpu_manager_state", '{"policyName": "static", "entries": {}}')
        with (
            pretended_lscpu(folder / "bin", cpus),
            both_koordlets(programs, made.machines, pods, plane.kubeconfig, folder, given, kubelets),
            made.counters,
        ):
            yield made


@pytest.fixture(scope="module")
def bench(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from _bench(real_programs, tmp_path_factory.mktemp("suppress"), "--disable-query-kubelet-config")


@pytest.fixture(scope="module")
def static_bench(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """With kubelet's static CPU manager."""
    configuration = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,8"}
    yield from _bench(real_programs, tmp_path_factory.mktemp("static"), **configuration)


def _check(step: Step, bench: Bench) -> None:
    wrong = bench.take(step)
    logs = "".join(log_of(machine).read_text(errors="replace")[-3000:] for machine in bench.machines.values())
    assert wrong == "", wrong + logs


_SECOND_PART = [each.name for each in STEPS].index("CPUs that the node reserves")
"""The number of a step before which best-effort pods are left alone, as at the beginning."""


@pytest.mark.parametrize(
    "step", [pytest.param(each, id=f"part {int(number >= _SECOND_PART)}: {each}") for number, each in enumerate(STEPS)]
)
def test_best_effort_pods_have_the_same_cpus_as_with_the_original(step: Step, bench: Bench) -> None:
    _check(step, bench)


@pytest.mark.parametrize("step", [pytest.param(each, id=f"part 1: {each}") for each in HOST_STEPS])
def test_applications_of_the_host_have_the_same_cpus_as_with_the_original(step: Step, bench: Bench) -> None:
    _check(step, bench)


@pytest.mark.parametrize("step", [pytest.param(each, id=f"part 2: {each}") for each in STATIC_STEPS])
def test_they_have_them_with_kubelets_static_cpu_manager_too(step: Step, static_bench: Bench) -> None:
    _check(step, static_bench)
