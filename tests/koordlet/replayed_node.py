"""The whole agent over recorded moments of a real node: it sees what koordlet saw there, on a clock of its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from koordinator.api.kinds import NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.agent_context import Dependencies
from koordinator.koordlet.features import make_features
from koordinator.koordlet.options import Folders, KubeletOptions, Options
from koordinator.koordlet.pods.kubelet_connection import KubeletConnection
from koordinator.kube.interface import Client
from tests.in_memory_api import InMemoryApi
from tests.koordlet.recording import Recording
from tests.node.machine import FakeMachine


@dataclass(frozen=True)
class Reported:
    """What the agent has told when the recording has ended."""

    node_metric: dict[str, Any]
    topology: dict[str, Any]
    """The NodeResourceTopology, without its metadata but for annotations and labels."""
    metrics: str


@dataclass
class ReplayedNode:
    """``gates`` are switched on; ``applications`` are those of the NodeSLO; ``made`` are files that the recorded
    machine did not have."""

    root: Path
    recording: Recording
    gates: tuple[str, ...] = ()
    applications: list[dict[str, str]] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)

    def play(self) -> Reported:
        return asyncio.run(self._play())

    async def _play(self) -> Reported:
        machine, clock = FakeMachine(self.root), ManualClock()
        api = InMemoryApi(clock)
        name = self.recording.node["metadata"]["name"]
        policy = {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}
        for kind, document in (
            (NODES, self.recording.node),
            (NODE_METRICS, {"spec": {"metricCollectPolicy": {**policy, "nodeAggregatePolicy": {"durations": ["1m"]}}}}),
            (NODE_SLOS, {"spec": {"hostApplications": self.applications}}),
        ):
            api.put(kind, {**document, "metadata": {"name": name}})
        agent = Agent(self._options(name, machine), self._given(api.client(), clock))
        _write(machine, self.recording.moments[0] | self.made)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.run(stop))
            # By then the agent has found its node and measured for the first time.
            await clock.advance(1)
            for moment in self.recording.moments[1:]:
                _write(machine, moment)
                await clock.advance(self.recording.seconds)
            await clock.advance(1)
            (document,) = api.all(NODE_METRICS)
            (topology,) = api.all(NODE_RESOURCE_TOPOLOGIES)
            body, _ = agent.metrics.both.exposition()
            stop.set()
        kept = {name: topology["metadata"].get(name) for name in ("labels", "annotations")}
        return Reported(document["status"], {**topology, "metadata": kept}, _own(body.decode()))

    def _options(self, name: str, machine: FakeMachine) -> Options:
        features = make_features()
        features.set(dict.fromkeys(self.gates, True))
        return Options(
            node_name=name,
            host=machine.host,
            listen=ListenAddress("", 0),
            folders=Folders.under(self.root / "koordlet"),
            kubelet=KubeletOptions(sync_interval=10),
            collect_interval=float(self.recording.seconds),
            with_page_cache=True,
            features=features,
        )

    def _given(self, client: Client, clock: ManualClock) -> Dependencies:
        async def get(path: str) -> bytes:
            if path == "/configz":
                return b'{"kubeletconfig": {"cpuManagerPolicy": "none"}}'
            return json.dumps(self.recording.pods).encode()

        async def close() -> None:
            return None

        async def connect(node: Node) -> KubeletConnection:
            return KubeletConnection(get, close)

        return Dependencies(client, connect, clock, Random(1), Metrics())


def _write(machine: FakeMachine, moment: dict[str, str]) -> None:
    for path, content in moment.items():
        machine.write(path, content)


def _own(text: str) -> str:
    """The families of koordlet, in the order of their names, but the one that asks the kernel that runs the test."""
    families: dict[str, list[str]] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
        families.setdefault(family, []).append(line)
    families.pop("koordlet_kernel_feature_works")
    return "".join(f"{line}\n" for name in sorted(families) if name.startswith("koordlet_") for line in families[name])
