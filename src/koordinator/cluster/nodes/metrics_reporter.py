"""Writes NodeMetrics for simulated nodes as their koordlets would, where koordlet itself does not.

Only the status is written. The object itself belongs to koord-manager; it is created, with the default policy, only
when it is missing, so that usage is visible in a cluster without a manager.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.cluster.nodes.faults import Faults
from koordinator.cluster.nodes.node_metrics import clearing, default_spec, node_metric_statuses
from koordinator.cluster.nodes.node_objects import node_owner
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.rotation import Duty, SimulatedTime, each
from koordinator.cluster.nodes.scenario import Timing
from koordinator.cluster.nodes.scenario_checks import SILENT, Fault
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.model.node_metric import CollectPolicy, collect_policy

logger = logging.getLogger(__name__)

_LEAST_REAL_INTERVAL: Final = 1.0
_ABSENT_PAUSE: Final = 10.0
_AGAIN: Final = BackoffPolicy(initial=0.1, maximum=5.0)
_EARLY: Final = 0.9
"""A turn that comes after this share of the interval is in time: turns do not come to the second."""


class MetricsReporter:
    """Run ``duty`` for the nodes that joined."""

    def __init__(
        self,
        client: Client,
        timing: Timing,
        population: Population,
        time: SimulatedTime,
        find_node: Callable[[str], Node | None],
        faults: Faults,
        *,
        clock: Clock,
        random: Random,
        concurrency: int,
        has_agent: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """``find_node`` returns a node as the API has it, or None; ``has_agent`` returns whether an agent of its own
        reports for a node."""
        self._client = client
        self._population = population
        self._time = time
        self._find_node = find_node
        self._faults = faults
        self._has_agent = has_agent
        self._without: set[str] = set()
        """Nodes whose agents are missing and that have nothing from before."""
        self._clock = clock
        self._policies: dict[str, CollectPolicy] = {}
        self._reported: dict[str, float] = {}
        self._absent_until = -math.inf
        self._backoff = Backoff(_AGAIN, clock, random)
        interval = max(_LEAST_REAL_INTERVAL, time.real(timing.report_interval.total_seconds()))
        self._spec = default_spec(report_seconds=math.ceil(interval))
        self.duty = Duty(
            "reporting NodeMetrics", interval, self._report, clock=clock, random=random, concurrency=concurrency
        )

    def join(self, node: str) -> None:
        self.duty.rotation.join(node)

    def leave(self, node: str) -> None:
        self.duty.rotation.leave(node)
        self._policies.pop(node, None)
        self._reported.pop(node, None)
        self._without.discard(node)
        self._faults.forget(node)

    async def report_all(self) -> None:
        """Report for all nodes now, whatever their intervals say; returns when it has been done."""
        self._reported.clear()
        names: Sequence[str] = self._population.nodes
        while names := await self._report(names):
            await self._clock.sleep(self._backoff.next())
        self._backoff.reset()

    async def _report(self, names: Sequence[str]) -> Sequence[str]:
        if self._clock.monotonic() < self._absent_until:
            return names
        names = [name for name in names if not self._has_agent(name)]
        failed = await each("removing NodeMetrics", self._to_remove(names), self._remove)
        now = self._time.now()
        statuses = self._statuses([name for name in names if self._faults.of(name) not in SILENT], now)
        unserved: list[str] = []

        async def write(name: str) -> None:
            if await self._write(name, statuses[name]):
                self._reported[name] = now
            else:
                unserved.append(name)

        return [*failed, *await each("reporting NodeMetrics", list(statuses), write), *unserved]

    def _statuses(self, names: Sequence[str], now: float) -> dict[str, dict[str, Any]]:
        """What those of ``names`` report whose turn it is."""
        statuses: dict[str, dict[str, Any]] = {}
        wall = self._clock.now()
        for policy, nodes in self._by_policy(names, now).items():
            documents = node_metric_statuses(self._population, nodes, policy, now, wall)
            for name, document in zip(nodes, documents, strict=True):
                statuses[name] = self._faults.distorted(self._population.node(name), document, wall)
        return statuses

    def _to_remove(self, names: Sequence[str]) -> list[str]:
        missing = {name for name in names if self._faults.of(name) is Fault.AGENT_MISSING}
        self._without.difference_update(set(names) - missing)
        return sorted(missing - self._without)

    async def _remove(self, name: str) -> None:
        """An agent that has never been there has left no report."""
        try:
            found = await self._client.get(NODE_METRICS, name)
            if found.status.update_time is not None:
                await self._client.delete(NODE_METRICS, name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
        self._without.add(name)

    def _by_policy(self, names: Sequence[str], now: float) -> dict[CollectPolicy, list[str]]:
        groups: dict[CollectPolicy, list[str]] = defaultdict(list)
        for name in names:
            policy = self._policies.get(name, CollectPolicy())
            since = now - self._reported.get(name, -math.inf)
            if self._population.has_node(name) and since >= _EARLY * policy.report_seconds:
                groups[policy].append(name)
        return groups

    async def _write(self, name: str, status: dict[str, Any]) -> bool:
        """Patch the status; creates the object where there is none. False while the kind is not served."""
        try:
            metric = await self._patch(name, status)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            if not await self._create(name):
                return False
            metric = await self._patch(name, status)
        self._policies[name] = collect_policy(metric.spec)
        return True

    async def _patch(self, name: str, status: dict[str, Any]) -> NodeMetric:
        body = {"status": clearing(status)}
        return await self._client.patch(NODE_METRICS, name, body, PatchType.MERGE, subresource="status")

    async def _create(self, name: str) -> bool:
        node = self._find_node(name)
        if node is None:
            return False
        body = {
            "apiVersion": NODE_METRICS.api_version,
            "kind": NODE_METRICS.name,
            "metadata": {"name": name, "ownerReferences": [node_owner(name, node.metadata.uid)]},
            "spec": self._spec,
        }
        try:
            await self._client.create(NODE_METRICS, body)
        except ApiStatusError as error:
            if error.is_not_found:
                self._wait_for_kind()
                return False
            if not error.is_already_exists:
                raise
        return True

    def _wait_for_kind(self) -> None:
        if self._absent_until == -math.inf:
            logger.info("NodeMetric is not served yet; node usage is reported once its CRD is there")
        self._absent_until = self._clock.monotonic() + _ABSENT_PAUSE
