"""The life of an object that every node has one of: made with the node, kept current, deleted after it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any, ClassVar, Final, Generic, TypeVar

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODES, Kind
from koordinator.api.meta import Object, ObjectMeta, WireStruct
from koordinator.api.node import Node
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.expectations import Expectations
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.slo_metrics import SLOMetrics
from koordinator.model.patch.difference import merge_difference

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
_WORKERS: Final = 4
_PAUSE: Final = 1.0
"""Seconds until it is looked whether the cache has caught up, if no event says so."""


class NodePolicyController(Generic[T]):
    """Subclasses say what the spec of a node's object is."""

    name: ClassVar[str]
    kind: ClassVar[Kind[Any]]

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self.source = source = context.slo_configuration
        self.metrics = SLOMetrics(context.metrics, self.name)
        self._nodes = context.informers.informer(NODES)
        self._objects = context.informers.informer(self.kind, absent_is_empty=True)
        self._expectations = Expectations(context.clock)
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
            on_delete=self._gone,
        )
        source.listen(self._reconciler.add_all)

    @abstractmethod
    def spec(self, node: Node, stored: T | None) -> WireStruct | None:
        """What the node's object is to say; None to leave everything as it is."""

    @abstractmethod
    def is_same(self, stored: T, wanted: Any) -> bool:
        """Whether ``wanted``, a spec, says nothing that is not there."""

    async def run(self) -> None:
        """Work until cancelled."""
        with self.source.in_charge():
            await self._reconciler.run()

    def _names(self) -> list[str]:
        names = {node.metadata.name for node in self._nodes.list()}
        return sorted(names | {found.metadata.name for found in self._objects.list()})

    def _gone(self, found: T) -> None:
        self._expectations.forget(found.metadata.name)
        self._reconciler.add(found.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        node, stored = self._nodes.get(name), self._objects.get(name)
        if not self._expectations.are_satisfied(name, stored):
            return _PAUSE
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
                # The cache lags behind: its next event brings this node again.
                return
            self.metrics.reconciled.failed(reason)
            raise
        self.metrics.reconciled.succeeded(reason)

    async def _create(self, name: str, spec: dict[str, Any]) -> None:
        kind = self.kind
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        self._expectations.expect(name, await self._client.create(kind, document))

    async def _patch(self, stored: T, spec: dict[str, Any]) -> None:
        patch = {"spec": merge_difference(to_document(stored).get("spec", {}), spec)}
        name = stored.metadata.name
        self._expectations.expect(name, await self._client.patch(self.kind, name, patch, PatchType.MERGE))

    async def _delete(self, metadata: ObjectMeta) -> None:
        await self._client.delete(self.kind, metadata.name, uid=metadata.uid)


def _matters(old: Node, new: Node) -> bool:
    """Whether what specs are made of may have changed."""
    before, now = old.metadata, new.metadata
    return (
        before.labels != now.labels
        or before.annotations != now.annotations
        or old.status.allocatable != new.status.allocatable
    )


def _rewritten(old: Object, new: Object) -> bool:
    return old.metadata.generation != new.metadata.generation
