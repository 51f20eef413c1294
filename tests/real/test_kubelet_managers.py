"""koordlet beside a kubelet that manages CPUs and memory itself, on a real kernel with version 2 of cgroups alone.

The kubelet has its static CPU manager, which keeps CPU 0 from all pods (``strict-cpu-reservation``), its static memory
manager and the gate MemoryQoS. The node has two CPUs on each of two NUMA nodes. Pods run by runc or crun, and one in
folders as CRI-O names them with the driver cgroupfs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.guest_node import PATIENCE, GuestNode, guest_node
from tests.real.node_pods import pod_document
from tests.real.polling import until
from tests.real.virtual_machine import VirtualMachine
from tests.real_world.kubelet_configurations import kubelet_settings

_NODE: Final = "managed-node"
_MEBIBYTE: Final = 1 << 20
_REQUEST, _LIMIT = 64 * _MEBIBYTE, 128 * _MEBIBYTE
_LIMITS: Final = ("memory.min", "memory.low", "memory.high", "memory.max", "cpu.max", "cpu.weight", "cpuset.mems")
_OWN: Final = "/cpuset.cpus"
_ALONE, _SHARED = "1", "2-3"
_OF_PODS: Final = {
    "kubepods/pod-runc-alone/main": _ALONE,
    "kubepods/burstable/pod-crio-shared/crio-main": _SHARED,
    "kubepods/burstable/pod-crun-unlabelled/main": _SHARED,
    "kubepods/besteffort/pod-crun-batch/main": _SHARED,
}
Files = Mapping[str, str]


@dataclass(frozen=True)
class Phase:
    limits: Files
    cpus: Files

    @property
    def cpus_of_containers(self) -> dict[str, str]:
        """By folder. The kubelet lets sandboxes run anywhere: they do nothing."""
        return {path.removesuffix(_OWN): cpus for path, cpus in self.cpus.items() if path.endswith(f"main{_OWN}")}


@dataclass(frozen=True)
class Story:
    phases: Mapping[str, Phase]
    topology: Mapping[str, Any]
    """The annotations of the NodeResourceTopology."""


def _pod(name: str, qos: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> dict[str, Any]:
    resources = {"resources": {"requests": dict(requests), "limits": dict(limits)}}
    return pod_document(_NODE, _NODE, name, resources, {"koordinator.sh/qosClass": qos} if qos else {})


def _pods() -> list[dict[str, Any]]:
    whole = {"cpu": "1", "memory": "128Mi"}
    requests, limits = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "200m", "memory": "128Mi"}
    return [
        _pod("runc-alone", "", whole, whole),
        _pod("crio-shared", "LS", requests, limits),
        _pod("crun-unlabelled", "", requests, limits),
        _pod("crun-batch", "BE", {}, {}),
    ]


@dataclass(frozen=True)
class Bench:
    """``kubelet`` is what the files show before koordlet starts."""

    node: GuestNode
    kubelet: Phase


def _record(node: GuestNode, unlike: Phase | None = None) -> Phase:
    before = None if unlike is None else {**unlike.limits, **unlike.cpus}
    found = node.steady(*_LIMITS, "cpuset.cpus", unlike=before)
    cpus = {path: content for path, content in found.items() if path.endswith(_OWN)}
    return Phase({path: found[path] for path in found.keys() - cpus.keys()}, cpus)


@pytest.fixture(scope="module")
def bench(real_control_plane: ControlPlane) -> Iterator[Bench]:
    machine = VirtualMachine(cpus=4, megabytes=2048, numa_nodes=2, has_network=True)
    with guest_node(real_control_plane, _NODE, machine, kubelet_settings("managers")) as node:
        node.run_pods(*_pods())
        yield Bench(node, _record(node))


@pytest.fixture(scope="module")
def story(bench: Bench) -> Story:
    node, phases = bench.node, {"kubelet": bench.kubelet}
    node.show_slo(None)
    flags = ("--feature-gates=CgroupReconcile=true", "--var-lib-kubelet-dir=/run/node/kubelet")
    with node.koordlet(*flags):
        phases["no policy"] = before = _record(node)
        node.show_slo({"resourceUsedThresholdWithBE": {"enable": True}, "resourceQOSStrategy": _MEMORY_QOS})
        phases["enabled"] = before = _record(node, before)
        node.show_slo({})
        phases["disabled"] = _record(node, before)
        topology = json.loads(node.node.kubectl("get", "noderesourcetopology", _NODE, "-o", "json"))
        node.node.kubectl("delete", "pod", "runc-alone", "-n", _NODE)
        until(lambda: _own_cpus(node.cgroups("cpuset.cpus")) == {"1-3"}, PATIENCE, "all share the CPU again")
        phases["alone has ended"] = _record(node)
    return Story(phases, topology["metadata"]["annotations"])


def _own_cpus(files: Files) -> set[str]:
    """Of containers."""
    return {cpus for path, cpus in files.items() if path.endswith(f"main{_OWN}")}


_PERCENT: Final = {"min": 50, "low": 80, "throttling": 60}
_MEMORY_QOS: Final[Mapping[str, Any]] = {
    "lsClass": {
        "memoryQOS": {
            "enable": True,
            "minLimitPercent": _PERCENT["min"],
            "lowLimitPercent": _PERCENT["low"],
            "throttlingPercent": _PERCENT["throttling"],
        }
    }
}


def _pages(size: int) -> str:
    return str(size // 4096 * 4096)


def _differences(before: Files, after: Files) -> dict[str, tuple[str | None, str | None]]:
    paths = before.keys() | after.keys()
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def test_the_kubelet_manages_cpus_and_memory_itself(bench: Bench) -> None:
    """Or nothing would be shown here."""
    phase = bench.kubelet
    assert phase.cpus_of_containers == _OF_PODS
    assert phase.limits["kubepods/pod-runc-alone/main/cpuset.mems"] == "0"
    assert phase.limits["kubepods/burstable/pod-crun-unlabelled/main/memory.min"] == str(_REQUEST)
    assert phase.limits["kubepods/burstable/pod-crun-unlabelled/main/memory.high"] == _pages(
        _REQUEST + (_LIMIT - _REQUEST) * 9 // 10
    )


@pytest.mark.parametrize("name", ["no policy", "disabled"])
def test_without_a_policy_every_limit_is_the_kubelets(name: str, story: Story) -> None:
    assert _differences(story.phases["kubelet"].limits, story.phases[name].limits) == {}


@pytest.mark.parametrize("name", ["no policy", "enabled", "disabled"])
def test_containers_keep_off_cpus_that_are_a_pods_own_or_kept_from_all_pods(name: str, story: Story) -> None:
    assert story.phases[name].cpus_of_containers == _OF_PODS


def test_memory_qos_goes_before_the_kubelets_and_the_numa_node_stays(story: Story) -> None:
    """A QoS class is protected no less than the kubelet has summed up."""
    changed = _differences(story.phases["kubelet"].limits, story.phases["enabled"].limits)
    low, least = _pages(_REQUEST * _PERCENT["low"] // 100), str(_REQUEST * _PERCENT["min"] // 100)
    high = _pages(_REQUEST + (_LIMIT - _REQUEST) * _PERCENT["throttling"] // 100)
    expected: dict[str, str] = {}
    for container in ("pod-crio-shared/crio-main", "pod-crun-unlabelled/main"):
        folder = f"kubepods/burstable/{container}"
        for each in (folder, folder.rpartition("/")[0]):
            expected |= {f"{each}/memory.low": low, f"{each}/memory.min": least}
        expected[f"{folder}/memory.high"] = high
    sums = {"kubepods/burstable/memory.low", "kubepods/memory.low"}
    assert {path: after for path, (_, after) in changed.items() if path not in sums} == expected
    assert sums <= changed.keys()


def test_cpus_of_a_pod_that_has_ended_are_shared_again(story: Story) -> None:
    cpus = story.phases["alone has ended"].cpus_of_containers
    assert cpus == {folder: "1-3" for folder in _OF_PODS if "alone" not in folder}


def test_the_topology_has_what_the_kubelet_has_reserved_and_given_away(story: Story) -> None:
    policy = json.loads(story.topology["kubelet.koordinator.sh/cpu-manager-policy"])
    (given,) = json.loads(story.topology["node.koordinator.sh/pod-cpu-allocs"])
    pools = json.loads(story.topology["node.koordinator.sh/cpu-shared-pools"])
    assert policy == {"policy": "static", "options": {"strict-cpu-reservation": "true"}, "reservedCPUs": "0"}
    assert (given["name"], given["cpuset"]) == ("runc-alone", _ALONE)
    assert [pool.get("cpuset") for pool in pools] == [None, _SHARED]
