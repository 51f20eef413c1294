"""koordlet on a node whose cgroups are systemd's, with the OCI runtimes runc and crun, on version 2 of cgroups alone.

systemd is the first process of the node, and the kubelet's ``cgroupDriver``. runc puts a container into a scope; crun
into a folder ``container`` of the scope, which has the limits a second time; CRI-O, which would run crun, names the
scopes ``crio-ID``. The kubelet has the gate MemoryQoS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from koordinator.api.cpu_list import parse_cpu_list
from tests.real.control_plane import ControlPlane
from tests.real.guest_node import PATIENCE, Guest, GuestNode, guest_node
from tests.real.node_pods import BATCH, offer_batch, pod_document
from tests.real.polling import until
from tests.real.virtual_machine import VirtualMachine
from tests.real_world.kubelet_configurations import kubelet_settings

_NODE: Final = "systemd-node"
_ADDRESS: Final = "127.0.0.1:9316"
_FLAGS: Final = (
    "--feature-gates=CgroupReconcile=true",
    f"--addr={_ADDRESS}",
    "--runtime-hooks-reconcile-interval=1s",
    # What another program has written is never found by chance.
    "--resource-force-update-seconds=3600",
)
_FILES: Final = ("cpu.max", "cpu.weight", "cpuset.cpus", "memory.min", "memory.low", "memory.high", "memory.max")
_SCOPES: Final = {"runc": "cri-containerd-main.scope", "crun": "cri-containerd-main.scope", "crio": "crio-main.scope"}
"""By the beginning of the names of the pods that run so."""
_INNER: Final = ("crun", "crio")
_BATCH_FOLDER: Final = "kubepods.slice/kubepods-besteffort.slice"
_LIMITS: Final = {"cpu.max": "50000 100000", "memory.max": str(64 << 20)}
_POLICY: Final[Mapping[str, Any]] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 10},
    "resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80}}},
}
_LISTED: Final = re.compile(r'^koordlet_pod_cgroups\{.*state="(\w+)".*\} ([0-9.]+)$', re.MULTILINE)
Files = Mapping[str, str]


@dataclass(frozen=True)
class Story:
    """What the files show in each phase."""

    phases: Mapping[str, Files]
    found: Mapping[str, int]
    """How many pods have their cgroups where koordlet looks for them, by whether they do."""
    allowed: Mapping[str, str]
    """The CPUs that the kernel lets the processes of suppressed pods run on."""


def _batch_pod(name: str) -> dict[str, Any]:
    resources = {"requests": dict(BATCH), "limits": dict(BATCH)}
    pod = pod_document(_NODE, _NODE, name, {"resources": resources}, {"koordinator.sh/qosClass": "BE"})
    specification = json.dumps({"containers": {"main": resources}})
    pod["metadata"]["annotations"] = {"node.koordinator.sh/extended-resource-spec": specification}
    return pod


def _online_pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    return pod_document(_NODE, _NODE, name, {"resources": resources}, {"koordinator.sh/qosClass": "LS"})


def _found(guest: Guest) -> dict[str, int]:
    metrics = guest.get(f"http://{_ADDRESS}/metrics")
    return {state: int(float(count)) for state, count in _LISTED.findall(metrics)}


def _allowed(guest: Guest, processes: Files) -> dict[str, str]:
    """Of each process in the cgroups of best-effort pods that is a container's."""
    found = {}
    for path, numbers in processes.items():
        if path.startswith(_BATCH_FOLDER) and "main" in path:
            for number in numbers.split():
                status = guest.run("grep", "Cpus_allowed_list", f"/proc/{number}/status")
                found[path] = status.split()[1]
    return found


@dataclass(frozen=True)
class Bench:
    """``kubelet`` is what the files show before koordlet starts."""

    node: GuestNode
    kubelet: Files


@pytest.fixture(scope="module")
def bench(real_control_plane: ControlPlane) -> Iterator[Bench]:
    machine = VirtualMachine(cpus=3, megabytes=2048, has_network=True, has_systemd=True)
    with guest_node(real_control_plane, _NODE, machine, kubelet_settings("systemd-driver-memory-qos")) as node:
        offer_batch(node.node, "2000")
        node.run_pods(*(make(f"{runtime}-{kind}") for runtime in _SCOPES for kind, make in _KINDS.items()))
        yield Bench(node, node.steady(*_FILES))


@pytest.fixture(scope="module")
def story(bench: Bench) -> Story:
    node, phases = bench.node, {"kubelet": bench.kubelet}
    node.show_slo(None)
    with node.koordlet(*_FLAGS):
        phases["no policy"] = node.steady(*_FILES, unlike=bench.kubelet)
        found = _found(node.guest)
        node.show_slo(_POLICY)
        phases["enabled"] = enabled = node.steady(*_FILES, unlike=phases["no policy"])
        allowed = _allowed(node.guest, node.cgroups("cgroup.procs"))
        node.guest.run("systemctl", "daemon-reload")
        until(lambda: node.cgroups(*_FILES) == enabled, PATIENCE, "koordlet has its values back")
        phases["loaded anew"] = node.cgroups(*_FILES)
        node.show_slo({})
        phases["disabled"] = node.steady(*_FILES, unlike=enabled)
    return Story(phases, found, allowed)


_KINDS: Final = {"batch": _batch_pod, "online": _online_pod}


def _folders(runtime: str, pod: str) -> list[str]:
    """Those of a pod's container in which its limits are."""
    class_ = "besteffort" if pod == "batch" else "burstable"
    parent = f"kubepods.slice/kubepods-{class_}.slice/kubepods-{class_}-pod-{runtime}-{pod}.slice"
    scope = f"{parent}/{_SCOPES[runtime]}"
    return [scope, f"{scope}/container"] if runtime in _INNER else [scope]


def _memory(files: Files) -> dict[str, str]:
    return {path: content for path, content in files.items() if re.search(r"memory\.(min|low|high)$", path)}


@pytest.mark.parametrize("runtime", list(_SCOPES))
def test_each_runtime_has_folders_of_its_own(runtime: str, bench: Bench) -> None:
    """Or they would all be the same here."""
    (scope, *inner) = _folders(runtime, "batch")
    assert f"{scope}/cpu.max" in bench.kubelet
    assert (f"{scope}/container/cpu.max" in bench.kubelet) == bool(inner)


def test_every_pod_is_found(story: Story) -> None:
    assert story.found == {"found": len(_SCOPES) * len(_KINDS), "missing": 0}


@pytest.mark.parametrize("runtime", list(_SCOPES))
def test_batch_pods_are_limited_wherever_their_runtime_has_the_limits(runtime: str, story: Story) -> None:
    files = story.phases["no policy"]
    folders = _folders(runtime, "batch")
    folders.append(folders[0].rpartition("/")[0])
    assert {name: {files[f"{folder}/{name}"] for folder in folders} for name in _LIMITS} == {
        name: {content} for name, content in _LIMITS.items()
    }


def test_every_best_effort_process_is_suppressed(story: Story) -> None:
    assert len(story.allowed) == len(_SCOPES)
    assert {len(parse_cpu_list(cpus)) for cpus in story.allowed.values()} == {2}, story.allowed


@pytest.mark.parametrize("name", ["no policy", "disabled"])
def test_without_a_policy_the_kubelets_protection_of_memory_stays(name: str, story: Story) -> None:
    assert _memory(story.phases[name]) == _memory(story.phases["kubelet"])
    assert any(content not in ("0", "max") for content in _memory(story.phases["kubelet"]).values())


def test_memory_qos_protects_pods_of_every_runtime(story: Story) -> None:
    low = {runtime: story.phases["enabled"][f"{_folders(runtime, 'online')[0]}/memory.low"] for runtime in _SCOPES}
    assert low == dict.fromkeys(_SCOPES, str((64 << 20) * 80 // 100 // 4096 * 4096))


def test_what_systemd_writes_when_it_is_loaded_anew_does_not_stay(story: Story) -> None:
    assert story.phases["loaded anew"] == story.phases["enabled"]
