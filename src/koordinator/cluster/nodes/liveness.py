"""Signs of life of simulated nodes: leases in kube-node-lease, and the heartbeat in the node's conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from koordinator.api.kinds import LEASES, NODES
from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.cluster.nodes.node_objects import LEASE_NAMESPACE, conditions, is_healthy, lease_document
from koordinator.cluster.nodes.rotation import Duty, each
from koordinator.cluster.nodes.scenario import Timing
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType


class Liveness:
    """Run ``leases`` and ``heartbeats`` (two duties) for the nodes that joined."""

    def __init__(
        self,
        client: Client,
        timing: Timing,
        find_node: Callable[[str], Node | None],
        *,
        clock: Clock,
        random: Random,
        concurrency: int,
    ) -> None:
        """``find_node`` gives a node as the API has it, or None."""
        self._client = client
        self._clock = clock
        self._find_node = find_node
        self._lease_seconds = round(timing.lease_duration.total_seconds())
        self._with_lease: set[str] = set()
        self.leases = Duty(
            "renewing leases", timing.lease_interval.total_seconds(), self._renew_leases,
            clock=clock, random=random, concurrency=concurrency,
        )  # fmt: skip
        self.heartbeats = Duty(
            "reporting node status", timing.heartbeat_interval.total_seconds(), self._report_status,
            clock=clock, random=random, concurrency=concurrency,
        )  # fmt: skip

    def join(self, node: str) -> None:
        """A node that has just registered needs a lease at once, but has only just reported its status."""
        self.leases.rotation.join(node)
        self.heartbeats.rotation.join(node, at_once=False)

    def leave(self, node: str) -> None:
        self.leases.rotation.leave(node)
        self.heartbeats.rotation.leave(node)
        self._with_lease.discard(node)

    def observe(self, node: Node) -> None:
        """Somebody changed the node: what says that it is not well is put right soon."""
        if not is_healthy(node.status.conditions):
            self.heartbeats.rotation.again(node.metadata.name)

    async def _renew_leases(self, names: Sequence[str]) -> Sequence[str]:
        return await each("renewing leases", names, self._renew_lease)

    async def _report_status(self, names: Sequence[str]) -> Sequence[str]:
        return await each("reporting node status", names, self._heartbeat)

    async def _renew_lease(self, name: str) -> None:
        node = self._find_node(name)
        if node is None:
            return
        lease = lease_document(name, node.metadata.uid, self._lease_seconds, self._clock.now())
        if name not in self._with_lease:
            try:
                await self._client.create(LEASES, lease, LEASE_NAMESPACE)
            except ApiStatusError as error:
                if not error.is_already_exists:
                    raise
            else:
                self._with_lease.add(name)
                return
        try:
            await self._client.patch(LEASES, name, {"spec": lease["spec"]}, PatchType.MERGE, LEASE_NAMESPACE)
        except ApiStatusError as error:
            if error.is_not_found:
                self._with_lease.discard(name)
            raise
        self._with_lease.add(name)

    async def _heartbeat(self, name: str) -> None:
        node = self._find_node(name)
        if node is None:
            return
        patch = {"status": {"conditions": conditions(self._clock.now(), node.status.conditions)}}
        try:
            await self._client.patch(NODES, name, patch, PatchType.STRATEGIC, subresource="status")
        except ApiStatusError as error:
            # Deleted just now: the informer will say so.
            if not error.is_not_found:
                raise
