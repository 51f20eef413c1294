"""Random stories, each from one number: a few small nodes, pods that soon fill them, and what lets others in again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from msgspec.structs import replace

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus, Taint
from koordinator.api.pod import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from koordinator.api.quantity import Quantity
from tests.scheduler.plugins.clusters import EXTENDED, NODE_NAMES
from tests.scheduler.scheduler_api import SchedulerApi

T = TypeVar("T")
_MIB: Final = 2**20
_MOST_PODS: Final = 9


class Dice:
    """Everything that a story leaves to chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._named = 0
        self._large = self.maybe(0.4)
        """Nobody waits for room: rules alone keep pods off nodes, so that no plugin's hint stands in for another's."""

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def pick(self, choices: list[T]) -> T:
        return self.random.choice(choices)

    def name(self) -> str:
        """One that no pod has had."""
        self._named += 1
        return f"p{self._named}"

    # Objects.

    def node(self, name: str) -> Node:
        """Many keep some pods off for another reason than their size."""
        chance, cpu, memory, pods, widgets = 0.2, [500, 1000, 2000], [256, 1024, 1024], [1, 2, 8, 8], [0, 2]
        if self._large:
            chance, cpu, memory, pods, widgets = 0.35, [64_000], [64 * 1024], [110], [64]
        amounts = {
            "cpu": Quantity.from_milli(self.pick(cpu)),
            "memory": Quantity.from_value(self.pick(memory) * _MIB),
            "pods": Quantity.from_value(self.pick(pods)),
            EXTENDED: Quantity.from_value(self.pick(widgets)),
        }
        taints = [Taint(key="x", effect=self.pick(["NoSchedule", "NoExecute"]))] if self.maybe(chance) else []
        return Node(
            metadata=ObjectMeta(name=name, uid=name, labels={"zone": self.pick(["a", "b"])}),
            spec=NodeSpec(unschedulable=self.maybe(chance), taints=taints),
            status=NodeStatus(allocatable=amounts),
        )

    def pod(self, name: str) -> Pod:
        """Many request more than CPU and memory."""
        odd = self.maybe(0.8 if self._large else 0.5)
        spec = PodSpec(containers=[Container(name="main", resources=self._resources(odd=odd))])
        if odd:
            ways = [self._with_port, self._with_place, self._with_port if self._large else self._with_others]
            spec = self.pick(ways)(spec)
        return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=spec)

    def _resources(self, *, odd: bool = False) -> ResourceRequirements:
        requests = {
            "cpu": Quantity.from_milli(self.pick([250, 500, 1000])),
            "memory": Quantity.from_value(self.pick([0, 128, 512]) * _MIB),
        }
        if odd and self.maybe(0.3):
            requests[EXTENDED] = Quantity.from_value(self.pick([1, 2]))
        return ResourceRequirements(requests=requests)

    def _with_port(self, spec: PodSpec) -> PodSpec:
        port = ContainerPort(container_port=80, host_port=80, host_ip=self.pick(["", "10.0.0.1"]), protocol="TCP")
        return replace(spec, containers=[replace(spec.containers[0], ports=[port])])

    def _with_place(self, spec: PodSpec) -> PodSpec:
        zone = self.pick(["a", "b"])
        if self.maybe(0.5):
            return replace(spec, node_selector={"zone": zone})
        other = NodeSelectorRequirement(key="zone", operator=self.pick(["In", "NotIn"]), values=[zone])
        required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[other])])
        affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=required)
        return replace(spec, affinity=Affinity(node_affinity=affinity))

    def _with_others(self, spec: PodSpec) -> PodSpec:
        """Init containers, sidecars, overhead, or requests of the pod as a whole."""
        more = Container(name="more", resources=self._resources(), restart_policy=self.pick([None, "Always"]))
        return self.pick(
            [
                replace(spec, init_containers=[more]),
                replace(spec, overhead={"cpu": Quantity.from_milli(250)}),
                replace(spec, resources=self._resources()),
            ]
        )

    # Events.

    def act(self, api: SchedulerApi, prepare: Callable[[Pod], Pod]) -> None:
        """Something happens; new pods are created as ``prepare`` makes them."""
        pods, nodes = list(api.objects("pods").values()), list(api.objects("nodes").values())
        placed = [pod for pod in pods if pod.spec.node_name]
        waiting = [pod for pod in pods if not pod.spec.node_name]
        # Whoever waits should get a chance more often than company.
        what = self.pick(
            ["node", "grow", "open", "leave", "leave", "shrink", "tolerate", "lose"] if waiting else ["pod"]
        )
        if len(pods) < _MOST_PODS and self.maybe(0.4):
            what = "pod"
        if what == "pod":
            api.store(prepare(self.pod(self.name())))
        elif what == "node":
            api.store(self.node(self.pick(NODE_NAMES)))
        elif what == "grow" and nodes:
            api.store(self._larger(self.pick(nodes)))
        elif what == "open" and nodes:
            node = self.pick(nodes)
            api.store(replace(node, spec=NodeSpec()))
        elif what == "leave" and placed:
            api.drop("pods", self.pick(placed).metadata.key)
        elif what == "shrink" and placed:
            api.store(self._smaller(self.pick(placed)))
        elif what == "tolerate" and waiting:
            pod = self.pick(waiting)
            api.store(replace(pod, spec=replace(pod.spec, tolerations=[Toleration(operator="Exists")])))
        elif what == "lose" and nodes and self.maybe(0.3):
            self._lose(api, self.pick(nodes).metadata.name)

    @staticmethod
    def _larger(node: Node) -> Node:
        more = {"cpu": Quantity.from_milli(4000), "memory": Quantity.from_value(4096 * _MIB)}
        return replace(node, status=NodeStatus(allocatable={**node.status.allocatable, **more}))

    def _smaller(self, pod: Pod) -> Pod:
        """A pod that is being resized: its room is free when what it has been granted is less, too."""
        wanted = ResourceRequirements(requests={"cpu": Quantity.from_milli(100)})
        container = pod.spec.containers[0]
        granted = self.pick([wanted, wanted, container.resources])
        status = ContainerStatus(name=container.name, resources=granted, allocated_resources=granted.requests)
        return replace(
            pod,
            spec=replace(pod.spec, containers=[replace(container, resources=wanted)]),
            status=replace(pod.status, container_statuses=[status]),
        )

    @staticmethod
    def _lose(api: SchedulerApi, name: str) -> None:
        for pod in [pod for pod in api.objects("pods").values() if pod.spec.node_name == name]:
            api.drop("pods", pod.metadata.key)
        api.drop("nodes", name)
