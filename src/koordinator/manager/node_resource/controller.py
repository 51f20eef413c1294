"""The controller ``noderesource``: looks at a node, decides, and writes what is due."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, Kind
from koordinator.api.node import Node
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.expectations import Expectations
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.features import ENABLE_SYNC_GPU_SHARED_RESOURCE
from koordinator.manager.node_resource.abnormal_nodes import AbnormalNodes
from koordinator.manager.node_resource.explanations import Explanations, NodeExplanation
from koordinator.manager.node_resource.known_nodes import KnownNodes
from koordinator.manager.node_resource.metrics import NodeResourceMetrics
from koordinator.model.overcommit.abnormal_condition import condition_change
from koordinator.model.overcommit.abnormality import NodeHealth, next_look
from koordinator.model.overcommit.decision import Plan, decide
from koordinator.model.overcommit.node_policies import node_policies
from koordinator.model.overcommit.policies import PLUGINS, Policies
from koordinator.model.overcommit.preparation import NodeChanges, prepare
from koordinator.model.overcommit.zone_preparation import prepare_zones, zone_amounts

logger = logging.getLogger(__name__)

_WORKERS: Final = 4
_LEAST_PAUSE: Final = 1.0


class NodeResourceController:
    """``explanations`` says why each node offers what it offers."""

    name = "noderesource"

    def __init__(self, context: ControllerContext) -> None:
        options = context.options
        self._client = context.client
        self._clock = context.clock
        self._source = source = context.slo_configuration
        self._plugins = frozenset(each for each in PLUGINS if options.runs_node_resource_plugin(each))
        self.explanations = Explanations()
        self._metrics = NodeResourceMetrics(context.metrics, self.explanations)
        self._abnormal = AbnormalNodes(context.events.recorder(self.name), context.metrics)
        self._status_written: dict[str, datetime] = {}
        self._zones_written: dict[str, datetime] = {}
        self._expectations = Expectations(context.clock)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: self._known.names(),
            workers=_WORKERS,
        )
        self._known = KnownNodes(
            context.informers,
            self._reconciler.add,
            namespace=options.namespace,
            sync_shared=options.features.enabled(ENABLE_SYNC_GPU_SHARED_RESOURCE),
        )
        source.listen(self._reconciler.add_all)

    async def run(self) -> None:
        """Work until cancelled. What another replica wrote meanwhile is not known: everything counts as due again."""
        try:
            with self._source.in_charge():
                await self._reconciler.run()
        finally:
            self._abnormal.clear()
            self._status_written.clear()
            self._zones_written.clear()
            # Another replica may say something else from now on.
            self.explanations.clear()

    def explain(self, name: str) -> NodeExplanation | None:
        """Why a node offers what it offers, its zones included; None where nothing is known of it."""
        explanation, node = self.explanations.of(name), self._known.node(name)
        if explanation is None or node is None:
            return explanation
        distrust = explanation.health.distrust if explanation.health is not None else ""
        snapshot = self._known.snapshot(name, distrust)
        if snapshot is None or snapshot.topology is None:
            return explanation
        plan = decide(snapshot, node_policies(self._source.current, node, self._plugins), explanation.at)
        return replace(explanation, zones=zone_amounts(plan))

    async def _reconcile(self, name: str) -> float | None:
        node, facts = self._known.node(name), self._known.node_facts(name)
        if node is None or facts is None:
            self._forget(name)
            return None
        configuration = self._source.current
        if not configuration.colocation.available:
            return None
        if not self._expectations.are_satisfied(name, node):
            return _LEAST_PAUSE
        now = self._clock.now()
        policies = node_policies(configuration, node, self._plugins)
        health = self._abnormal.judge(
            node, facts, self._known.metric_facts(name), policies, now, runs_pods=self._known.runs_pods(name)
        )
        snapshot = self._known.snapshot(name, health.distrust if health is not None else "")
        assert snapshot is not None
        plan = decide(snapshot, policies, now)
        changes = prepare(node, plan, policies.capacity, now, self._status_written.get(name))
        self._explain(name, health, policies, changes, now)
        await self._write(name, plan, changes, policies, now)
        await self._mark(node, health, now)
        return self._next(plan, health, policies, now)

    async def _mark(self, node: Node, health: NodeHealth | None, now: datetime) -> None:
        """Where nobody judges the node, a mark from before comes off."""
        change = condition_change(node, health, now)
        if change is not None:
            name = node.metadata.name
            await self._send(NODES, name, change.patch, PatchType.STRATEGIC, "updateNodeCondition", "status")
            self._abnormal.written(node, change)

    async def _write(self, name: str, plan: Plan, changes: NodeChanges, policies: Policies, now: datetime) -> None:
        topology = self._known.topology(name)
        if topology is not None:
            zones = prepare_zones(topology, plan, policies.capacity, now, self._zones_written.get(name))
            if zones.operations:
                operations = list(zones.operations)
                reason = "updateNodeResourceTopology"
                await self._send(NODE_RESOURCE_TOPOLOGIES, name, operations, PatchType.JSON, reason)
            if zones.due:
                self._zones_written[name] = now
        status = changes.status_patch()
        if status is not None:
            await self._send(NODES, name, status, PatchType.MERGE, "updateNodeStatus", "status")
        if changes.status_due:
            self._status_written[name] = now
        metadata = changes.metadata_patch()
        if metadata is not None:
            await self._send(NODES, name, metadata, PatchType.MERGE, "patchNodeMeta")

    async def _send(
        self, kind: Kind[Any], name: str, patch: Any, patch_type: PatchType, reason: str, subresource: str = ""
    ) -> None:
        try:
            answer = await self._client.patch(kind, name, patch, patch_type, subresource=subresource)
        except KubeError as error:
            self._metrics.reconciled.failed(reason)
            if isinstance(error, ApiStatusError) and error.is_not_found:
                # It was deleted a moment ago; its event says so soon.
                return
            raise
        self._metrics.reconciled.succeeded(reason)
        if kind is NODES:
            self._expectations.expect(name, answer)

    def _explain(
        self, name: str, health: NodeHealth | None, policies: Policies, changes: NodeChanges, now: datetime
    ) -> None:
        problems = tuple(f"{each.plugin}: {each.text}" for each in changes.problems) + self._known.unreadable(name)
        explanation = NodeExplanation(
            at=now,
            amounts=changes.amounts,
            health=health if health is not None and health.is_abnormal else None,
            problems=(policies.problem, *problems) if policies.problem else problems,
            written=changes.status_due,
        )
        before = self.explanations.of(name)
        if explanation.problems and (before is None or before.problems != explanation.problems):
            logger.warning("node %s: %s", name, "; ".join(explanation.problems))
        self.explanations.put(name, explanation)
        self._metrics.ran(self._plugins, {each.plugin for each in changes.problems})

    def _next(self, plan: Plan, health: NodeHealth | None, policies: Policies, now: datetime) -> float | None:
        """After how many seconds time alone may have changed the answer."""
        moments = [plan.recheck_at]
        if health is not None:
            moments.append(next_look(health, policies.capacity, now, policies.abnormality))
        pauses = [(moment - now).total_seconds() for moment in moments if moment is not None and moment > now]
        return max(min(pauses), _LEAST_PAUSE) if pauses else None

    def _forget(self, name: str) -> None:
        self._abnormal.forget(name)
        self._status_written.pop(name, None)
        self._zones_written.pop(name, None)
        self._expectations.forget(name)
        self.explanations.forget(name)
