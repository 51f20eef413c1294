"""What is read on a node: files of the kernel's, of the kubelet's and of ours, and the messages of other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from koordinator.api.protobuf import nri_pb2 as nri
from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest, PodSandboxHookRequest
from koordinator.api.xpu_device_info import decode_devices
from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.hooks.hook_server import handlers
from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin
from koordinator.koordlet.enforce.hooks.options import NRIOptions
from koordinator.koordlet.observe.prediction.checkpoints import CheckpointFolder
from koordinator.koordlet.pods.listing import look_in
from koordinator.koordlet.pods.node_pod import node_pods
from koordinator.koordlet.report.node_topology.kubelet_cpus import kubelet_cpus, parse_cpu_manager_state
from koordinator.node.cgroup_layout import CgroupDriver, CgroupVersion
from koordinator.node.cpu_topology import read_cpu_topology
from koordinator.node.grpc_server import Handler
from koordinator.node.kubelet import Kubelet
from koordinator.node.pod_resources import list_pod_resources
from koordinator.runtime_proxy.checkpoints import CheckpointTable
from koordinator.runtime_proxy.hook_servers import parse_hook_file
from tests.fuzz.readings import Reading, at_once
from tests.fuzz.sound_objects import POD_ANNOTATIONS
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.observe.prediction.test_checkpoints import BY_THE_ORIGINAL, UID
from tests.node.machine import FakeMachine
from tests.node.test_odd_rows import READERS, Reader, with_content
from tests.real_world.garbage import Garbage

_PLUGIN: Final = "/nri.pkg.api.v1alpha1.Plugin/"
_LABELS: Final = {"koordinator.sh/qosClass": "BE", "app": "web"}
_PARENT: Final = "/kubepods/besteffort/podsort"
_KUBELET_CONFIGURATION: Final = {
    "cgroupDriver": "systemd",
    "cgroupRoot": "/",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0-1",
    "systemReserved": {"cpu": "500m", "memory": "1Gi"},
    "kubeReserved": {"cpu": "500m"},
    "topologyManagerPolicy": "single-numa-node",
    "featureGates": {"MemoryQoS": True},
    "memoryThrottlingFactor": 0.9,
    "evictionHard": {"memory.available": "100Mi"},
}
_XPU: Final = '[{"vendor":"v","model":"m","uuid":"u","minor":"0","resources":{"a":"1"},"topology":{"numaNode":"0"}}]'


def kernel_files(machine: FakeMachine) -> Iterator[tuple[str, Reading]]:
    """Each reader of a file below /proc and /sys; ``machine`` has all of them."""

    def read(reader: Reader, content: bytes) -> object:
        return with_content(machine, reader, content)

    for name, reader in READERS.items():
        yield f"kernel file {name}", Reading(_file(reader.content), partial(read, reader))


def node_files(folder: Path) -> Iterator[tuple[str, Reading]]:
    """Files that outlive a program, and those of other programs."""
    predictions = CheckpointFolder(folder / "predictions")
    (folder / "predictions").mkdir()

    def prediction(content: bytes) -> object:
        (folder / "predictions" / UID).write_bytes(content)
        return predictions.load()

    proxied = folder / "proxied"
    sound = _proxy_checkpoint(proxied)

    def checkpoint(content: bytes) -> object:
        (proxied / "id").write_bytes(content)
        table = CheckpointTable(proxied, PodSandboxHookRequest)
        table.load()
        (proxied / "id").unlink(missing_ok=True)
        return len(table)

    state = '{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"c":"2-3"}},"checksum":1}'
    hook_file = '{"remote-endpoint":"/run/a.sock","failure-policy":"Ignore","runtime-hooks":["PreRunPodSandbox"]}'
    yield "checkpoint of a prediction", Reading(_json(BY_THE_ORIGINAL), prediction)
    yield "checkpoint of the runtime proxy", Reading(lambda _, garbage: garbage.damaged(sound), checkpoint)
    yield "cpu_manager_state", Reading(_json(state), parse_cpu_manager_state)
    yield "file of a hook server", Reading(_json(hook_file), partial(parse_hook_file, "a.json"))
    yield "file of devices", Reading(_json(_XPU), decode_devices)


def messages(folder: Path) -> Iterator[tuple[str, Reading]]:
    """What the kubelet and the runtime say to koordlet."""
    node = HookedNode(folder, BatchResource=True, GroupIdentity=True, CPUSetAllocator=True)
    node.machine.write_cpus([(0, cpu, 0) for cpu in range(4)])
    plugin = NRIPlugin(NRIOptions("unused"), node.starting(fails=True), ManualClock())
    for method, make in _NRI.items():
        yield f"NRI {method}", Reading(_message(make), partial(_nri, plugin, method))
    for path, handler in handlers(node.starting(fails=True)).items():
        drawn = _hook_pod if "PodSandbox" in path else _hook_container
        yield f"hook {path.rpartition('/')[2]}", Reading(_message(drawn), partial(_hook, handler))
    layout = node.machine.layout(CgroupVersion.V2, CgroupDriver.CGROUPFS)

    def pods(content: bytes) -> object:
        listed = at_once(Kubelet(_responding(content)).pods())
        return node_pods(listed, layout, look_in(layout))

    topology = read_cpu_topology(node.machine.host, lambda _: None)

    def configuration(content: bytes) -> object:
        found = at_once(Kubelet(_responding(content)).configuration())
        return kubelet_cpus(found.document, topology)

    yield "kubelet's /pods", Reading(_kubelet_pods, pods)
    shown = json.dumps({"kubeletconfig": _KUBELET_CONFIGURATION})
    yield "kubelet's /configz", Reading(_json(shown), configuration)
    yield (
        "kubelet's pod resources",
        Reading(
            lambda random, garbage: garbage.damaged(_POD_RESOURCES),
            lambda content: at_once(list_pod_resources(_Calls(content))),
        ),
    )


class _Calls:
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def unary(self, path: str, message: bytes, seconds: float) -> bytes:
        return self._content


def _responding(content: bytes) -> Callable[[str], Any]:
    async def get(path: str) -> bytes:
        return content

    return get


def _nri(plugin: NRIPlugin, method: str, content: bytes) -> object:
    return at_once(plugin.handle(_PLUGIN + method, content))


def _hook(handler: Handler, content: bytes) -> object:
    async def respond() -> bytes:
        return await handler(content)

    return at_once(respond())


def _file(sound: str) -> Callable[[Random, Garbage], bytes]:
    return lambda _, garbage: garbage.file(sound)


def _json(sound: str) -> Callable[[Random, Garbage], bytes]:
    return lambda _, garbage: garbage.json(sound)


def _message(make: Callable[[Random, Mapping[str, str]], Message]) -> Callable[[Random, Garbage], bytes]:
    """A message with garbage in the annotations of its pod; every other one is damaged beyond that."""

    def draw(random: Random, garbage: Garbage) -> bytes:
        chosen = random.sample(sorted(POD_ANNOTATIONS), 4)
        content = make(random, {key: garbage.text(POD_ANNOTATIONS[key]) for key in chosen}).SerializeToString()
        return garbage.damaged(content) if random.random() < 0.5 else content

    return draw


def _number(random: Random) -> int:
    return random.choice((0, 1, -1, 100_000, 2**31, -(2**31), 2**63 - 1, -(2**63)))


def _sandbox(annotations: Mapping[str, str]) -> nri.PodSandbox:
    pod = nri.PodSandbox(id="p", name="sort", uid="sort", namespace="default", labels=_LABELS, annotations=annotations)
    pod.linux.cgroup_parent = _PARENT
    return pod


def _nri_create(random: Random, annotations: Mapping[str, str]) -> Message:
    request = nri.CreateContainerRequest(pod=_sandbox(annotations))
    request.container.id, request.container.name = "c", "main"
    request.container.linux.resources.cpu.quota.value = _number(random)
    request.container.linux.resources.cpu.period.value = random.choice((0, 1, 100_000, 2**64 - 1))
    return request


def _nri_update(random: Random, annotations: Mapping[str, str]) -> Message:
    request = nri.UpdateContainerRequest(pod=_sandbox(annotations))
    request.container.id, request.container.name = "c", "main"
    request.linux_resources.cpu.quota.value = _number(random)
    request.linux_resources.cpu.period.value = random.choice((0, 1, 100_000, 2**64 - 1))
    return request


def _nri_configure(random: Random, annotations: Mapping[str, str]) -> Message:
    garbage = Garbage(random)
    return nri.ConfigureRequest(
        config=garbage.yaml("events: [RunPodSandbox, CreateContainer]").decode("utf-8", "replace")
    )


_NRI: Final[Mapping[str, Callable[[Random, Mapping[str, str]], Message]]] = {
    "Configure": _nri_configure,
    "Synchronize": lambda _, annotations: nri.SynchronizeRequest(pods=[_sandbox(annotations)]),
    "RunPodSandbox": lambda _, annotations: nri.RunPodSandboxRequest(pod=_sandbox(annotations)),
    "CreateContainer": _nri_create,
    "UpdateContainer": _nri_update,
    "StateChange": lambda random, annotations: nri.StateChangeEvent(
        event=random.choice((nri.RUN_POD_SANDBOX, nri.STOP_POD_SANDBOX)), pod=_sandbox(annotations)
    ),
}


def _hook_pod(random: Random, annotations: Mapping[str, str]) -> Message:
    request = PodSandboxHookRequest(labels=_LABELS, annotations=annotations, cgroup_parent=_PARENT)
    request.pod_meta.name, request.pod_meta.uid = "sort", "sort"
    request.resources.cpu_quota = _number(random)
    return request


def _hook_container(random: Random, annotations: Mapping[str, str]) -> Message:
    request = ContainerResourceHookRequest(pod_cgroup_parent=_PARENT, pod_annotations=annotations, pod_labels=_LABELS)
    request.pod_meta.name, request.pod_meta.uid, request.container_meta.name = "sort", "sort", "main"
    request.container_resources.cpu_quota, request.container_resources.cpu_period = _number(random), _number(random)
    request.container_resources.memory_limit_in_bytes = _number(random)
    return request


def _kubelet_pods(random: Random, garbage: Garbage) -> bytes:
    from koordinator.api.kinds import PODS
    from tests.fuzz.sound_objects import sound

    listed = [sound(PODS, random, f"p{number}", "default") for number in range(2)]
    for number, each in enumerate(listed):
        each["metadata"]["uid"] = f"uid-{number}"
    text = json.dumps({"kind": "PodList", "items": listed})
    return garbage.json(text)


def _proxy_checkpoint(folder: Path) -> bytes:
    table = CheckpointTable(folder, PodSandboxHookRequest)
    table.load()
    table.put("id", PodSandboxHookRequest(labels=_LABELS, annotations=dict(list(POD_ANNOTATIONS.items())[:5])))
    return (folder / "id").read_bytes()


_POD_RESOURCES: Final = bytes.fromhex("0a1e0a03776562120764656661756c741a0e0a046d61696e12040a0267631a0102")
