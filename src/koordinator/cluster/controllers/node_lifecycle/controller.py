"""The node lifecycle controller: it notices nodes that fall silent, and taints nodes as their conditions call for."""

from __future__ import annotations

import asyncio
from typing import Final

from koordinator.api.kinds import LEASES, NODES, PODS
from koordinator.api.node import LEASE_NAMESPACE, Node
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.node_lifecycle.health import label_changes, ready_status
from koordinator.cluster.controllers.node_lifecycle.monitor import HealthMonitor
from koordinator.cluster.controllers.node_lifecycle.node_writes import NodeWrites
from koordinator.cluster.controllers.node_lifecycle.taints import LOST, with_lost_taint, with_no_schedule_taints
from koordinator.cluster.controllers.pod_disruption import NODE_INDEX, by_node

_RECORDER: Final = "node-controller"
_PERIOD: Final = 5.0
"""--node-monitor-period of kube-controller-manager, in seconds."""
_ALL_NODES: Final = "all nodes"
_WORKERS: Final = 4


class NodeLifecycleController:
    """It has four queues: of nodes, whose taints without eviction follow every change; of the look at all nodes, every
    few seconds; of zones, in which nodes get the taints that evict; and of pods, which are not ready on a lost node."""

    name: Final = "node-lifecycle-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._clock = context.clock
        self._nodes = context.informers.informer(NODES)
        leases = context.informers.informer(LEASES, namespace=LEASE_NAMESPACE)
        self._pods = context.informers.informer(PODS, indexes={NODE_INDEX: by_node})
        recorder = context.events.recorder(_RECORDER)
        self._writes = NodeWrites(context.client, recorder, context.clock)
        self._monitor = HealthMonitor(self._nodes, leases, self._writes, recorder, context.clock, on_lost=self._lost)
        make = context.reconcilers.make
        self._tainting = make(
            self.name, self._follow_node, lambda: [node.metadata.name for node in self._nodes.list()], workers=_WORKERS
        )
        self._looking = make(f"{self.name} health", self._look, lambda: [_ALL_NODES])
        self._zones = make(f"{self.name} zones", self._taint_next, lambda: list(self._monitor.queues))
        self._marking = make(f"{self.name} pods", self._mark_pod, list, workers=_WORKERS)
        self._watch()

    def _watch(self) -> None:
        self._nodes.add_handlers(
            name=self.name,
            on_add=lambda node, _: self._tainting.add(node.metadata.name),
            on_update=lambda _, node: self._tainting.add(node.metadata.name),
        )
        self._pods.add_handlers(
            name=self.name,
            on_add=lambda pod, _: self._bound(pod),
            on_update=lambda old, pod: self._bound(pod) if old.spec.node_name != pod.spec.node_name else None,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reconciler in (self._tainting, self._looking, self._zones, self._marking):
                tasks.create_task(reconciler.run(), name=reconciler.name)

    def _bound(self, pod: Pod) -> None:
        if self._monitor.is_not_ready(pod.spec.node_name):
            self._marking.add(pod.metadata.key)

    def _lost(self, node: Node) -> None:
        for pod in self._pods.by_index(NODE_INDEX, node.metadata.name):
            self._marking.add(pod.metadata.key)

    async def _follow_node(self, name: str) -> float | None:
        node = self._nodes.get(name)
        if node is not None:
            await self._writes.taint(node, with_no_schedule_taints(node, self._clock.now()))
            await self._writes.label(node, label_changes(node.metadata.labels))
        return None

    async def _look(self, _: str) -> float:
        await self._monitor.look()
        self._zones.add_all()
        return _PERIOD

    async def _taint_next(self, zone: str) -> float | None:
        """Give the taint that evicts to the next node of this zone whose turn has come."""
        queue = self._monitor.queues[zone]
        now = self._clock.monotonic()
        wait = queue.wait(now)
        if wait != 0:
            return wait
        node = self._nodes.get(next(iter(queue)))
        if node is None or ready_status(node) not in LOST:
            queue.discard(next(iter(queue)))
            return 0.0
        queue.take(now)
        await self._writes.taint(node, with_lost_taint(node, ready_status(node), self._clock.now()))
        return queue.wait(now)

    async def _mark_pod(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is not None and self._monitor.is_not_ready(pod.spec.node_name):
            await self._writes.mark_not_ready(pod)
