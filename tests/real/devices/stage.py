"""Nodes with devices, pods that request some, and what becomes of these with a scheduler on a real API server.

All scenarios are played at the same time on one cluster: each has nodes of its own, which its pods select.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from koordinator.api.annotations import CPU_TOPOLOGY, DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS
from koordinator.api.kinds import CONFIG_MAPS, DEVICES, NODE_RESOURCE_TOPOLOGIES, NODES, PODS, RESERVATIONS
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.programs import RealPrograms
from tests.real.quota_runs import our_scheduler
from tests.real.scheduler_configuration import write_configuration

_DECIDED: Final = 60.0
_SETTLED: Final = 40.0
_NUDGE: Final = 15.0
_PAUSE: Final = 1.0
_PAUSE_DECISIONS: Final = 3
_QUIET: Final = 3.0
_QUIET_DECISIONS: Final = 6
_SCENARIO: Final = "scenario"
_PLENTY: Final = {
    "cpu": "64",
    "memory": "256Gi",
    "pods": "110",
    **{
        f"koordinator.sh/{name}": "1k" for name in ("gpu", "gpu.shared", "gpu-core", "gpu-memory-ratio", "rdma", "fpga")
    },
    "koordinator.sh/gpu-memory": "1Ti",
    "nvidia.com/gpu": "8",
    "amd.com/gpu": "8",
    "dcu.com/gpu": "8",
    **{f"huawei.com/npu-{name}": "1k" for name in ("core", "cpu", "dvpp")},
}
"""Of every node, so that it is the devices that matter."""
_OTHER_NODES: Final = re.compile(r",? ?\d+ node\(s\) didn't match Pod's node affinity/selector,?")
_RESOURCES: Final = re.compile(r"\[([^\]]*)\]")
_PARSER: Final = re.compile(r"err: .*(?=\.$)")
_EVALUATED: Final = re.compile(r"\d+/\d+ nodes are available")


def gpu(minor: int, *, memory: str = "16Gi", numa: int | None = 0, pcie: str = "0", **more: Any) -> dict[str, Any]:
    """A GPU of 100 percent. ``numa`` None: nobody knows where it is."""
    resources = {"gpu-core": "100", "gpu-memory-ratio": "100", "gpu-memory": memory}
    return _device("gpu", minor, {f"koordinator.sh/{name}": each for name, each in resources.items()}, numa, pcie, more)


def rdma(minor: int, *, numa: int | None = 0, pcie: str = "0", functions: int = 0, **more: Any) -> dict[str, Any]:
    """An RDMA card with so many virtual functions."""
    if functions:
        vfs = [{"minor": number, "busID": f"0000:{minor:02x}:00.{number + 1}"} for number in range(functions)]
        more["vfGroups"] = [{"labels": {"speed": "fast"}, "vfs": vfs}]
    return _device("rdma", minor, {"koordinator.sh/rdma": "100"}, numa, pcie, more)


def fpga(minor: int, **more: Any) -> dict[str, Any]:
    return _device("fpga", minor, {"koordinator.sh/fpga": "100"}, 0, "0", more)


def _device(
    kind: str, minor: int, resources: Mapping[str, str], numa: int | None, pcie: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    topology = {"socketID": 0, "nodeID": numa, "pcieID": pcie, "busID": f"0000:{minor:02x}:00.0"}
    where = {"topology": topology} if numa is not None else {}
    document = {"type": kind, "minor": minor, "id": f"{kind}-{minor}", "health": True, "resources": dict(resources)}
    return {**document, **where, **more}


def eight(**more: Any) -> list[dict[str, Any]]:
    """Eight GPUs on two NUMA nodes with two PCIe switches each."""
    return [gpu(minor, numa=minor // 4, pcie=str(minor // 2), **more) for minor in range(8)]


@dataclass(frozen=True)
class Node:
    """A node, with a Device object unless there are no ``devices``."""

    devices: Sequence[Mapping[str, Any]] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    device_labels: Mapping[str, str] = field(default_factory=dict)
    device_annotations: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    """Of each of two NUMA nodes; 0: nobody knows of NUMA nodes."""


@dataclass(frozen=True)
class Pod:
    """``requests``: resources without ``koordinator.sh/``, or with a slash in their names."""

    name: str
    requests: Mapping[str, str]
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Without ``scheduling.koordinator.sh/``; values that are no text are written as JSON."""
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    """The only node that it may go to."""
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reservation:
    """For pods with the label app=``name``."""

    name: str
    requests: Mapping[str, str]
    spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """A pod, a Device or a Reservation."""

    name: str
    kind: str = "Pod"


@dataclass(frozen=True)
class SetDevices:
    """The Device object of the node says this from now on."""

    node: str
    devices: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Bound:
    """Wait until the pod, which had to wait, has a node."""

    name: str


Step = Pod | Reservation | Delete | SetDevices | Bound


@dataclass(frozen=True)
class Scenario:
    name: str
    nodes: Mapping[str, Node]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Result:
    """What became of a pod, or a Reservation."""

    node: str
    devices: str
    """The annotation."""
    message: str
    reservation: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    """What device plugins read, and which CPUs it has."""


Outcome = dict[str, Result]


@contextmanager
def running(
    who: str,
    programs: RealPrograms,
    plane: ControlPlane,
    folder: Path,
    *,
    gates: str = "",
    port: int = 0,
    preempts: bool = False,
    aligns: bool = False,
    **args: Any,
) -> Iterator[None]:
    """The scheduler ``ours`` or ``original``, with arguments of DeviceShare. ``port``: of its services; 0 for none.
    ``preempts``: pods leave for more important ones; ``aligns``: CPUs and devices come from the same NUMA nodes."""
    arguments = (f"--port={port}", *((f"--feature-gates={gates}",) if gates else ()))
    configuration = write_configuration(
        folder / f"{who}.yaml",
        kubeconfig=plane.kubeconfig,
        profile=_profile(args, preempts=preempts, aligns=aligns),
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )
    if who == "ours":
        with our_scheduler(plane, configuration, folder / "ours.log", *arguments):
            yield
    else:
        with original_scheduler(programs, plane, configuration, folder / "original.log", *arguments):
            yield


def _profile(args: Mapping[str, Any], *, preempts: bool, aligns: bool) -> dict[str, Any]:
    """DeviceShare, Reservation and SchedulingHint where Koordinator's own configuration has them."""
    preempting = [{"name": "DefaultPreemption"}] if preempts else []
    numa = [{"name": "NodeNUMAResource"}] if aligns else []
    devices, reservation = {"name": "DeviceShare"}, {"name": "Reservation"}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "DeviceShareArgs"}
    return {
        "schedulerName": "koord-scheduler",
        "plugins": {
            "preFilter": {"enabled": [{"name": "SchedulingHint"}, reservation, *numa, devices]},
            **{point: {"enabled": [reservation, *numa, devices]} for point in ("filter", "reserve")},
            "postFilter": {"disabled": [{"name": "*"}], "enabled": [reservation, *preempting]},
            "preScore": {"enabled": [reservation]},
            "score": {
                "enabled": [*({**each, "weight": 1} for each in (*numa, devices)), {**reservation, "weight": 5000}]
            },
            "preBind": {"enabled": [*numa, devices, reservation]},
            "bind": {"disabled": [{"name": "*"}], "enabled": [reservation, {"name": "DefaultBinder"}]},
        },
        "pluginConfig": [{"name": "DeviceShare", "args": {**header, **args}}],
    }


async def build(client: KubeClient, scenarios: Sequence[Scenario], templates: str) -> None:
    """The nodes of all scenarios, and the ConfigMap of templates."""
    metadata = {"name": "gpu-shared-resource-templates"}
    await client.create(CONFIG_MAPS, {"metadata": metadata, "data": {"data.yaml": templates}}, "koordinator-system")
    for number, scenario in enumerate(scenarios):
        for name, node in scenario.nodes.items():
            full = f"s{number}-{name}"
            labels = {"kubernetes.io/hostname": full, _SCENARIO: f"s{number}", **node.labels}
            status = {"capacity": _PLENTY, "allocatable": _PLENTY}
            await client.create(NODES, {"metadata": {"name": full, "labels": labels}, "status": status})
            if node.cpus:
                await client.create(NODE_RESOURCE_TOPOLOGIES, _topology(full, node.cpus))
            if node.devices is not None:
                about: dict[str, Any] = {
                    "name": full,
                    "labels": dict(node.device_labels),
                    "annotations": dict(node.device_annotations),
                }
                await client.create(DEVICES, {"metadata": about, "spec": {"devices": list(node.devices)}})


def _topology(name: str, cpus: int) -> dict[str, Any]:
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // cpus} for cpu in range(2 * cpus)]
    amounts = {"cpu": str(cpus), "memory": "64Gi"}
    resources = [
        {"name": key, **dict.fromkeys(("capacity", "allocatable", "available"), of)} for key, of in amounts.items()
    ]
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.name,
        "metadata": {"name": name, "annotations": {CPU_TOPOLOGY: json.dumps({"detail": detail})}},
        "topologyPolicies": [],
        "zones": [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(2)],
    }


@dataclass
class _Pace:
    """How fast things happen here: other programs may need the machine, too."""

    slowest: float = 0.0
    """Seconds from the creation of a pod to the scheduler's decision."""

    @property
    def pause(self) -> float:
        return max(_PAUSE, _PAUSE_DECISIONS * self.slowest)

    @property
    def quiet(self) -> float:
        return max(_QUIET, _QUIET_DECISIONS * self.slowest)


async def play_all(client: KubeClient, scenarios: Sequence[Scenario], who: str) -> dict[str, Outcome]:
    """Play them side by side with the scheduler ``who``; what they have come to once nothing changes any more."""
    pace = _Pace()
    async with asyncio.TaskGroup() as tasks:
        for number, scenario in enumerate(scenarios):
            tasks.create_task(_play(client, f"s{number}", scenario, who, pace))
    found = await _settled(client, pace.quiet)
    return {
        scenario.name: {
            name.removeprefix(f"s{number}-"): each for name, each in found.items() if name.startswith(f"s{number}-")
        }
        for number, scenario in enumerate(scenarios)
    }


async def _play(client: KubeClient, prefix: str, scenario: Scenario, who: str, pace: _Pace) -> None:
    clock = asyncio.get_running_loop().time
    for step in scenario.steps:
        began = clock()
        await _take(client, prefix, step, who)
        if isinstance(step, Pod):
            pace.slowest = max(pace.slowest, clock() - began)
        # What follows from a step is heard of by watches, and nothing shows that it has been.
        await asyncio.sleep(pace.pause)


async def _take(client: KubeClient, prefix: str, step: Step, who: str) -> None:
    full = f"{prefix}-{step.node if isinstance(step, SetDevices) else step.name}"
    match step:
        case Pod():
            await client.create(PODS, _pod(prefix, step), "default")
            await _until(client, full, bound=False)
        case Reservation():
            await client.create(RESERVATIONS, _reservation(prefix, step))
            await _until_reserved(client, full)
        case Bound() if who == "original":
            await _until_original_binds(client, full)
        case Bound():
            await _until(client, full, bound=True)
        case SetDevices():
            spec = {"spec": {"devices": list(step.devices)}}
            await client.patch(DEVICES, full, spec, PatchType.MERGE)
        case Delete(kind="Pod"):
            await client.delete(PODS, full, "default", grace_period_seconds=0)
        case Delete(kind="Device"):
            await client.delete(DEVICES, full)
        case Delete():
            await client.delete(RESERVATIONS, full)


def _annotations(found: Mapping[str, Any]) -> dict[str, str]:
    return {
        key if "/" in key else f"scheduling.koordinator.sh/{key}": each if isinstance(each, str) else json.dumps(each)
        for key, each in found.items()
    }


def _spec(prefix: str, requests: Mapping[str, str], node: str, more: Mapping[str, Any]) -> dict[str, Any]:
    amounts = {
        name if "/" in name or name in ("cpu", "memory") else f"koordinator.sh/{name}": each
        for name, each in requests.items()
    }
    resources = {"requests": amounts, "limits": amounts}
    selector = {_SCENARIO: prefix, **({"kubernetes.io/hostname": f"{prefix}-{node}"} if node else {})}
    container = {"name": "main", "image": "pause", "resources": resources}
    return {"schedulerName": "koord-scheduler", "containers": [container], "nodeSelector": selector, **more}


def _pod(prefix: str, pod: Pod) -> dict[str, Any]:
    labels = {"app": f"{prefix}-{pod.labels.get('app', pod.name)}"}
    labels = {**pod.labels, **labels}
    metadata = {"name": f"{prefix}-{pod.name}", "labels": labels, "annotations": _annotations(pod.annotations)}
    spec = {"terminationGracePeriodSeconds": 0, **_spec(prefix, pod.requests, pod.node, pod.spec)}
    return {"metadata": metadata, "spec": spec}


def _reservation(prefix: str, found: Reservation) -> dict[str, Any]:
    owners = [{"labelSelector": {"matchLabels": {"app": f"{prefix}-{found.name}"}}}]
    template = {"spec": _spec(prefix, found.requests, found.node, {})}
    metadata = {
        "name": f"{prefix}-{found.name}",
        "labels": dict(found.labels),
        "annotations": _annotations(found.annotations),
    }
    return {"metadata": metadata, "spec": {"template": template, "owners": owners, "ttl": "0s", **found.spec}}


async def _until(client: KubeClient, name: str, *, bound: bool) -> None:
    async with asyncio.timeout(_DECIDED):
        while True:
            found = await client.get(PODS, name, "default")
            condition = scheduled_condition(found)
            if found.spec.node_name or (not bound and condition is not None and condition.status == "False"):
                return
            await asyncio.sleep(0.05)


async def _until_original_binds(client: KubeClient, name: str) -> None:
    """On a busy machine it sometimes does not notice that the victims of a pod have left, and tries the pod again after
    minutes: another pod that leaves, as in any cluster, wakes it. Ours has to notice by itself."""
    waiting = asyncio.ensure_future(_until(client, name, bound=True))
    try:
        while not (await asyncio.wait({waiting}, timeout=_NUDGE))[0]:
            pod = await client.get(PODS, name, "default")
            other = f"leaves-{name}"
            node = pod.status.nominated_node_name or f"{pod.spec.node_selector[_SCENARIO]}-a"
            spec = {"nodeName": node, "containers": [{"name": "main", "image": "pause"}]}
            await client.create(PODS, {"metadata": {"name": other}, "spec": spec}, "default")
            await client.delete(PODS, other, "default", grace_period_seconds=0)
        await waiting
    finally:
        waiting.cancel()


async def _until_reserved(client: KubeClient, name: str) -> None:
    async with asyncio.timeout(_DECIDED):
        while not (await client.get(RESERVATIONS, name)).status.conditions:
            await asyncio.sleep(0.05)


async def _settled(client: KubeClient, quiet: float) -> Outcome:
    """The outcome when it has not changed for a while."""
    last, since = await _outcome(client), asyncio.get_running_loop().time()
    end = since + max(_SETTLED, 4 * quiet)
    while (now := asyncio.get_running_loop().time()) < end and now - since <= quiet:
        await asyncio.sleep(0.2)
        found = await _outcome(client)
        if found != last:
            last, since = found, now
    return last


async def _outcome(client: KubeClient) -> Outcome:
    """How pods and Reservations look now."""
    found: Outcome = {}
    for pod in (await client.list(PODS, "default")).items:
        condition, annotations = scheduled_condition(pod), pod.metadata.annotations
        message = condition.message if condition is not None and not pod.spec.node_name else ""
        record = json.loads(annotations.get(RESERVATION_ALLOCATED, "{}")).get("name", "")
        others = {key: each for key, each in {**annotations, **pod.metadata.labels}.items() if key in _FOR_PLUGINS}
        found[pod.metadata.name] = Result(
            pod.spec.node_name, annotations.get(DEVICE_ALLOCATED, ""), plain(message), record, others
        )
    for reservation in (await client.list(RESERVATIONS)).items:
        reasons = [each.message for each in reservation.status.conditions if each.status == "False"]
        devices = reservation.metadata.annotations.get(DEVICE_ALLOCATED, "")
        message = plain(reasons[0]) if reasons and not reservation.status.node_name else ""
        held = {name: str(each) for name, each in sorted(reservation.status.allocatable.items())}
        name = f"{reservation.metadata.name}-reservation"
        found[name] = Result(reservation.status.node_name, devices, message, json.dumps(held))
    return found


_FOR_PLUGINS: Final = (
    *("scheduling.koordinator.sh/gpu-minors", "hami.io/vgpu-node", "huawei.com/npu-core", "huawei.com/Ascend310P"),
    RESOURCE_STATUS,
    *("CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_PROFILE", "metax-tech.com/gpu-devices-allocated"),
)


def plain(message: str) -> str:
    """The message without the nodes of other scenarios. The original names resources in an order of chance,
    and what is wrong with JSON is said by another parser."""
    message = _RESOURCES.sub(lambda found: f"[{' '.join(sorted(found[1].split()))}]", message)
    message = _PARSER.sub("err: ...", message)
    return _EVALUATED.sub("N nodes are available", _OTHER_NODES.sub("", message))
