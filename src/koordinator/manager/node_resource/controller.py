"""The controller ``noderesource``: makes a plan for each node on one snapshot, and writes what differs from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, Kind
from koordinator.api.node import Node
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.expectations import Expectations
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.features import ENABLE_SYNC_GPU_SHARED_RESOURCE
from koordinator.manager.node_resource.explanations import Explanations, NodeExplanation
from koordinator.manager.node_resource.metrics import NodeResourceMetrics
from koordinator.manager.node_resource.snapshot_lister import SnapshotLister, StoredNode
from koordinator.model.overcommit.abnormality import ConditionChange, NodeHealth, remembered
from koordinator.model.overcommit.node_diff import LastWrites, PlanDiff, diff_plan
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import PLUGINS, Policies, node_policies

logger = logging.getLogger(__name__)

_WORKERS: Final = 4
_LEAST_PAUSE: Final = 1.0
_ABNORMAL: Final = "ColocationAbnormal"
_NORMAL: Final = "ColocationNormal"
_ACTION: Final = "CheckNode"


@dataclass(slots=True)
class _Record:
    """What this process remembers of a node from one plan to the next."""

    uid: str
    """A node that is created again under the same name has another."""
    last: LastWrites = field(default_factory=LastWrites)
    health: NodeHealth | None = None
    announced: str | None = None
    """The reason of the condition that was written last, empty for none; None: nothing has been written yet."""
    decided: tuple[NodeSnapshot, Policies, datetime] | None = None
    """What the last plan was made from."""


class NodeResourceController:
    """``explanations`` says why the amounts of each node are what they are."""

    name = "noderesource"

    def __init__(self, context: ControllerContext) -> None:
        options = context.options
        self._client = context.client
        self._clock = context.clock
        self._source = source = context.slo_configuration
        self._plugins = frozenset(each for each in PLUGINS if options.runs_node_resource_plugin(each))
        self.explanations = Explanations()
        self._metrics = NodeResourceMetrics(context.metrics, self.explanations)
        self._recorder = context.events.recorder(self.name)
        self._records: dict[str, _Record] = {}
        self._expectations = Expectations(context.clock)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: self._nodes.names(),
            workers=_WORKERS,
        )
        self._nodes = SnapshotLister(
            context.informers,
            self._reconciler.add,
            namespace=options.namespace,
            sync_shared=options.features.enabled(ENABLE_SYNC_GPU_SHARED_RESOURCE),
        )
        source.listen(self._reconciler.add_all)

    async def run(self) -> None:
        """Work until cancelled. What another replica writes afterwards is not known here: everything counts as due
        again the next time."""
        try:
            with self._source.in_charge():
                await self._reconciler.run()
        finally:
            self._records.clear()
            # Another replica may decide otherwise from now on.
            self.explanations.clear()

    def explain(self, name: str) -> NodeExplanation | None:
        """Why the amounts of a node are what they are, with those of its zones; None where nothing is known of it."""
        explanation, record = self.explanations.of(name), self._records.get(name)
        if explanation is None or record is None or record.decided is None:
            return explanation
        return replace(explanation, zones=decide(*record.decided).zone_amounts)

    async def _reconcile(self, name: str) -> float | None:
        stored = self._nodes.get(name)
        if stored is None:
            self._forget(name)
            return None
        if not self._source.current.colocation.available:
            return None
        if not self._expectations.are_satisfied(name, stored.node):
            return _LEAST_PAUSE
        now, record = self._clock.now(), self._record(stored.node)
        policies = node_policies(self._source.current, stored.node, self._plugins)
        snapshot = replace(stored.facts, health=record.health or remembered(stored.node, now))
        plan = decide(snapshot, policies, now)
        record.decided, record.health = (snapshot, policies, now), plan.health
        if plan.health is None:
            record.announced = None
        diff = diff_plan(stored.node, stored.topology, plan, policies.capacity, now, record.last)
        self._explain(stored, plan, diff, policies, now)
        await self._write(stored.node, diff, record, now)
        return None if plan.recheck_at is None else max((plan.recheck_at - now).total_seconds(), _LEAST_PAUSE)

    def _record(self, node: Node) -> _Record:
        name, uid = node.metadata.name, node.metadata.uid
        record = self._records.get(name)
        if record is None or record.uid != uid:
            record = self._records[name] = _Record(uid)
        return record

    async def _write(self, node: Node, diff: PlanDiff, record: _Record, now: datetime) -> None:
        name = node.metadata.name
        if diff.zones.operations:
            operations = list(diff.zones.operations)
            reason = "updateNodeResourceTopology"
            await self._send(NODE_RESOURCE_TOPOLOGIES, name, operations, PatchType.JSON, reason)
        if diff.zones.due:
            record.last = record.last._replace(zones=now)
        status = diff.node.status_patch()
        if status is not None:
            await self._send(NODES, name, status, PatchType.MERGE, "updateNodeStatus", "status")
        if diff.node.status_due:
            record.last = record.last._replace(status=now)
        metadata = diff.node.metadata_patch()
        if metadata is not None:
            await self._send(NODES, name, metadata, PatchType.MERGE, "patchNodeMeta")
        if diff.condition is not None:
            patch = diff.condition.patch
            await self._send(NODES, name, patch, PatchType.STRATEGIC, "updateNodeCondition", "status")
            self._announce(node, diff.condition, record)

    async def _send(
        self, kind: Kind[Any], name: str, patch: Any, patch_type: PatchType, reason: str, subresource: str = ""
    ) -> None:
        try:
            response = await self._client.patch(kind, name, patch, patch_type, subresource=subresource)
        except KubeError as error:
            self._metrics.reconciled.failed(reason)
            if isinstance(error, ApiStatusError) and error.is_not_found:
                # It was deleted a moment ago; its event says so soon.
                return
            raise
        self._metrics.reconciled.succeeded(reason)
        if kind is NODES:
            self._expectations.expect(name, response)

    def _announce(self, node: Node, change: ConditionChange, record: _Record) -> None:
        """The condition was written: record an event, unless it was announced before and the cache does not show the
        write yet."""
        before = change.before if record.announced is None else record.announced
        record.announced = change.after if record.health is not None else None
        if before == change.after:
            return
        self._metrics.condition_changed(before, change.after)
        regarding = reference_to(NODES, node)
        if change.after:
            self._recorder.event(regarding, "Warning", _ABNORMAL, _ACTION, f"{change.after}: {change.message}")
        else:
            self._recorder.event(regarding, "Normal", _NORMAL, _ACTION, f"{before} is over: {change.message}")

    def _explain(self, stored: StoredNode, plan: Plan, diff: PlanDiff, policies: Policies, now: datetime) -> None:
        name = stored.node.metadata.name
        problems = tuple(f"{each.plugin}: {each.text}" for each in plan.problems) + stored.unreadable
        explanation = NodeExplanation(
            at=now,
            amounts=plan.amounts,
            health=plan.health if plan.health is not None and plan.health.is_abnormal else None,
            problems=(policies.problem, *problems) if policies.problem else problems,
            written=diff.node.status_due,
        )
        before = self.explanations.of(name)
        if explanation.problems and (before is None or before.problems != explanation.problems):
            logger.warning("node %s: %s", name, "; ".join(explanation.problems))
        self.explanations.put(name, explanation)
        self._metrics.ran(self._plugins, {each.plugin for each in plan.problems})

    def _forget(self, name: str) -> None:
        self._records.pop(name, None)
        self._expectations.forget(name)
        self.explanations.forget(name)
