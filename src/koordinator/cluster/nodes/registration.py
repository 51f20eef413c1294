"""Brings the scenario's nodes into the cluster: creates them, adopts those of an earlier run, removes surplus ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Final

from koordinator.api.kinds import LEASES, NAMESPACES, NODES
from koordinator.api.node import LEASE_NAMESPACE, Node
from koordinator.api.priority import PriorityClass
from koordinator.api.resource_names import priority_of_extended
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.nodes.node_objects import (
    FLEET_ANNOTATION,
    SimulatedNode,
    conditions,
    is_healthy,
    lease_document,
    node_document,
    node_metadata,
    node_status,
    surplus,
)
from koordinator.cluster.nodes.rotation import Duty, each
from koordinator.cluster.nodes.scenario import Timing
from koordinator.kube.errors import ApiStatusError, KubeError, TransportError
from koordinator.kube.interface import Client, PatchType

logger = logging.getLogger(__name__)

_PROGRESS_EVERY: Final = 100
_BACKOFF: Final = BackoffPolicy(initial=0.5, maximum=15.0)


class ForeignNodeError(KoordinatorError):
    """A node of the scenario has the name of a node that another program runs."""


class Registration:
    """Idempotent: what is there already is brought up to date."""

    def __init__(self, client: Client, fleet: str, *, clock: Clock, random: Random, concurrency: int) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._fleet = fleet
        self._slots = asyncio.Semaphore(concurrency)
        self._done = 0

    async def run(self, wanted: Sequence[SimulatedNode], existing: Iterable[Node]) -> None:
        """Register ``wanted``; raises ForeignNodeError, before anything is written, when a name is taken."""
        there = {node.metadata.name: node for node in existing}
        for node in wanted:
            if node.name in there:
                self._check_ours(there[node.name])
        await self._ensure_lease_namespace()
        owners = [(name, node.metadata.annotations.get(FLEET_ANNOTATION, "")) for name, node in there.items()]
        async with asyncio.TaskGroup() as group:
            for name in surplus(owners, wanted, self._fleet):
                group.create_task(self._remove(name), name=f"remove {name}")
            for node in wanted:
                group.create_task(self._register(node, there.get(node.name), len(wanted)), name=f"register {node.name}")

    def _check_ours(self, node: Node) -> None:
        owner = node.metadata.annotations.get(FLEET_ANNOTATION)
        if owner != self._fleet:
            whose = f"belongs to the scenario {owner!r}" if owner else "is not simulated"
            raise ForeignNodeError(
                f"node {node.metadata.name} exists and {whose}: choose another name or namePattern in the scenario "
                f"{self._fleet!r}, or delete the node"
            )

    async def _ensure_lease_namespace(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        try:
            await self._client.create(NAMESPACES, namespace)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise

    async def _remove(self, name: str) -> None:
        async with self._slots:
            try:
                await self._client.delete(NODES, name)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
            logger.info("removed node %s: the scenario no longer has it", name)

    async def _register(self, node: SimulatedNode, existing: Node | None, total: int) -> None:
        def write() -> Awaitable[None]:
            return self._create(node) if existing is None else self._adopt(node, existing)

        async with self._slots:
            await persistently(write, f"registering node {node.name}", self._clock, self._random)
        self._done += 1
        if self._done == total or self._done % _PROGRESS_EVERY == 0:
            logger.info("registered %d of %d nodes", self._done, total)

    async def _create(self, node: SimulatedNode) -> None:
        try:
            await self._client.create(NODES, node_document(node, self._clock.now()))
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
            existing = await self._client.get(NODES, node.name)
            self._check_ours(existing)
            await self._adopt(node, existing)

    async def _adopt(self, node: SimulatedNode, existing: Node) -> None:
        status = node_status(node, self._clock.now(), existing.status.conditions)
        for field, known in (("capacity", existing.status.capacity), ("allocatable", existing.status.allocatable)):
            # Overcommitted resources of an existing node belong to the program that computes them.
            overcommitted = {name for name in known if priority_of_extended(name) is not PriorityClass.NONE}
            status[field] = {name: amount for name, amount in status[field].items() if name not in overcommitted}
        patch = {"metadata": node_metadata(node), "status": status}
        await self._client.patch(NODES, node.name, patch, PatchType.STRATEGIC, subresource="status")


async def persistently(write: Callable[[], Awaitable[None]], what: str, clock: Clock, random: Random) -> None:
    """Call ``write`` until it succeeds. Raises the KubeError that waiting does not help against."""
    backoff = Backoff(_BACKOFF, clock, random)
    while True:
        try:
            await write()
        except KubeError as error:
            if not _may_pass(error):
                raise
            pause = backoff.next()
            logger.warning("%s: %s; trying again in %.1f s", what, error, pause)
        else:
            return
        await clock.sleep(pause)


def _may_pass(error: KubeError) -> bool:
    """Whether waiting may help: there was no response, or the server is not well."""
    if isinstance(error, ApiStatusError):
        return error.is_server_error or error.is_too_many_requests
    return isinstance(error, TransportError)


# Signs of life of simulated nodes: leases in kube-node-lease, and the heartbeat in the node's conditions.


class Liveness:
    """Run ``leases`` and ``heartbeats`` (two duties) for the nodes that joined."""

    def __init__(
        self,
        client: Client,
        timing: Timing,
        find_node: Callable[[str], Node | None],
        is_stopped: Callable[[str], bool],
        *,
        clock: Clock,
        random: Random,
        concurrency: int,
    ) -> None:
        """``find_node`` gives a node as the API has it, or None; of one that ``is_stopped`` nothing is written."""
        self._client = client
        self._clock = clock
        self._find_node = find_node
        self._is_stopped = is_stopped
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
        """The node was changed: a condition that says that it is not well is corrected soon."""
        if not is_healthy(node.status.conditions):
            self.heartbeats.rotation.again(node.metadata.name)

    async def _renew_leases(self, names: Sequence[str]) -> Sequence[str]:
        return await each("renewing leases", names, self._renew_lease)

    async def _report_status(self, names: Sequence[str]) -> Sequence[str]:
        return await each("reporting node status", names, self._heartbeat)

    async def _renew_lease(self, name: str) -> None:
        node = self._find_node(name)
        if node is None or self._is_stopped(name):
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
        if node is None or self._is_stopped(name):
            return
        patch = {"status": {"conditions": conditions(self._clock.now(), node.status.conditions)}}
        try:
            await self._client.patch(NODES, name, patch, PatchType.STRATEGIC, subresource="status")
        except ApiStatusError as error:
            # Deleted just now: the informer will say so.
            if not error.is_not_found:
                raise
