"""All simulated nodes together: the entry for a program and for callers in the same process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn

from koordinator.api.kinds import NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.cluster.nodes.faults import Faults, said_fault
from koordinator.cluster.nodes.metrics_reporter import MetricsReporter
from koordinator.cluster.nodes.node_objects import SimulatedNode, expand
from koordinator.cluster.nodes.paced_time import PacedClock, PacedParts, PacedTime
from koordinator.cluster.nodes.pod_runtime import PodRuntime
from koordinator.cluster.nodes.population import NODE_RETENTION, NodeUsage, Population
from koordinator.cluster.nodes.registration import Liveness, Registration
from koordinator.cluster.nodes.rotation import SimulatedTime
from koordinator.cluster.nodes.scenario import Scenario
from koordinator.cluster.nodes.scenario_checks import ALLOWED, FAULT_ANNOTATION
from koordinator.cluster.nodes.simulated_pod import SIMULATED_PODS, SimulatedPod
from koordinator.cluster.nodes.suppression import Thresholds
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client
from koordinator.kube.reflector import Reflector, Selection

if TYPE_CHECKING:
    from koordinator.cluster.nodes.node_agents import NodeAgents

logger = logging.getLogger(__name__)

_NODE_INDEX: Final = "node"
_SOURCE: Final = "simulated-nodes"
_LEAST_SAMPLING_PAUSE: Final = 0.25
_CONCURRENCY: Final = 32


class Fleet:
    """Registers the nodes of a scenario and runs them. Use on one event loop.

    The client is the caller's to close; its own limits on requests apply. Times in the API are those of ``clock``;
    usage, run times and measuring windows pass ``scenario.timing.speed`` times as fast.
    """

    def __init__(
        self,
        client: Client,
        scenario: Scenario,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        concurrency: int = _CONCURRENCY,
        koordlets: int = 0,
        kernels: Path | None = None,
        pace: tuple[str, str] | None = None,
    ) -> None:
        """``concurrency`` bounds how many requests each part (leases, status, metrics, pods …) has open.

        So many of the first nodes run koordlet itself, with the files of their kernels in the folder ``kernels``;
        ValueError if there is none. Where time passes faster, no node does: koordlet lives in real time.

        ``pace`` is the namespace and the name of a ConfigMap that says how far simulated time may go on, as in
        ``paced_time``; ``scenario.timing.speed`` counts for nothing then.
        """
        if koordlets and kernels is None:
            raise ValueError("koordlets: their kernels need a folder")
        timing = scenario.timing
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._client = client
        self._scenario = scenario
        self._concurrency = concurrency
        self._sample_interval = timing.sample_interval.total_seconds()
        self._wanted = expand(scenario)
        self._nodes: dict[str, SimulatedNode] = {}
        self._registered = asyncio.Event()
        self._paced: PacedTime | None = None
        if pace is None:
            self.time = SimulatedTime(self._clock, timing.speed, timing.start_hour)
        else:
            paced = PacedClock(self._clock)
            self.time = SimulatedTime(paced, 1.0, timing.start_hour)
            self._paced = PacedTime(client, *pace, paced, self._clock, self._random)
        thresholds = Thresholds()
        self._population = Population(scenario.usage, scenario.seed, self._sample_interval, thresholds)
        self._policies = Reflector(
            client, Selection(NODE_SLOS), thresholds, clock=self._clock, random=self._random, absent_is_empty=True
        )
        self._node_informer = Informer(client, NODES, clock=self._clock, random=self._random)
        self._pod_informer = Informer(
            client, SIMULATED_PODS, field_selector="spec.nodeName!=", indexes={_NODE_INDEX: _node_of},
            clock=self._clock, random=self._random,
        )  # fmt: skip
        self._events = EventBroadcaster(client, instance=_SOURCE, clock=self._clock, random=self._random)
        self._recorder = self._events.recorder(_SOURCE)
        self._koordlets = koordlets if timing.speed == 1 and pace is None else 0
        self._kernels = kernels
        self._agents: NodeAgents | None = None
        self._assemble()

    def _assemble(self) -> None:
        clock, random, concurrency = self._clock, self._random, self._concurrency
        timing, find_node = self._scenario.timing, self._node_informer.get
        self._faults = Faults(self._scenario.faults, self.time.elapsed, find_node)
        self._liveness = Liveness(
            self._client, timing, find_node, self._faults.is_stopped,
            clock=clock, random=random, concurrency=concurrency,
        )  # fmt: skip
        self._reporter = MetricsReporter(
            self._client, timing, self._population, self.time, find_node, self._faults,
            clock=clock, random=random, concurrency=concurrency, has_agent=self._has_agent,
        )  # fmt: skip
        self._runtime = PodRuntime(
            self._client, self._scenario, self._population, self.time, self._pod_informer.get, self._nodes.get,
            self._faults.is_stopped, self._pods_of, clock=clock, concurrency=concurrency,
        )  # fmt: skip

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes that are registered and run."""
        return list(self._nodes)

    @property
    def running_pods(self) -> int:
        """How many pods run on these nodes."""
        return self._population.running_pods

    def usage_of(self, node: str) -> NodeUsage:
        """What the node uses in simulated present, as of the last sample. KeyError when it is not one of ours."""
        return self._population.usage_of(node, self.time.now())

    def koordlet_metrics(self, node: str) -> Metrics | None:
        """What koordlet of the node would serve; None where none runs."""
        return None if self._agents is None else self._agents.metrics_of(node)

    async def wait_registered(self) -> None:
        """Wait until all nodes are in the API."""
        await self._registered.wait()

    async def run(self) -> NoReturn:
        """Register and run the nodes until cancelled.

        Raises an ExceptionGroup: with ForeignNodeError when a name is taken, KubeError when the server refuses us.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node_informer.run(), name="node informer")
            group.create_task(self._events.run(), name="events")
            await self._node_informer.wait_synced()
            registration = Registration(
                self._client, self._scenario.name,
                clock=self._clock, random=self._random, concurrency=self._concurrency,
            )  # fmt: skip
            await registration.run(self._wanted, self._node_informer.list())
            await self._all_seen()
            group.create_task(self._write_hardware(), name="hardware")
            for node in self._wanted:
                self._join(node)
                if (found := self._node_informer.get(node.name)) is not None:
                    self._check_fault(found)
            self._registered.set()
            self._node_informer.add_handlers(on_update=self._node_changed, on_delete=self._node_gone)
            self._pod_informer.add_handlers(
                on_add=lambda pod, initial: self._pod_seen(pod),
                on_update=lambda old, new: self._pod_seen(new),
                on_delete=self._runtime.forget,
            )
            group.create_task(self._pod_informer.run(), name="pod informer")
            group.create_task(self._liveness.leases.run(), name="leases")
            group.create_task(self._liveness.heartbeats.run(), name="heartbeats")
            group.create_task(self._runtime.run(), name="pods")
            # A report that knows no pods yet would make busy nodes look idle to the scheduler.
            await self._pod_informer.wait_synced()
            group.create_task(self._policies.run(), name="policies of nodes")
            if self._paced is not None:
                group.create_task(self._paced.run(self.time, self._paced_parts()), name="paced time")
            else:
                group.create_task(self._sample(), name="sampling")
                group.create_task(self._reporter.duty.run(), name="node metrics")
            if self._koordlets > 0 and self._kernels is not None:
                self._agents = self._make_agents(self._kernels)
                group.create_task(self._agents.run(), name="koordlets")
        raise AssertionError("the loops above end by cancellation only")

    def _paced_parts(self) -> PacedParts:
        return PacedParts(
            population=self._population,
            sample_interval=self._sample_interval,
            runtime=self._runtime,
            report=self._reporter.report_all,
            pods=self._pod_informer,
            nodes=self._node_informer,
        )

    async def _all_seen(self) -> None:
        """Wait until the informer has every node: leases and reports need their uids."""
        missing = {node.name for node in self._wanted}
        while missing := {name for name in missing if self._node_informer.get(name) is None}:
            await self._clock.sleep(_LEAST_SAMPLING_PAUSE)

    async def _write_hardware(self) -> None:
        # Not loaded before the nodes are registered and have reported.
        from koordinator.cluster.nodes.hardware import SimulatedHardware

        hardware = SimulatedHardware(
            self._client, self._node_informer.get,
            clock=self._clock, random=self._random, concurrency=self._concurrency,
        )  # fmt: skip
        await hardware.write(self._wanted)

    def _make_agents(self, kernels: Path) -> NodeAgents:
        # Not loaded before the nodes are registered and have reported, nor where no node runs koordlet.
        from koordinator.cluster.nodes.node_agents import AgentDependencies, NodeAgents

        given = AgentDependencies(
            client=self._client,
            population=self._population,
            time=self.time,
            faults=self._faults,
            pods_of=self._pods_of,
            clock=self._clock,
            random=self._random,
            folder=kernels,
        )
        agents = NodeAgents(given)
        for node in list(self._nodes.values())[: self._koordlets]:
            agents.join(node)
        return agents

    def _has_agent(self, name: str) -> bool:
        return self._agents is not None and self._agents.is_reporting(name)

    def _join(self, node: SimulatedNode) -> None:
        self._nodes[node.name] = node
        self._population.add_node(node)
        self._liveness.join(node.name)
        self._reporter.join(node.name)

    def _node_changed(self, old: Node, new: Node) -> None:
        if new.metadata.name in self._nodes:
            self._liveness.observe(new)
            if old.metadata.annotations.get(FAULT_ANNOTATION) != new.metadata.annotations.get(FAULT_ANNOTATION):
                self._check_fault(new)

    def _check_fault(self, node: Node) -> None:
        text = node.metadata.annotations.get(FAULT_ANNOTATION)
        if text is not None and said_fault(node) is None:
            note = f"annotation {FAULT_ANNOTATION}: {text!r} is not known and changes nothing; allowed are {ALLOWED}"
            self._recorder.event(reference_to(NODES, node), "Warning", "UnknownFault", "Simulate", note)
            logger.warning("node %s: %s", node.metadata.name, note)

    def _node_gone(self, node: Node) -> None:
        """The node was deleted: as with a kubelet, it does not come back before the next start."""
        name = node.metadata.name
        if self._nodes.pop(name, None) is not None:
            logger.info("node %s was deleted; it is simulated no longer", name)
            self._liveness.leave(name)
            self._reporter.leave(name)
            if self._agents is not None:
                self._agents.leave(name)
            for pod in self._pods_of(name):
                self._runtime.forget(pod)
            self._population.remove_node(name)

    def _pod_seen(self, pod: SimulatedPod) -> None:
        if pod.spec.node_name in self._nodes:
            self._runtime.observe(pod)

    def _pods_of(self, node: str) -> Sequence[Pod]:
        return self._pod_informer.by_index(_NODE_INDEX, node)

    async def _sample(self) -> NoReturn:
        """Sample at whole multiples of the interval; in a fast simulation several at a time."""
        interval = self._sample_interval
        pause = max(_LEAST_SAMPLING_PAUSE, self.time.real(interval))
        last = self.time.now() // interval * interval - interval
        while True:
            now = self.time.now()
            # After a long stop of the process, what lies before the longest window is of no use.
            last = max(last, now // interval * interval - NODE_RETENTION)
            while last + interval <= now:
                last += interval
                self._population.sample(last)
            await self._clock.sleep(pause)


def _node_of(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,)
