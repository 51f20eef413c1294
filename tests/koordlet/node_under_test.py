"""A whole agent over a made machine, a kubelet that responds from memory and an API server in memory, on one clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.agent_context import Dependencies
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.enforce.plugins import Plugins
from koordinator.koordlet.features import make_features
from koordinator.koordlet.observe.prediction.options import PredictionOptions
from koordinator.koordlet.options import (
    CollectorOptions,
    EnforcementOptions,
    Folders,
    KubeletOptions,
    Options,
    WatchedConfiguration,
)
from koordinator.koordlet.pods.kubelet_connection import KubeletConnection
from koordinator.kube.errors import TransportError
from koordinator.node.core_scheduling import Prctl
from koordinator.node.kernel_writer import KernelFiles
from koordinator.node.kubelet import KubeletAddressError
from koordinator.node.nvml import open_nvml
from koordinator.node.traffic_control import TrafficControlAccess
from tests.in_memory_api import InMemoryApi
from tests.node.machine import FakeMachine
from tests.node.nvml_library import FakeCard, FakeNvmlLibrary

NODE = "node-1"
UID = "0000-web"
POD_FOLDER = f"kubepods/burstable/pod{UID}"
GIB = 1 << 30
MEMORY_STAT = "anon {0}\nfile {1}\ninactive_anon 0\nactive_anon {0}\ninactive_file {1}\nactive_file 0\nunevictable 0\n"


class NodeUnderTest:
    """A node of 4 CPUs, cgroup version 2, with one pod; ``pass_seconds`` lets time go by."""

    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root)
        self.prediction = PredictionOptions()
        self.samples: Path | None = None
        self.cache_bytes = 100 << 20
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.kubelet_is_up = True
        self.plugins = Plugins()
        """Of other packages."""
        self.kubelet_takes = 0.0
        """Seconds to respond."""
        self.requests: list[str] = []
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
        self.api.put(NODES, _node())
        self.api.put(NODE_METRICS, {"metadata": {"name": NODE}, "spec": _collect_policy()})
        self.machine.write_cpus([(0, cpu, 0) for cpu in range(4)])
        self.machine.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
        self.pod_is_there = True
        self.break_meminfo = False
        self.kernel_files: KernelFiles = SimulatedFiles()
        self.prctl: Prctl | None = None
        self.traffic_control: TrafficControlAccess | None = None
        self.gates: tuple[str, ...] = ()
        """Feature gates that are switched on."""
        self.closed_gates: tuple[str, ...] = ()
        """Those that are switched off."""
        self.collect_interval = 1.0
        self.enforcement = EnforcementOptions()
        self.collectors = CollectorOptions()
        self.hooks = HookOptions()
        self.kubelet = KubeletOptions(sync_interval=10)
        self.kubelet_configuration: dict[str, Any] = {"cgroupDriver": "cgroupfs"}
        self.profiles = NOWHERE
        self.follows_configuration = False
        """Whether the agent follows its ConfigMap."""
        self.cards: tuple[FakeCard, ...] = ()
        self.write_files()

    @property
    def status(self) -> dict[str, Any]:
        """Of the NodeMetric."""
        (document,) = self.api.all(NODE_METRICS)
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
        agent = self._agent()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.run(stop))
            await self.clock.advance(0)
            try:
                yield agent
            finally:
                stop.set()

    async def clean_up(self) -> int:
        """What ``koordlet --cleanup`` returns or raises, while time goes by."""
        self.kubelet_is_up = True
        work = asyncio.ensure_future(self._agent(cleanup=True).clean_up())
        while not work.done():
            await self.clock.advance(1)
        return await work

    def _agent(self, *, cleanup: bool = False) -> Agent:
        features = make_features()
        features.set(dict.fromkeys(self.gates, True) | dict.fromkeys(self.closed_gates, False))
        options = Options(
            node_name=NODE,
            features=features,
            collect_interval=self.collect_interval,
            collectors=self.collectors,
            enforcement=self.enforcement,
            hooks=self.hooks,
            host=self.machine.host,
            listen=NOWHERE,
            folders=replace(Folders.under(self.machine.root), samples=self.samples),
            profiles=self.profiles,
            kubelet=self.kubelet,
            prediction=self.prediction,
            cache_bytes=self.cache_bytes,
            cleanup=cleanup,
        )
        if self.follows_configuration:
            options = replace(options, configuration=self._watched(options))
        given = Dependencies(
            client=self.api.client(),
            connect_kubelet=self._connect,
            clock=self.clock,
            random=Random(1),
            metrics=Metrics(),
            kernel_files=self.kernel_files,
            prctl=self.prctl,
            traffic_control=self.traffic_control,
            plugins=self.plugins,
            open_nvml=lambda host: open_nvml(host, lambda: FakeNvmlLibrary(*self.cards, has_driver=bool(self.cards))),
        )
        return Agent(options, given)

    def _watched(self, options: Options) -> WatchedConfiguration:
        gates = {**dict.fromkeys(self.gates, "true"), **dict.fromkeys(self.closed_gates, "false")}
        own = [f"--feature-gates={','.join(f'{name}={value}' for name, value in gates.items())}"]
        if options.cleanup:
            own.append("--cleanup")
        watched = parse_options(own, {"NODE_NAME": NODE}).configuration
        assert watched is not None

        def read(flags: Mapping[str, str]) -> Options:
            found = watched.read(flags)
            return replace(
                options,
                features=found.features,
                enforcement=found.enforcement,
                plugins=found.plugins,
                verbosity=found.verbosity,
            )

        return replace(watched, read=read)

    def configure(self, **flags: str) -> None:
        """The ConfigMap of koordlet has these flags from now on."""
        metadata = {"name": "koordlet-config", "namespace": "koordinator-system"}
        data = {name.replace("_", "-"): text for name, text in flags.items()}
        self.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data})

    async def _connect(self, node: Node) -> KubeletConnection:
        assert node.metadata.name == NODE
        if not self.has_address:
            raise KubeletAddressError(f"node {NODE}: status.addresses has none of the type InternalIP")

        async def close() -> None:
            self.kubelet_is_up = False

        return KubeletConnection(self._get, close)

    async def _get(self, path: str) -> bytes:
        self.requests.append(path)
        if self.kubelet_takes:
            await self.clock.sleep(self.kubelet_takes)
        if not self.kubelet_is_up:
            raise TransportError("connection refused")
        if path == "/pods/":
            return json.dumps({"kind": "PodList", "items": self.pods}).encode()
        return json.dumps({"kubeletconfig": self.kubelet_configuration}).encode()

    def add_capacity(self) -> None:
        """To the Node, which shows its allocatable amounts only."""
        node = self.api.found(NODES, NODE)
        assert node is not None
        node["status"]["capacity"] = {"cpu": "4", "memory": "16Gi"}
        self.api.put(NODES, node)

    def show_slo(self, spec: dict[str, Any]) -> None:
        """The NodeSLO; before the agent starts."""
        self.api.put(NODE_SLOS, {"metadata": {"name": NODE}, "spec": spec})


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


Story = Callable[[NodeUnderTest], Awaitable[None]]


def play(node: NodeUnderTest, story: Story) -> dict[str, Any]:
    """Run the agent through a story; the status that it has written at the end."""

    async def run() -> None:
        async with node.running():
            await story(node)

    asyncio.run(run())
    return node.status


def usage(cpu: str, memory: str) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def cpu_of(status: dict[str, Any], name: str) -> str:
    return str(status["nodeMetric"][name]["resources"]["cpu"])
