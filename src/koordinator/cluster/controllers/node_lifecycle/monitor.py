"""One look at all nodes: who is silent, whose taints have to change, and how much of each zone is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from koordinator.api.kinds import NODES
from koordinator.api.node import LEASE_NAMESPACE, Lease, Node
from koordinator.base.clock import Clock
from koordinator.cluster.controllers.node_lifecycle.health import (
    TRUE,
    UNKNOWN,
    LifeSign,
    is_silent,
    last_sign,
    ready_status,
    unknown_conditions,
    was_lost,
)
from koordinator.cluster.controllers.node_lifecycle.node_writes import NodeWrites
from koordinator.cluster.controllers.node_lifecycle.taints import LOST, lost_taints, with_lost_taint
from koordinator.cluster.controllers.node_lifecycle.zones import (
    EXCLUDED,
    TaintQueue,
    ZoneState,
    disruption,
    zone_of,
)
from koordinator.kube.errors import KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer import Informer

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
"""Nodes that are written side by side."""


class HealthMonitor:
    """Remembers when each node was last heard of. ``queues`` has the nodes that are to lose their pods, by zone."""

    def __init__(
        self,
        nodes: Informer[Node],
        leases: Informer[Lease],
        writes: NodeWrites,
        recorder: EventRecorder,
        clock: Clock,
        on_lost: Callable[[Node], None],
    ) -> None:
        """``on_lost`` is called for a node that has fallen silent."""
        self._nodes = nodes
        self._leases = leases
        self._writes = writes
        self._recorder = recorder
        self._clock = clock
        self._on_lost = on_lost
        self._known: dict[str, Node] = {}
        self._signs: dict[str, LifeSign] = {}
        self._not_ready: set[str] = set()
        self._states: dict[str, ZoneState] = {}
        self.queues: dict[str, TaintQueue] = {}

    def is_not_ready(self, node: str) -> bool:
        """Whether the node was not ready when it was last looked at."""
        return node in self._not_ready

    async def look(self) -> None:
        """Look at all nodes once. Raises KubeError when the nodes that have just appeared cannot be written."""
        nodes = self._nodes.list()
        await self._register(nodes)
        ready: dict[str, list[bool]] = {}
        for start in range(0, len(nodes), _AT_ONCE):
            group = nodes[start : start + _AT_ONCE]
            for node, status in zip(group, await asyncio.gather(*map(self._check, group)), strict=True):
                if status is not None and EXCLUDED not in node.metadata.labels:
                    ready.setdefault(zone_of(node), []).append(status == TRUE)
        await self._follow_disruption(nodes, ready)

    async def _register(self, nodes: Sequence[Node]) -> None:
        names = {node.metadata.name for node in nodes}
        for name in [name for name in self._known if name not in names]:
            self._record(self._known.pop(name), "RemovingNode", f"Removing Node {name} from Controller")
            self._signs.pop(name, None)
            self._not_ready.discard(name)
            for queue in self.queues.values():
                queue.discard(name)
        for node in nodes:
            name = node.metadata.name
            if name not in self._known:
                self._record(node, "RegisteredNode", f"Registered Node {name} in Controller")
                self._known[name] = node
                await self._writes.taint(node, with_lost_taint(node, TRUE, self._clock.now()))

    def _record(self, node: Node, reason: str, what: str) -> None:
        note = f"Node {node.metadata.name} event: {what}"
        self._recorder.event(reference_to(NODES, node), "Normal", reason, reason, note)

    async def _check(self, node: Node) -> str | None:
        """The status of the node's Ready condition as it is then; None if it could not be written."""
        name, now, wall = node.metadata.name, self._clock.monotonic(), self._clock.now()
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        renewed = (lease.spec.renew_time or "") if lease is not None else ""
        sign = self._signs[name] = last_sign(self._signs.get(name), node, renewed, now, wall)
        observed = current = ready_status(node)
        try:
            if is_silent(sign, node, now):
                if not await self._writes.set_conditions(node, unknown_conditions(node, wall)):
                    return None
                current = UNKNOWN
            await self._follow_status(node, observed)
        except KubeError as error:
            logger.warning("node %s: its health could not be written: %s; trying again soon", name, error)
            return None
        (self._not_ready.discard if current == TRUE else self._not_ready.add)(name)
        if was_lost(observed, current):
            note = f"Node {name} status is now: NodeNotReady"
            self._recorder.event(reference_to(NODES, node), "Normal", "NodeNotReady", "NodeNotReady", note)
            self._on_lost(node)
        return current

    async def _follow_status(self, node: Node, status: str) -> None:
        """A node that is lost gets its taint in its turn; one that has one of the two taints changes at once."""
        name, there = node.metadata.name, lost_taints(node)
        if status not in LOST or there:
            await self._writes.taint(node, with_lost_taint(node, status, self._clock.now()))
            for queue in self.queues.values():
                queue.discard(name)
        else:
            self.queues.setdefault(zone_of(node), TaintQueue()).add(name)

    async def _follow_disruption(self, nodes: Sequence[Node], ready: dict[str, list[bool]]) -> None:
        now = disruption(self._states, ready)
        self._states = dict(now.states)
        for zone, rate in now.rates.items():
            self.queues.setdefault(zone, TaintQueue()).rate = rate
        if now.begins and nodes:
            logger.warning("no node is ready: no pods are evicted until one is")
            for node in nodes:
                await self._writes.taint(node, with_lost_taint(node, TRUE, self._clock.now()))
        if now.ends:
            moment = self._clock.monotonic()
            self._signs = {name: LifeSign(moment, sign.heartbeat, sign.renewed) for name, sign in self._signs.items()}
