"""Nodes with devices, and pods that request some, for an engine in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import convert
from koordinator.api.device import Device
from koordinator.api.kinds import DEVICES
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration.koordinator_arguments import DeviceShareArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.plugins.device_share.allocation import DeviceAllocations
from koordinator.scheduler.plugins.device_share.plugin import DeviceShare
from tests.scheduler.fakes import FirstChoice, make_node, make_profile, make_state
from tests.scheduler.ground.clusters import NOW, listed

GIB = 2**30
PLENTY = {
    f"koordinator.sh/{name}": Quantity.parse("1Ti")
    for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma")
}
"""Of every node, so that it is the devices that matter."""


def gpu(minor: int, *, memory: str = "16Gi", numa: int | None = 0, pcie: str = "0", **more: Any) -> dict[str, Any]:
    """A GPU; ``numa`` None: it is not known where it is."""
    resources = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": memory}
    return _device("gpu", minor, resources, numa, pcie, more)


def rdma(minor: int, *, numa: int | None = 0, pcie: str = "0", functions: int = 0, **more: Any) -> dict[str, Any]:
    """An RDMA card with so many virtual functions."""
    if functions:
        vfs = [{"minor": number, "busID": f"0000:{minor:02x}:00.{number + 1}"} for number in range(functions)]
        more["vfGroups"] = [{"labels": {"speed": "fast"}, "vfs": vfs}]
    return _device("rdma", minor, {"rdma": 100}, numa, pcie, more)


def _device(
    kind: str, minor: int, resources: Mapping[str, object], numa: int | None, pcie: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    where = {"topology": {"socketID": 0, "nodeID": numa, "pcieID": pcie}} if numa is not None else {}
    amounts = {f"koordinator.sh/{name}": each for name, each in resources.items()}
    return {
        "type": kind,
        "minor": minor,
        "id": f"{kind}-{minor}",
        "health": True,
        "resources": amounts,
        **where,
        **more,
    }


def device(*devices: Mapping[str, Any], node: str = "a", **metadata: Any) -> Device:
    """The Device object of a node."""
    return convert({"metadata": {"name": node, **metadata}, "spec": {"devices": list(devices)}}, Device)


def eight() -> list[dict[str, Any]]:
    """Eight GPUs on two NUMA nodes with two PCIe switches each."""
    return [gpu(minor, numa=minor // 4, pcie=str(minor // 2)) for minor in range(8)]


def make_device_pod(
    name: str,
    *,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, Any] | None = None,
    **requests: object,
) -> Pod:
    """A pod; ``requests`` are resources of koordinator.sh with underscores for dashes."""
    amounts = {f"koordinator.sh/{key.replace('_', '-')}": Quantity.parse(str(each)) for key, each in requests.items()}
    texts = {
        f"scheduling.koordinator.sh/{key.replace('_', '-')}": each if isinstance(each, str) else json.dumps(each)
        for key, each in (annotations or {}).items()
    }
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=uid or f"uid-{name}", labels=dict(labels or {}), annotations=texts
        ),
        spec=PodSpec(
            scheduler_name="koord-scheduler",
            priority=0,
            containers=[Container(name="main", resources=ResourceRequirements(requests=amounts))],
        ),
    )


class Machines:
    """An engine with DeviceShare, and what else is named, on the nodes of these Device objects, and on node "a"."""

    def __init__(
        self, *devices: Device, more: Iterable[type[Plugin]] = (), labels: Mapping[str, str] | None = None, **args: Any
    ) -> None:
        self.state: ClusterState = make_state()
        self.view = self.state.view
        base = make_profile(self.view)
        self.plugin = DeviceShare(convert(args, DeviceShareArgs), self.view)
        order = base.order
        plugins: dict[str, Plugin] = {**base.plugins, DeviceShare.name: self.plugin}
        kinds: tuple[type[Plugin], ...] = (*more, DeviceShare)
        for kind in kinds:
            order = listed(order, kind)
            if kind.name not in plugins:
                plugins[kind.name] = kind(None, self.view)
        self.profile = Profile("koord-scheduler", plugins, order)
        self.state.add_event_handlers(self.profile.event_handlers)
        for name in dict.fromkeys(("a", *(each.metadata.name for each in devices))):
            node = make_node(name, labels=dict(labels or {}))
            node.status.allocatable.update(PLENTY)
            self.state.set_node(node)
        for each in devices:
            self.set_device(each)
        self.engine = Engine(self.profile, self.state, FirstChoice())
        self.differences: list[str] = []
        """Between cached results and fresh ones."""
        self.engine.refresh = EvaluationCheck(self.profile, self.view, self.differences.append).refresh

    def set_device(self, found: Device) -> None:
        self.state.set_node_object(DEVICES.name, found.metadata.name, found)

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def decide(self, pod: Pod) -> Placement | Rejection:
        return self.engine.decide(self.info(pod), NOW)

    def place(self, pod: Pod) -> Placement:
        result = self.decide(pod)
        assert isinstance(result, Placement), result
        assert self.engine.assume(result) is None
        return result

    def message(self, pod: Pod) -> str:
        """Why the pod does not get a node."""
        result = self.decide(pod)
        assert isinstance(result, Rejection), result
        return result.message

    def bound(self, pod: Pod, node: str = "a", *, devices: str = "") -> None:
        """The API has the pod on the node, with the annotation ``device-allocated``."""
        if devices:
            texts = {**pod.metadata.annotations, annotation_keys.DEVICE_ALLOCATED: devices}
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=texts))
        self.state.set_pod(self.info(pod), node)

    def held(self, uid: str) -> DeviceAllocations:
        found: DeviceAllocations | None = self.view.allocations.of("DeviceShare", uid)
        return found or ()

    def minors(self, name: str, device_type: str = "gpu") -> list[int]:
        """The devices of a pod."""
        return [each.minor for each in dict(self.held(f"uid-{name}")).get(device_type, ())]
