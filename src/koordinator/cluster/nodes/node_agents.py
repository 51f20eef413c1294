"""koordlet itself on simulated nodes: each has a simulated kernel's files and a kubelet that responds from memory.

An agent starts when its node gets its first pod. Until it has measured for as long as it takes to report, and while
something is meant to go wrong with what its node reports, the coarse model writes the NodeMetric instead.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from koordinator.api import codec
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_finished
from koordinator.base.clock import Clock
from koordinator.base.listen_address import ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.cluster.nodes.faults import Faults
from koordinator.cluster.nodes.hardware import KUBELET_CPU_POLICY
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.rotation import SimulatedTime
from koordinator.cluster.nodes.scenario_checks import Fault
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.cluster.nodes.simulated_kernel import PodDemand, SimulatedKernel
from koordinator.koordlet import features
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.agent_context import Dependencies
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.options import Folders, Options
from koordinator.koordlet.pods.kubelet_connection import KubeletConnection
from koordinator.koordlet.pods.node_pod import node_pods
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client
from koordinator.node.cgroup_layout import CgroupDriver

logger = logging.getLogger(__name__)

_COLLECT_SECONDS: Final = 5.0
_FLAGS: Final = (
    *("--reconcile-interval-seconds=5", "--cpu-suppress-interval-seconds=5"),
    *("--cpu-evict-interval-seconds=5", "--memory-evict-interval-seconds=5"),
    f"--feature-gates={features.PSI_COLLECTOR}=true,{features.INTERFERENCE_DETECTION}=true",
)
"""What the ConfigMap of koordlet may change."""
_CONFIGURATION: Final = codec.encode({"kubeletconfig": {"cgroupDriver": CgroupDriver.SYSTEMD, **KUBELET_CPU_POLICY}})
_TICK: Final = 1.0
_RETRY: Final = 30.0
"""Seconds until an agent that has failed starts again."""


@dataclass(frozen=True, slots=True)
class AgentDependencies:
    """What the agents of all nodes share. ``folder`` is for the files of their kernels."""

    client: Client
    population: Population
    time: SimulatedTime
    faults: Faults
    pods_of: Callable[[str], Sequence[Pod]]
    clock: Clock
    random: Random
    folder: Path


@dataclass(frozen=True, slots=True)
class _Running:
    agent: Agent
    stop: asyncio.Event
    since: float


class NodeAgents:
    """Runs an agent on each node that has joined and has pods; ``run`` does it, one more node each second."""

    def __init__(self, given: AgentDependencies) -> None:
        self._given = given
        self._nodes: dict[str, SimulatedNode] = {}
        self._running: dict[str, _Running] = {}
        self._not_before: dict[str, float] = {}

    def join(self, node: SimulatedNode) -> None:
        self._nodes[node.name] = node

    def leave(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._not_before.pop(name, None)
        self._stop(name)

    def is_reporting(self, name: str) -> bool:
        """Whether the agent of the node writes its NodeMetric from now on."""
        running = self._running.get(name)
        if running is None or running.agent.states.node_metric is None:
            return False
        measured = self._given.clock.monotonic() - running.since
        return measured >= running.agent.states.collect_policy.report_seconds

    def metrics_of(self, name: str) -> Metrics | None:
        """What koordlet of the node would serve; None where none runs."""
        running = self._running.get(name)
        return None if running is None else running.agent.metrics.both

    async def run(self) -> NoReturn:
        """Start and stop agents until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for name in self._nodes:
                    if self._given.faults.of(name) is not Fault.NONE:
                        self._stop(name)
                if (waiting := self._next()) is not None:
                    tasks.create_task(self._live(waiting), name=f"koordlet of {waiting.name}")
                await self._given.clock.sleep(_TICK)

    def _next(self) -> SimulatedNode | None:
        now = self._given.clock.monotonic()
        for name, node in self._nodes.items():
            is_due = name not in self._running and now >= self._not_before.get(name, now)
            if is_due and self._given.faults.of(name) is Fault.NONE and self._has_pods(name):
                return node
        return None

    def _has_pods(self, name: str) -> bool:
        """koordlet takes a kubelet without any pod for one that does not know yet, and does not measure the system."""
        return any(not is_finished(pod) for pod in self._given.pods_of(name))

    def _stop(self, name: str) -> None:
        if (running := self._running.get(name)) is not None:
            running.stop.set()

    async def _live(self, node: SimulatedNode) -> None:
        """One agent, from its start to its end."""
        if node.name not in self._nodes:
            return
        root = self._given.folder / node.name
        try:
            running = _Running(self._agent(node, root), asyncio.Event(), self._given.clock.monotonic())
            self._running[node.name] = running
            await running.agent.run(running.stop)
        except Exception:
            # Of one node: the others go on, and the coarse model reports for it meanwhile.
            logger.exception("koordlet of node %s has failed; it starts again in %d s", node.name, _RETRY)
            self._not_before[node.name] = self._given.clock.monotonic() + _RETRY
        finally:
            self._running.pop(node.name, None)
            shutil.rmtree(root, ignore_errors=True)

    def _agent(self, node: SimulatedNode, root: Path) -> Agent:
        given = self._given
        kernel = SimulatedKernel(root, max(1, round(node.cpu)), round(node.memory), given.time.now())
        dependencies = Dependencies(
            client=given.client,
            connect_kubelet=self._connect_kubelet,
            clock=given.clock,
            random=given.random,
            metrics=Metrics(),
            kernel_files=SimulatedFiles(),
            before_scan=lambda: self._advance(kernel, node.name),
        )
        return Agent(_options(node.name, kernel, root), dependencies)

    def _advance(self, kernel: SimulatedKernel, name: str) -> None:
        """Let the node's kernel catch up with the present."""
        given = self._given
        if not given.population.has_node(name):
            return
        now = given.time.now()
        readings = given.population.readings_of(name, now)
        demands = [
            PodDemand(pod, *readings.pods[pod.uid])
            for pod in node_pods(given.pods_of(name), kernel.layout)
            if pod.uid in readings.pods
        ]
        kernel.advance(now, readings.system_cpu, readings.system_memory, demands)

    async def _connect_kubelet(self, node: Node) -> KubeletConnection:
        async def get(path: str) -> bytes:
            match path:
                case "/pods/":
                    pods = self._given.pods_of(node.metadata.name)
                    return codec.encode({"apiVersion": "v1", "kind": "PodList", "items": list(pods)})
                case "/configz":
                    return _CONFIGURATION
            raise ApiStatusError(404, "NotFound", f"a simulated kubelet has no {path}")

        async def close() -> None:
            return None

        return KubeletConnection(get, close)


def _options(name: str, kernel: SimulatedKernel, root: Path) -> Options:
    """Nothing is served, and what is done once a second elsewhere is done every five: many nodes share two cores.

    Interference is reported, since the simulated kernel shows which tasks wait. The ConfigMap of koordlet is followed,
    as on other nodes.
    """
    given = parse_options(_FLAGS, {"NODE_NAME": name})
    watched = given.configuration
    assert watched is not None
    options = Options(
        node_name=name,
        host=kernel.host,
        listen=ListenAddress("", 0),
        folders=Folders.under(root),
        features=given.features,
        collect_interval=_COLLECT_SECONDS,
        topology_interval=_COLLECT_SECONDS,
        enforcement=given.enforcement,
    )

    def read(flags: Mapping[str, str]) -> Options:
        found = watched.read(flags)
        return replace(options, features=found.features, enforcement=found.enforcement, plugins=found.plugins)

    return replace(options, configuration=replace(watched, read=read))
