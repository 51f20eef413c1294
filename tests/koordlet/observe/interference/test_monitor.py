"""From what is measured to events, metrics and the NodeMetric."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koordinator.api.labels import QOS_CLASS
from koordinator.api.meta import EXTENSIONS_MEMBER, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.observe.cycles import ContainerCycles, CyclesRound
from koordinator.koordlet.observe.interference.monitor import InterferenceMonitor
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.observe.observation import Observation
from koordinator.koordlet.observe.pressure import PodPressure, PressureRound
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.koordlet.options import Folders, Options
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.model.slo_adaptation import suffering
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.pressure import Pressure, Stall
from tests.node.machine import FakeMachine

LEARNED, ABNORMAL = 40, 12
INTERVAL = 10.0
THREAD = 7


def node_pod(name: str, qos: str, owner: str = "") -> NodePod:
    owners = [OwnerReference(kind="ReplicaSet", name=owner, controller=True)] if owner else []
    metadata = ObjectMeta(
        name=name, namespace="shop", uid=f"uid-{name}", labels={QOS_CLASS: qos}, owner_references=owners
    )
    containers = (PodContainer("main", f"containerd://{name}", f"{name}/c"),)
    return NodePod(Pod(metadata=metadata), metadata.uid, name, containers)


@dataclass
class Recorded:
    events: list[tuple[str, str, str]] = field(default_factory=list)

    def event(self, regarding: Any, type_: str, reason: str, action: str, note: str) -> None:
        self.events.append((regarding.name, reason, note))


class Node:
    """A latency-sensitive pod ``web`` and a batch pod ``job``, which are measured as the test says."""

    def __init__(self, root: Path) -> None:
        self.machine, self.clock, self.recorded = FakeMachine(root), ManualClock(), Recorded()
        self.states = SimpleNamespace(pods=[node_pod("web", "LS", "web-5d8"), node_pod("job", "BE")])
        self.observation = SimpleNamespace(
            pressure=SimpleNamespace(latest=PressureRound()),
            cycles=SimpleNamespace(latest=CyclesRound()),
            reader=CgroupReader(self.machine.layout(CgroupVersion.V2), 4096),
        )
        self.cache = RingMetricCache({kinds.PODS: Retention(400, 1)}, 10_000_000)
        self.metrics = AgentMetrics(Metrics(), "node-1")
        context = SimpleNamespace(
            states=self.states,
            recent_usage=RecentUsage(UsageTable(1.0, 5.0), self.cache, self.clock),
            options=Options("node-1", self.machine.host, NOWHERE, Folders.under(root)),
            metrics=self.metrics,
            given=SimpleNamespace(clock=self.clock, read_delays=None),
            events=SimpleNamespace(recorder=lambda component: self.recorded),
        )
        self.waited = 0.0
        self.monitor = InterferenceMonitor(cast("AgentContext", context), cast("Observation", self.observation))

    def rounds(
        self, count: int, *, stall: float | None = 1.0, job_cores: float = 0.5, wait: float | None = None
    ) -> None:
        """In one event loop: a new one for each round would cost more than the round."""
        asyncio.run(self._rounds(count, stall, job_cores, wait))

    async def _rounds(self, count: int, stall: float | None, job_cores: float, wait: float | None) -> None:
        for _ in range(count):
            await self.clock.advance(INTERVAL)
            if wait is not None:
                self.wait(wait)
            at = round(self.clock.now().timestamp() * 1000)
            cores = {kinds.POD_CPU_USAGE.series(pod_uid=pod.uid): 1.0 for pod in self.states.pods}
            cores[kinds.POD_CPU_USAGE.series(pod_uid=self.states.pods[-1].uid)] = job_cores
            self.cache.append(at, cores)
            values = {"memory": 0.0, "io": 0.0} if stall is None else {"cpu": stall, "memory": 0.0, "io": 0.0}
            pressures = {name: Pressure(Stall(avg10=value), None) for name, value in values.items()}
            self.observation.pressure.latest = PressureRound([PodPressure(self.states.pods[0], None, pressures)])
            await self.monitor.observe()

    def wait(self, share: float) -> None:
        """The thread of ``web`` has run for a second more, and waited so much of the time that it wanted a CPU."""
        self.waited += share / (1 - share) * 1e9
        ran = round(self.clock.monotonic() * 1e8)
        self.machine.write("/sys/fs/cgroup/web/c/cgroup.threads", f"{THREAD}\n")
        self.machine.write(f"/proc/{THREAD}/schedstat", f"{ran} {self.waited:.0f} 1\n")

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return [(name, reason) for name, reason, _ in self.recorded.events]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_pod_gets_one_event_when_it_begins_and_one_when_it_is_over(node: Node) -> None:
    node.rounds(LEARNED)
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    assert node.reasons == [("web", "InterferenceDetected")]
    node.rounds(10)
    assert node.reasons == [("web", "InterferenceDetected"), ("web", "InterferenceEnded")]


def test_the_event_names_the_figures_and_the_suspect(node: Node) -> None:
    node.rounds(LEARNED)
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    note = node.recorded.events[0][2]
    assert note.startswith("cpu-pressure is 30.0 %, normally 1.")
    assert "suspect: BE pod shop/job (correlation 0.8" in note
    assert note.endswith("advice: suppress it")


def test_the_node_metric_says_it_as_long_as_it_lasts(node: Node) -> None:
    node.rounds(LEARNED)
    assert node.monitor.extensions() == {}
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    (finding,) = node.monitor.extensions()["uid-web"]["interference"]
    assert (finding["indicator"], finding["value"], finding["suspects"][0]["pod"]) == ("cpu-pressure", 30.0, "shop/job")
    node.rounds(10)
    assert node.monitor.extensions() == {}


def test_the_manager_takes_it_for_evidence(node: Node) -> None:
    node.rounds(LEARNED)
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    (sentence,) = suffering("shop/web", {EXTENSIONS_MEMBER: node.monitor.extensions()["uid-web"]})
    assert sentence.startswith("cpu-pressure of pod shop/web is 30, above ")
    assert sentence.endswith(", with shop/job as the suspect")


def test_without_pressure_it_goes_by_how_long_threads_wait(node: Node) -> None:
    node.rounds(LEARNED, stall=None, wait=0.02)
    node.rounds(ABNORMAL, stall=None, wait=0.4, job_cores=6.0)
    (finding,) = node.monitor.extensions()["uid-web"]["interference"]
    assert (finding["indicator"], finding["value"]) == ("cpu-wait", pytest.approx(40.0, abs=0.1))
    assert finding["suspects"][0]["pod"] == "shop/job"


def test_where_there_is_pressure_no_thread_is_looked_at(node: Node) -> None:
    node.rounds(LEARNED, wait=0.02)
    node.rounds(ABNORMAL, wait=0.4, job_cores=6.0)
    assert node.reasons == []


def test_the_metric_has_a_series_for_each_suspect(node: Node) -> None:
    node.rounds(LEARNED)
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    body, _ = node.metrics.internal.exposition()
    (line,) = [line for line in body.decode().splitlines() if line.startswith("koordlet_pod_interference_correlation{")]
    assert 'indicator="cpu-pressure"' in line
    assert 'suspect_name="job"' in line


def test_a_pod_that_is_gone_gets_no_event(node: Node) -> None:
    node.rounds(LEARNED)
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    node.states.pods = node.states.pods[1:]
    asyncio.run(node.monitor.observe())
    assert node.reasons == [("web", "InterferenceDetected")]


def test_another_pod_of_the_workload_knows_what_is_normal(node: Node) -> None:
    node.rounds(LEARNED)
    node.states.pods[0] = node_pod("web-2", "LS", "web-5d8")
    node.rounds(ABNORMAL, stall=30.0, job_cores=6.0)
    assert node.reasons == [("web-2", "InterferenceDetected")]


def test_one_count_of_cycles_is_one_reading(node: Node) -> None:
    web = node.states.pods[0]
    for number in range(2 * LEARNED):
        busy = number >= LEARNED + 30
        if number % 6 == 0:
            node.observation.cycles.latest = CyclesRound(
                [ContainerCycles(web, web.containers[0], 3000 if busy else 1000, 1000)]
            )
        node.rounds(1)
    assert node.reasons == [], "fewer than thirty counts"


def test_bytes_are_a_rate_since_the_last_round(node: Node) -> None:
    job, seen = node.states.pods[1], []
    for total in (1000, 6000, 2000, 2000):
        node.machine.write("/sys/fs/cgroup/job/c/io.stat", f"8:0 rbytes={total} wbytes=0\n")
        asyncio.run(node.clock.advance(INTERVAL))
        seen.append(node.monitor._io_rate(job))
    assert seen == [None, 500.0, None, 0.0], "not for the first, nor after a restart of the container"
