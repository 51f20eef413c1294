"""The controller of DrainNodeGroups: gathers what there is, decides, and carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from koordinator.api import drain_node as drains
from koordinator.api import drain_node_group as groups
from koordinator.api.drain_node import DrainNode
from koordinator.api.drain_node_group import DrainNodeGroup
from koordinator.api.kinds import DRAIN_NODE_GROUPS, DRAIN_NODES, NODES
from koordinator.api.meta import controller_of
from koordinator.descheduler.drain.plan import NODE_GROUP
from koordinator.descheduler.drain_group.decision import decide
from koordinator.descheduler.drain_group.planning import (
    GroupFacts,
    NodeCapacity,
    Stage,
    capacity_of,
    stage_of,
)
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.plan_controller import ObjectPlan, PlanController, age_order
from koordinator.descheduler.requests import reservations_by_node
from koordinator.kube.reconciler import Reconcilers

_PERIOD: Final = 3.0
_WAITING_PERIOD: Final = 300.0
"""Seconds until a group is looked at again that waits for another one, whose end is seen at once."""
_BY_GROUP: Final = "uid of the drain node group"


class DrainGroupController(PlanController[DrainNodeGroup]):
    """Decides about one group after the other."""

    def __init__(self, handle: Handle, reconcilers: Reconcilers, cluster: MigrationLister) -> None:
        super().__init__("drain groups", DRAIN_NODE_GROUPS, handle, reconcilers)
        self._cluster = cluster
        self._drains = handle.informers.informer(DRAIN_NODES, absent_is_empty=True)
        self._drains.add_index(_BY_GROUP, _group_uid)
        self._nodes = handle.informers.informer(NODES)
        self._add_handlers()

    def _due(self, group: DrainNodeGroup, plan: ObjectPlan) -> float | None:
        if plan.status.phase == groups.PENDING and group.status.phase == groups.PENDING and not plan.actions:
            return _WAITING_PERIOD
        return None if plan.status.phase in groups.FINISHED and not plan.actions else _PERIOD

    def _decide(self, group: DrainNodeGroup) -> tuple[DrainNodeGroup, ObjectPlan]:
        return group, decide(group, self._facts(group), self._clock.now())

    def _add_handlers(self) -> None:
        self._objects.add_handlers(
            name="drain groups",
            on_add=lambda group, _: self._reconciler.add(group.metadata.name),
            # The end of one group is the beginning of the next.
            on_update=lambda _, __: self._reconciler.add_all(),
            on_delete=lambda _: self._reconciler.add_all(),
        )
        self._drains.add_handlers(
            name="drain groups",
            on_add=lambda drain, _: self._add_group_of(drain),
            on_update=lambda _, drain: self._add_group_of(drain),
            on_delete=self._add_group_of,
        )

    def _add_group_of(self, drain: DrainNode) -> None:
        name = drain.metadata.labels.get(NODE_GROUP)
        if name:
            self._reconciler.add(name)

    def _facts(self, group: DrainNodeGroup) -> GroupFacts:
        owned = {each.metadata.name: each for each in self._drains.by_index(_BY_GROUP, group.metadata.uid)}
        others = [drain for drain in self._drains.list() if drain.metadata.name not in owned]
        is_choosing = group.status.phase == groups.PLANNING and Stage.PLANNED not in map(stage_of, owned.values())
        return GroupFacts(
            {node.metadata.name: node for node in self._nodes.list()},
            {drain.spec.node_name: drain for drain in owned.values()},
            frozenset(drain.spec.node_name for drain in others if drain.status.phase != drains.ABORTED),
            self._capacities() if is_choosing else {},
            frozenset(drain.metadata.name for drain in others),
            self._waits_for(group),
        )

    def _capacities(self) -> Mapping[str, NodeCapacity]:
        reserved = reservations_by_node(self._cluster.reservations.list())
        return {
            (name := node.metadata.name): capacity_of(node, self._cluster.pods_on(name), reserved.get(name, ()))
            for node in self._nodes.list()
        }

    def _waits_for(self, group: DrainNodeGroup) -> str:
        unfinished = [each for each in self._objects.list() if each.status.phase not in groups.FINISHED]
        oldest = min([*unfinished, group], key=age_order)
        return oldest.metadata.name if oldest.metadata.name != group.metadata.name else ""


def _group_uid(drain: DrainNode) -> Iterable[str]:
    owner = controller_of(drain.metadata)
    return (owner.uid,) if owner is not None and owner.kind == DRAIN_NODE_GROUPS.name else ()
