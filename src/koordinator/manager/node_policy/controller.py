"""NodeMetric and NodeSLO: each node has one object of each, which is created with the node, kept current, and deleted
after it. The controller ``nodemetric`` writes what koordlet measures, ``nodeslo`` what it enforces.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_SLOS, NODES, Kind
from koordinator.api.meta import Object, ObjectMeta, WireStruct
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetricSpec
from koordinator.api.nodeslo import NodeSLO, NodeSLOSpec
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer import Informer
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext, Outcomes
from koordinator.manager.trimmed_objects import trimmed_node_reports
from koordinator.model.overcommit.node_report import NODE_REPORTS, NodeReport
from koordinator.model.patch.difference import merge_difference
from koordinator.model.slo_configuration import node_slo
from koordinator.model.slo_configuration.colocation import metric_collect_policy, node_colocation_strategy

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
_WORKERS: Final = 4
_POLICY_PART: Final = "getNodeMetricCollectPolicy"
_PARTS: Final = (
    node_slo.RESOURCE_THRESHOLD_PART,
    node_slo.RESOURCE_QOS_PART,
    node_slo.CPU_BURST_PART,
    node_slo.SYSTEM_PART,
    node_slo.HOST_APPLICATION_PART,
    node_slo.EXTENSION_PART,
)


class NodePolicyController(Generic[T]):
    """Reconciles one object per node; subclasses compute its spec."""

    name: ClassVar[str]
    kind: ClassVar[Kind[Any]]

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self.source = source = context.slo_configuration
        self._written = Outcomes(
            context.metrics, f"{self.name}_reconcile_count", f"{self.name} objects reconciled, by the write"
        )
        self.parsed = Outcomes(
            context.metrics, f"{self.name}_spec_parse_count", f"parts of {self.name} specs that were computed, by part"
        )
        self._nodes = context.informers.informer(NODES)
        self._objects = self.informer(context)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            self._names,
            workers=_WORKERS,
        )
        add = self._reconciler.add
        self._nodes.add_handlers(
            name=self.name,
            on_add=lambda node, _: add(node.metadata.name),
            on_update=lambda old, new: add(new.metadata.name) if _matters(old, new) else None,
            on_delete=lambda node: add(node.metadata.name),
        )
        self._objects.add_handlers(
            name=self.name,
            on_add=lambda found, _: add(found.metadata.name),
            on_update=lambda old, new: add(new.metadata.name) if _rewritten(old, new) else None,
            on_delete=lambda found: add(found.metadata.name),
        )
        source.listen(self._reconciler.add_all)

    @abstractmethod
    def informer(self, context: ControllerContext) -> Informer[T]:
        """The informer of the objects of all nodes."""

    @abstractmethod
    def spec(self, node: Node, stored: T | None) -> WireStruct | None:
        """The wanted spec of the node's object; None to leave the object as it is."""

    @abstractmethod
    def is_same(self, stored: T, wanted: Any) -> bool:
        """Whether the stored object already has everything in ``wanted``, a spec."""

    async def run(self) -> None:
        """Work until cancelled."""
        with self.source.in_charge():
            await self._reconciler.run()

    def _names(self) -> list[str]:
        names = {node.metadata.name for node in self._nodes.list()}
        return sorted(names | {found.metadata.name for found in self._objects.list()})

    async def _reconcile(self, name: str) -> float | None:
        node, stored = self._nodes.get(name), self._objects.get(name)
        if node is None:
            if stored is not None:
                await self._write("delete", self._delete(stored.metadata))
            return None
        wanted = self.spec(node, stored)
        if wanted is None:
            return None
        if stored is None:
            await self._write("create", self._create(name, to_document(wanted)))
        elif not self.is_same(stored, wanted):
            await self._write("update", self._patch(stored, to_document(wanted)))
        return None

    async def _write(self, verb: str, request: Any) -> None:
        reason = f"{verb}{self.kind.name}"
        try:
            await request
        except KubeError as error:
            if isinstance(error, ApiStatusError) and (error.is_already_exists or error.is_not_found):
                # The cache is stale; its next event requeues this node.
                return
            self._written.failed(reason)
            raise
        self._written.succeeded(reason)

    async def _create(self, name: str, spec: dict[str, Any]) -> None:
        kind = self.kind
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        await self._client.create(kind, document)

    async def _patch(self, stored: T, spec: dict[str, Any]) -> None:
        stored_spec = to_document(cast("Any", stored).spec)
        patch = {"spec": merge_difference(stored_spec, spec)}
        await self._client.patch(self.kind, stored.metadata.name, patch, PatchType.MERGE)

    async def _delete(self, metadata: ObjectMeta) -> None:
        await self._client.delete(self.kind, metadata.name, uid=metadata.uid)


def _matters(old: Node, new: Node) -> bool:
    """Whether anything of the node that specs depend on may have changed."""
    before, now = old.metadata, new.metadata
    return (
        before.labels != now.labels
        or before.annotations != now.annotations
        or old.status.allocatable != new.status.allocatable
    )


def _rewritten(old: Object, new: Object) -> bool:
    return old.metadata.generation != new.metadata.generation


class NodeMetricController(NodePolicyController[NodeReport]):
    """Keeps a NodeMetric for every node, also where colocation is off."""

    name = "nodemetric"
    kind = NODE_REPORTS

    def informer(self, context: ControllerContext) -> Informer[NodeReport]:
        return trimmed_node_reports(context.informers)

    def spec(self, node: Node, stored: NodeReport | None) -> NodeMetricSpec | None:
        colocation = self.source.current.colocation
        if not colocation.available or (stored is not None and colocation.in_error):
            return None
        strategy, problems = node_colocation_strategy(colocation.strategies, node.metadata)
        outcome = self.parsed.failed if problems else self.parsed.succeeded
        outcome(_POLICY_PART)
        return NodeMetricSpec(metric_collect_policy=metric_collect_policy(strategy))

    def is_same(self, stored: NodeReport, wanted: NodeMetricSpec) -> bool:
        return stored.spec == wanted


class NodeSLOController(NodePolicyController[NodeSLO]):
    """Keeps the merged policy of each node in its NodeSLO."""

    name = "nodeslo"
    kind = NODE_SLOS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._logged: dict[str, tuple[str, ...]] = {}

    def informer(self, context: ControllerContext) -> Informer[NodeSLO]:
        return context.informers.informer(NODE_SLOS, absent_is_empty=True)

    def spec(self, node: Node, stored: NodeSLO | None) -> NodeSLOSpec | None:
        configuration = self.source.current
        if not configuration.node_slo_available:
            return None
        spec, problems = node_slo.node_slo_spec(configuration, node, stored.spec if stored is not None else None)
        failed = {problem.part for problem in problems}
        for part in _PARTS:
            outcome = self.parsed.failed if part in failed else self.parsed.succeeded
            outcome(part)
        self._log(node.metadata.name, tuple(problem.message for problem in problems))
        return spec

    def _log(self, node: str, problems: tuple[str, ...]) -> None:
        """Log the problems of a node once, until they change."""
        if problems and self._logged.get(node) != problems:
            logger.warning("NodeSLO of node %s: %s", node, "; ".join(problems))
        if problems:
            self._logged[node] = problems
        else:
            self._logged.pop(node, None)

    def is_same(self, stored: NodeSLO, wanted: NodeSLOSpec) -> bool:
        return node_slo.same_node_slo_spec(stored.spec, wanted)
