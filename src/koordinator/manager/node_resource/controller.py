"""The controller ``noderesource``: makes a plan for each node on one snapshot, and writes what differs from it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from koordinator.api.adaptive_slo import read_state
from koordinator.api.annotations import ADAPTIVE_SLO
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.kube.errors import KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.features import ENABLE_SYNC_GPU_SHARED_RESOURCE
from koordinator.manager.node_resource.explanations import Explanations, NodeExplanation
from koordinator.manager.node_resource.metrics import NodeResourceMetrics
from koordinator.manager.node_resource.snapshot_lister import SnapshotLister, StoredNode
from koordinator.model.overcommit.abnormality import ConditionChange, NodeHealth, remembered
from koordinator.model.overcommit.node_diff import LastWrites, NodeDiff, PlanDiff, ZoneDiff, diff_plan
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import KNOWN_PLUGINS, Policies, node_policies
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.model.slo_configuration.node_slo import lowered_values

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
_WORKERS: Final = 16
"""A write that hangs, such as for a slow webhook, holds one of them for a minute."""
_LEAST_PAUSE: Final = 1.0
_DEADLINE: Final = 150.0
"""Two requests one after the other, each of which a client gives up after a minute."""
_VERSION: Final = "/metadata/resourceVersion"
_ABNORMAL: Final = "ColocationAbnormal"
_NORMAL: Final = "ColocationNormal"
_ACTION: Final = "CheckNode"
_TIGHTENED: Final = "SLOTightened"
_RELAXED: Final = "SLORelaxed"
_ADAPT: Final = "AdaptSLO"


@dataclass(slots=True)
class _Record:
    """What this process remembers of a node from one plan to the next."""

    uid: str
    """A node that is created again under the same name has another."""
    last: LastWrites = field(default_factory=LastWrites)
    health: NodeHealth | None = None
    decided: tuple[NodeSnapshot, Policies, datetime] | None = None
    """What the last plan was made from."""
    policies: tuple[SLOConfiguration, Node, Policies] | None = None
    """The last ones, with what they were made from: a node reports more often than it changes."""


class NodeResourceController:
    """``explanations`` says why the amounts of each node are what they are."""

    name = "noderesource"

    def __init__(self, context: ControllerContext) -> None:
        options = context.options
        self._client = context.client
        self._clock = context.clock
        self._source = source = context.slo_configuration
        self._plugins = frozenset(each for each in KNOWN_PLUGINS if options.runs_node_resource_plugin(each))
        self.explanations = Explanations()
        self._metrics = NodeResourceMetrics(context.metrics, self.explanations, self._plugins)
        self._recorder = context.events.recorder(self.name)
        self._records: dict[str, _Record] = {}
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: self._nodes.names(),
            workers=_WORKERS,
            deadline=_DEADLINE,
        )
        self._nodes = SnapshotLister(
            context.informers,
            self._reconciler.add,
            options,
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
        """Why the amounts of a node are what they are, with those of its zones, and how far it is adapted; None where
        nothing is known of it."""
        explanation, record = self.explanations.of(name), self._records.get(name)
        if explanation is None or record is None or record.decided is None:
            return explanation
        zones = decide(*record.decided).zone_amounts
        state, adaptive = explanation.adaptation, record.decided[1].adaptive_slo
        if state is None or adaptive is None or record.policies is None:
            return replace(explanation, zones=zones)
        configuration, node, policies = record.policies
        values = (*lowered_values(configuration, node, state), *policies.lowered_values(state))
        return replace(explanation, zones=zones, lowered=values, back_at=adaptive.back_at(state))

    async def _reconcile(self, name: str) -> float | None:
        stored = self._nodes.get(name)
        if stored is None:
            self._forget(name)
            return None
        if not self._source.current.colocation.available:
            return None
        now, record = self._clock.now(), self._record(stored.node)
        policies = self._policies(stored.node, record)
        snapshot = replace(stored.facts, health=record.health or remembered(stored.node, now))
        plan = decide(snapshot, policies, now)
        record.decided, record.health = (snapshot, policies, now), plan.health
        diff = diff_plan(stored.node, stored.topology, plan, policies.capacity, now, record.last)
        self._explain(stored, plan, diff, policies, now)
        await self._write(stored, diff, record, now)
        return None if plan.recheck_at is None else max((plan.recheck_at - now).total_seconds(), _LEAST_PAUSE)

    def _record(self, node: Node) -> _Record:
        name, uid = node.metadata.name, node.metadata.uid
        record = self._records.get(name)
        if record is None or record.uid != uid:
            record = self._records[name] = _Record(uid)
        return record

    def _policies(self, node: Node, record: _Record) -> Policies:
        configuration, known = self._source.current, record.policies
        if known is None or known[0] is not configuration or known[1] is not node:
            known = record.policies = configuration, node, node_policies(configuration, node, self._plugins)
        return known[2]

    async def _write(self, stored: StoredNode, diff: PlanDiff, record: _Record, now: datetime) -> None:
        """Each part on its own, whatever becomes of the others. Raises the first error."""
        if stored.topology is None or not diff.zones.operations:
            # Nearly always: two tasks would take longer than to find out that nothing has to be written.
            await self._write_zones(None, diff.zones, record, now)
            return await self._write_node(stored, diff, record, now)
        parts = self._write_zones(stored.topology, diff.zones, record, now), self._write_node(stored, diff, record, now)
        failures = [each for each in await asyncio.gather(*parts, return_exceptions=True) if each is not None]
        for failure in failures[1:]:
            logger.warning("node %s: %s; trying again", stored.node.metadata.name, failure)
        if failures:
            raise failures[0]
        return None

    async def _write_zones(
        self, topology: NodeResourceTopology | None, diff: ZoneDiff, record: _Record, now: datetime
    ) -> None:
        if topology is not None and diff.operations:
            # Not a test, whose failure would be an invalid request and no conflict.
            version = {"op": "replace", "path": _VERSION, "value": topology.metadata.resource_version}
            operations = [version, *diff.operations]
            reason = "updateNodeResourceTopology"
            await self._send(NODE_RESOURCE_TOPOLOGIES, topology, operations, PatchType.JSON, reason)
        if diff.due:
            record.last = record.last._replace(zones=now)

    async def _write_node(self, stored: StoredNode, diff: PlanDiff, record: _Record, now: datetime) -> None:
        try:
            node = await self._write_amounts(stored.node, diff.node, record, now)
        except KubeError:
            await self._write_condition(stored.node, diff.condition)
            raise
        await self._write_condition(node, diff.condition)

    async def _write_amounts(self, node: Node, diff: NodeDiff, record: _Record, now: datetime) -> Node:
        """The node as it is then."""
        before, status, metadata = node, diff.status_patch(), diff.metadata_patch()
        if status is not None:
            node = await self._patch_node(node, status, PatchType.MERGE, "updateNodeStatus", "status")
        if diff.status_due:
            record.last = record.last._replace(status=now)
        if metadata is not None:
            node = await self._patch_node(node, metadata, PatchType.MERGE, "patchNodeMeta")
        if ADAPTIVE_SLO in diff.annotations and (status is not None or metadata is not None):
            self._announce_step(before, node)
        return node

    async def _write_condition(self, node: Node, change: ConditionChange | None) -> None:
        if change is not None:
            await self._patch_node(node, change.patch, PatchType.STRATEGIC, "updateNodeCondition", "status")
            self._announce(node, change)

    async def _patch_node(
        self, node: Node, patch: dict[str, Any], patch_type: PatchType, reason: str, subresource: str = ""
    ) -> Node:
        """The node as it is then. Raises a conflict if the node is no more what the patch was computed from."""
        metadata = patch.get("metadata", {}) | {"resourceVersion": node.metadata.resource_version}
        return await self._send(NODES, node, patch | {"metadata": metadata}, patch_type, reason, subresource)

    async def _send(
        self, kind: Kind[T], obj: T, patch: Any, patch_type: PatchType, reason: str, subresource: str = ""
    ) -> T:
        try:
            response = await self._client.patch(kind, obj.metadata.name, patch, patch_type, subresource=subresource)
        except KubeError:
            self._metrics.reconciled.failed(reason)
            raise
        self._metrics.reconciled.succeeded(reason)
        return response

    def _announce(self, node: Node, change: ConditionChange) -> None:
        """Record an event of the condition that was written."""
        if change.before == change.after:
            return
        self._metrics.condition_changed(change.before, change.after)
        regarding = reference_to(NODES, node)
        if change.after:
            self._recorder.event(regarding, "Warning", _ABNORMAL, _ACTION, f"{change.after}: {change.message}")
        else:
            self._recorder.event(regarding, "Normal", _NORMAL, _ACTION, f"{change.before} is over: {change.message}")

    def _announce_step(self, before: Node, node: Node) -> None:
        """Record an event of the level that was written, if it is another one."""
        old, new = read_state(before.metadata.annotations), read_state(node.metadata.annotations)
        was, level = old.level if old is not None else 0, new.level if new is not None else 0
        if was == level:
            return
        self._metrics.stepped(up=level > was)
        regarding, steps = reference_to(NODES, node), new.steps if new is not None else 0
        if new is None:
            note = f"step {was} is taken back: the node is no longer adapted"
            self._recorder.event(regarding, "Normal", _RELAXED, _ADAPT, note)
        elif level > was:
            self._recorder.event(regarding, "Warning", _TIGHTENED, _ADAPT, f"step {level} of {steps}: {new.reason}")
        else:
            note = f"back to step {level} of {steps}: the node has been calm"
            self._recorder.event(regarding, "Normal", _RELAXED, _ADAPT, note)

    def _explain(self, stored: StoredNode, plan: Plan, diff: PlanDiff, policies: Policies, now: datetime) -> None:
        name = stored.node.metadata.name
        problems = tuple(f"{each.plugin}: {each.text}" for each in plan.problems) + stored.unreadable
        explanation = NodeExplanation(
            at=now,
            amounts=plan.amounts,
            health=plan.health if plan.health is not None and plan.health.is_abnormal else None,
            adaptation=plan.adaptation,
            problems=(policies.problem, *problems) if policies.problem else problems,
            written=diff.node.status_due,
        )
        before = self.explanations.of(name)
        if explanation.problems and (before is None or before.problems != explanation.problems):
            logger.warning("node %s: %s", name, "; ".join(explanation.problems))
        self.explanations.put(name, explanation)
        self._metrics.ran([each.plugin for each in plan.problems])

    def _forget(self, name: str) -> None:
        self._records.pop(name, None)
        self.explanations.forget(name)
