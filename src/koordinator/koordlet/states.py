"""The states informer: what the API server and kubelet say of this node, from their last answer if they are away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from koordinator.api.kinds import NODE_METRICS, NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.nodeslo import NodeSLO
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.koordlet.pods import NodePod, node_pods
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.model.node_metric import CollectPolicy, collect_policy
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kubelet import Kubelet

logger = logging.getLogger(__name__)

_POLL: Final = 0.1
_SAID_EVERY: Final = 30.0
"""Seconds."""

PodsCallback = Callable[[Sequence[NodePod]], None]


class StatesInformer:
    """Call ``sync_pods`` every few seconds; ``run`` follows the objects of the API server."""

    def __init__(self, client: Client, node_name: str, *, clock: Clock, random: Random, metrics: Metrics) -> None:
        self._clock = clock
        self._name = node_name
        self._informers = InformerSet(client, clock=clock, random=random, metrics=metrics)
        own = f"metadata.name={node_name}"
        self._nodes = self._informers.informer(NODES, field_selector=own)
        # Agents start before koord-manager has installed anything: a kind that is not there yet has no object yet.
        self._metrics = self._informers.informer(NODE_METRICS, field_selector=own, absent_is_empty=True)
        self._slos = self._informers.informer(NODE_SLOS, field_selector=own, absent_is_empty=True)
        self._pods: Sequence[NodePod] = ()
        self._answer: Sequence[Pod] = ()
        """What kubelet said, of which the pods are made."""
        self._on_pods: list[PodsCallback] = []
        self._pods_failing = False

    @property
    def node(self) -> Node | None:
        return self._nodes.get(self._name)

    @property
    def node_metric(self) -> NodeMetric | None:
        return self._metrics.get(self._name)

    @property
    def node_slo(self) -> NodeSLO | None:
        return self._slos.get(self._name)

    @property
    def collect_policy(self) -> CollectPolicy:
        """What the NodeMetric asks for; the defaults while there is none."""
        metric = self.node_metric
        return CollectPolicy() if metric is None else collect_policy(metric.spec)

    @property
    def pods(self) -> Sequence[NodePod]:
        return self._pods

    @property
    def has_synced_pods(self) -> bool:
        """Whether kubelet has told a pod yet."""
        return bool(self._pods)

    def on_pods(self, callback: PodsCallback) -> None:
        """Call back after each sync of pods that succeeded."""
        self._on_pods.append(callback)

    async def wait_for_node(self) -> Node:
        """The Node object, once it is there; what is missing is said every half minute."""
        while True:
            for _ in range(round(_SAID_EVERY / _POLL)):
                node = self.node
                if node is not None:
                    return node
                await self._clock.sleep(_POLL)
            logger.warning("waiting for node %s: %s", self._name, "; ".join(self._informers.not_synced) or "not found")

    async def sync_pods(self, kubelet: Kubelet, layout: CgroupLayout) -> None:
        """Ask kubelet once. An error, and an answer without any pod, leave the pods as they were."""
        try:
            pods = await kubelet.pods()
        except KoordinatorError as error:
            if not self._pods_failing:
                logger.warning("the pods stay as kubelet last told them (%d pods): %s", len(self._pods), error)
            self._pods_failing = True
            return
        if self._pods_failing:
            logger.info("kubelet answers again")
            self._pods_failing = False
        if not pods:
            return
        if pods is not self._answer:
            self._answer = pods
            self._pods = node_pods(pods, layout)
        for callback in self._on_pods:
            callback(self._pods)

    async def run(self) -> None:
        """Follow the Node, the NodeMetric and the NodeSLO until cancelled."""
        await self._informers.run()
