"""A whole agent over a made machine, a kubelet that answers from memory and an API server in memory, on one clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS, NODE_SLOS, NODES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent import Agent, Dependencies, KubeletConnection
from koordinator.koordlet.command_line import AuditOptions, CollectorOptions, KubeletOptions, Options
from koordinator.koordlet.features import make_features
from koordinator.koordlet.hooks.options import HookOptions
from koordinator.koordlet.prediction.options import PredictionOptions
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import ListPage, WatchEvent
from koordinator.node.kubelet import KubeletAddressError
from koordinator.node.nvml import open_nvml
from tests.kube.fake_client import MemoryClient, as_client
from tests.node.machine import FakeMachine
from tests.node.nvml_library import FakeCard, FakeNvmlLibrary

T = TypeVar("T", bound=Object)
NODE = "node-1"
UID = "0000-web"
POD_FOLDER = f"kubepods/burstable/pod{UID}"
GIB = 1 << 30
MEMORY_STAT = "anon {0}\nfile {1}\ninactive_anon 0\nactive_anon {0}\ninactive_file {1}\nactive_file 0\nunevictable 0\n"


class ListingClient(MemoryClient):
    """Lists what is there once, and never sees a change; that is enough for an agent's own few objects."""

    async def list(self, kind: Kind[T], namespace: str = "", **_: Any) -> ListPage[T]:
        items = [convert(document, kind.type) for document in self.documents(kind)]
        return ListPage(items, [], str(self.version), "", None)

    async def watch(self, kind: Kind[T], namespace: str = "", **_: Any) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        yield cast("WatchEvent[T]", None)


class NodeUnderTest:
    """A node of 4 CPUs, cgroup version 2, with one pod; ``pass_seconds`` lets time go by."""

    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root)
        self.checkpoints = root / "checkpoints"
        self.cache_folder: Path | None = None
        self.clock = ManualClock()
        self.client = ListingClient()
        self.kubelet_is_up = True
        self.asked: list[str] = []
        """Of kubelet."""
        self.has_address = True
        """Whether the Node says where its kubelet is."""
        self.machine.write("/proc/driver/nvidia/version", "NVRM version: 570.86\n")
        self.pods: list[dict[str, Any]] = [pod("web", UID)]
        self.busy_ticks = 0
        self.pod_cpu = 0
        """In microseconds, as cpu.stat has it."""
        self.pod_cores = 0.5
        self.node_cores = 2.0
        self.pod_memory = GIB
        self._add(NODES.qualified, _node())
        self._add(NODE_METRICS.qualified, {"metadata": {"name": NODE}, "spec": _collect_policy()})
        self.machine.write_cpus([(0, cpu, 0) for cpu in range(4)])
        self.machine.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
        self.pod_is_there = True
        self.break_meminfo = False
        self.gates: tuple[str, ...] = ()
        """Feature gates that are switched on."""
        self.collectors = CollectorOptions()
        self.hooks = HookOptions()
        self.profiles = NOWHERE
        self.cards: tuple[FakeCard, ...] = ()
        self.write_files()

    @property
    def status(self) -> dict[str, Any]:
        """Of the NodeMetric."""
        (document,) = self.client.documents(NODE_METRICS)
        return cast("dict[str, Any]", document.get("status", {}))

    def write_machine_files(self) -> None:
        """What the kernel shows of the machine now."""
        self.machine.write("/proc/stat", f"cpu {self.busy_ticks} 0 0 0 0 0 0 0\n")
        meminfo = f"MemTotal: {16 << 20} kB\nMemFree: 1024 kB\nMemAvailable: {8 << 20} kB\n"
        self.machine.write("/proc/meminfo", "MemTotal: lots\n" if self.break_meminfo else meminfo)

    def write_files(self) -> None:
        """What the kernel shows now, of the pod, too."""
        self.write_machine_files()
        for folder in (POD_FOLDER, f"{POD_FOLDER}/c0") if self.pod_is_there else ():
            cgroup = f"/sys/fs/cgroup/{folder}"
            stat = f"usage_usec {self.pod_cpu}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
            self.machine.write(f"{cgroup}/cpu.stat", stat)
            self.machine.write(f"{cgroup}/memory.stat", MEMORY_STAT.format(self.pod_memory, 4096))

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.busy_ticks += round(100 * self.node_cores)
            self.pod_cpu += round(1_000_000 * self.pod_cores)
            self.write_files()
            await self.clock.advance(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Agent]:
        """The agent; leaving the block stops it, as a signal does, and raises what ended it early."""
        features = make_features()
        features.set(dict.fromkeys(self.gates, True))
        options = Options(
            node_name=NODE,
            features=features,
            collectors=self.collectors,
            hooks=self.hooks,
            audit=AuditOptions(folder=str(self.machine.root / "audit")),
            host=self.machine.host,
            listen=NOWHERE,
            profiles=self.profiles,
            kubelet=KubeletOptions(sync_interval=10),
            prediction=PredictionOptions(folder=self.checkpoints),
            cache_folder=self.cache_folder,
        )
        given = Dependencies(
            client=as_client(self.client),
            connect_kubelet=self._connect,
            clock=self.clock,
            random=Random(1),
            metrics=Metrics(),
            open_nvml=lambda host: open_nvml(host, lambda: FakeNvmlLibrary(*self.cards, has_driver=bool(self.cards))),
        )
        agent = Agent(options, given)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.run(stop))
            await self.clock.advance(0)
            try:
                yield agent
            finally:
                stop.set()

    async def _connect(self, node: Node) -> KubeletConnection:
        assert node.metadata.name == NODE
        if not self.has_address:
            raise KubeletAddressError(f"node {NODE}: status.addresses has none of the type InternalIP")

        async def close() -> None:
            self.kubelet_is_up = False

        return KubeletConnection(self._get, close)

    async def _get(self, path: str) -> bytes:
        self.asked.append(path)
        if not self.kubelet_is_up:
            raise TransportError("connection refused")
        if path == "/pods/":
            return json.dumps({"kind": "PodList", "items": self.pods}).encode()
        return json.dumps({"kubeletconfig": {"cgroupDriver": "cgroupfs"}}).encode()

    def show_slo(self, spec: dict[str, Any]) -> None:
        """The NodeSLO; before the agent starts."""
        self._add(NODE_SLOS.qualified, {"metadata": {"name": NODE}, "spec": spec})

    def _add(self, plural: str, document: dict[str, Any]) -> None:
        self.client.version += 1
        document["metadata"]["resourceVersion"] = str(self.client.version)
        self.client.objects[plural, "", NODE] = document


def pod(name: str, uid: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "priority": 9500,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "8Gi"}}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "c", "containerID": "containerd://c0"}],
        },
    }


def _node() -> dict[str, Any]:
    return {
        "metadata": {"name": NODE},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        },
    }


def _collect_policy() -> dict[str, Any]:
    return {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": 60,
            "reportIntervalSeconds": 60,
            "nodeAggregatePolicy": {"durations": ["1m0s"]},
        }
    }
