"""The states informer: what is known of this node from the last responses of the API server and the kubelet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar

from koordinator.api.codec import DecodeError
from koordinator.api.device import Device
from koordinator.api.kinds import DEVICES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.nodeslo import NodeSLO, NodeSLOSpec
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.said_once import Reminder, SaidOnce
from koordinator.koordlet.pods.listing import PodListing
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.report.node_topology.description import NodeTopology
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.model.node_metric import CollectPolicy, collect_policy
from koordinator.model.slo_configuration.complete_node_slo import complete_node_slo_spec
from koordinator.node.kubelet import Kubelet, KubeletConfiguration

logger = logging.getLogger(__name__)

_POLL: Final = 0.1
_LONG: Final = 30.0
"""Seconds after which it is said what is waited for."""

T = TypeVar("T")


class _Known(Generic[T]):
    """The last that is known of one thing, and who is called back when it has changed."""

    def __init__(self, value: T) -> None:
        self.value = value
        self.callbacks: list[Callable[[Any], None]] = []

    def tell(self, value: T) -> None:
        self.value = value
        for callback in self.callbacks:
            callback(value)


class StatesInformer:
    """Call ``sync_pods`` every few seconds; ``run`` follows the objects of the API server.

    Callbacks are called on the event loop, in the order in which they were registered, and must not block.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        follow_device: bool = False,
    ) -> None:
        self._clock = clock
        self._name = node_name
        self.informers = InformerSet(client, clock=clock, random=random, metrics=metrics)
        """Of everything that the agent follows; more are added before ``run``."""
        own = f"metadata.name={node_name}"
        self._nodes = self.informers.informer(NODES, field_selector=own)
        # Agents start before koord-manager has installed anything: a kind that is not there yet has no object yet.
        self._metrics = self.informers.informer(NODE_METRICS, field_selector=own, absent_is_empty=True)
        self._slos = self.informers.informer(NODE_SLOS, field_selector=own, absent_is_empty=True)
        self._topologies = self.informers.informer(NODE_RESOURCE_TOPOLOGIES, field_selector=own, absent_is_empty=True)
        self._devices = (
            self.informers.informer(DEVICES, field_selector=own, absent_is_empty=True) if follow_device else None
        )
        self._pods = _Known[Sequence[NodePod]](())
        self._node = _Known[Node | None](None)
        self._node_slo_spec = _Known[NodeSLOSpec | None](None)
        self._topology = _Known[NodeTopology | None](None)
        self._said = SaidOnce(logger, over=lambda _: "the kubelet responds again")
        self.kubelet_configuration: KubeletConfiguration | None = None
        """As the kubelet last said it; None until then, and where it is not queried."""
        self._slos.add_handlers(
            name="NodeSLO", on_add=self._new_node_slo, on_update=lambda _, node_slo: self._new_node_slo(node_slo)
        )
        self._nodes.add_handlers(name="Node", on_add=self._new_node, on_update=self._changed_node)

    @property
    def node(self) -> Node | None:
        return self._node.value

    @property
    def node_metric(self) -> NodeMetric | None:
        return self._metrics.get(self._name)

    @property
    def node_slo_spec(self) -> NodeSLOSpec | None:
        """The node's policy with the agent's defaults filled in, none of its four strategies being None.

        None until the node has a NodeSLO. A policy stays in force when its object is deleted: pods that are isolated
        from each other must not lose that because koord-manager is installed anew.
        """
        return self._node_slo_spec.value

    @property
    def node_resource_topology(self) -> NodeResourceTopology | None:
        """The object, as the API server has it."""
        return self._topologies.get(self._name)

    @property
    def device(self) -> Device | None:
        """The object, as the API server has it; None if it is not followed."""
        return None if self._devices is None else self._devices.get(self._name)

    @property
    def topology(self) -> NodeTopology | None:
        """CPUs, share pools and NUMA nodes as they are now, whether they have been written or not; None until known."""
        return self._topology.value

    @property
    def collect_policy(self) -> CollectPolicy:
        """The policy of the NodeMetric; the defaults while there is none."""
        metric = self.node_metric
        return CollectPolicy() if metric is None else collect_policy(metric.spec)

    @property
    def pods(self) -> Sequence[NodePod]:
        return self._pods.value

    @property
    def has_synced_pods(self) -> bool:
        """Whether the kubelet has listed a pod yet."""
        return bool(self._pods.value)

    def on_pods(self, callback: Callable[[Sequence[NodePod]], None]) -> None:
        """Call back when pods were synced and anything of a pod or of its cgroups has changed."""
        self._pods.callbacks.append(callback)

    def on_node(self, callback: Callable[[Node], None]) -> None:
        """Call back with the Node when it is first seen and whenever its labels or annotations have changed."""
        self._node.callbacks.append(callback)

    def on_node_slo(self, callback: Callable[[NodeSLOSpec], None]) -> None:
        """Call back with ``node_slo_spec`` when there is one and whenever it has changed."""
        self._node_slo_spec.callbacks.append(callback)

    def on_topology(self, callback: Callable[[NodeTopology], None]) -> None:
        """Call back with ``topology`` when it is known and whenever it has changed."""
        self._topology.callbacks.append(callback)

    def set_topology(self, topology: NodeTopology) -> None:
        """Report what was found of the node; what is as before is not reported again."""
        if topology != self.topology:
            self._topology.tell(topology)

    async def wait_for_node(self) -> Node:
        """The Node object, once it is there; what is missing is said every half minute."""
        reminder = Reminder(self._clock, after=_LONG)
        while (node := self.node) is None:
            if reminder.is_due():
                missing = "; ".join(self.informers.not_synced) or "not found"
                logger.warning("waiting for node %s: %s", self._name, missing)
            await self._clock.sleep(_POLL)
        return node

    async def sync_pods(self, kubelet: Kubelet, listing: PodListing) -> None:
        """Query the kubelet once. An error, and a response without any pod, leave the pods as they were."""
        with self._said.round():
            try:
                pods = await kubelet.pods()
            except KoordinatorError as error:
                text = f"the pods stay as the kubelet last listed them ({len(self.pods)} pods): {error}"
                self._said.say(text, about=kubelet)
                return
        if not pods:
            return
        listing.update(pods)
        if listing.pods is not self.pods:
            self._pods.tell(listing.pods)

    async def run(self) -> None:
        """Follow the Node and the objects of its name until cancelled."""
        await self.informers.run()

    def _new_node(self, node: Node, initial: bool = False) -> None:
        self._node.tell(node)

    def _changed_node(self, before: Node, node: Node) -> None:
        self._node.value = node
        old, new = before.metadata, node.metadata
        if (old.labels, old.annotations) != (new.labels, new.annotations):
            self._new_node(node)

    def _new_node_slo(self, node_slo: NodeSLO, initial: bool = False) -> None:
        try:
            spec = complete_node_slo_spec(node_slo.spec)
        except DecodeError as error:
            logger.warning("NodeSLO %s: spec: %s; the policy stays as it was", self._name, error)
            return
        if spec != self.node_slo_spec:
            logger.info("the NodeSLO has changed")
            self._node_slo_spec.tell(spec)
