"""The EndpointSlices that one controller keeps: which of whom they are, and how a plan for those of an owner is
written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta, controller_of
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.slice_plan import SliceContent, SlicePlan
from koordinator.cluster.controllers.endpoints.types import ENDPOINT_SLICES, EndpointSlice
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_RECHECK_SECONDS: Final = 5.0
"""When an object is looked at again that has changed since the cache was read, if no event says so before."""


class SliceOwner(NamedTuple):
    """What slices are made for."""

    metadata: ObjectMeta
    reference: Document
    """The ownerReference of its slices."""
    labels: dict[str, str]
    """Those that slices take over from it; the two that say whose they are come in addition."""
    annotations: dict[str, str] | None = None
    """Those of its slices; None leaves theirs alone."""


class ManagedSlices:
    """The slices with the name of one manager; their owners are known by ``namespace/name``."""

    def __init__(self, context: ControllerContext, controller: str, manager: str) -> None:
        self._client = context.client
        self._controller = controller
        self._manager = manager
        self._slices = context.informers.informer(ENDPOINT_SLICES, indexes={controller: self._owners})

    def follow(self, add: Callable[[str], None]) -> None:
        """``add`` is called with the key of each owner whose slices have changed."""

        def changed(found: EndpointSlice) -> None:
            for key in self._owners(found):
                add(key)

        self._slices.add_handlers(
            name=self._controller,
            on_add=lambda each, _: changed(each),
            on_update=lambda _, each: changed(each),
            on_delete=changed,
        )

    def owners(self) -> set[str]:
        """The keys of all owners that slices are there of."""
        return {key for each in self._slices.list() for key in self._owners(each)}

    def existing(self, key: str) -> list[EndpointSlice]:
        """Those of an owner that are to stay."""
        return [each for each in self._slices.by_index(self._controller, key) if not each.metadata.deletion_timestamp]

    async def write(self, owner: SliceOwner, plan: SlicePlan) -> float | None:
        """Carry out a plan for the existing slices of an owner. Returns after how many seconds to look again, where one
        has changed meanwhile."""
        return await _tried(self._write(owner, plan))

    async def clear(self, key: str) -> float | None:
        """Delete all slices of an owner; returns as ``write`` does."""
        return await _tried(self._delete(self.existing(key)))

    async def _write(self, owner: SliceOwner, plan: SlicePlan) -> None:
        metadata, marks = owner.metadata, self._marks(owner)
        written = {each.metadata.name for each in (*(each for each, _ in plan.update), *plan.delete)}
        left = [each for each in self.existing(metadata.key) if each.metadata.name not in written]
        for each, content in plan.update:
            await self._patch(each, marks, _body(content))
        for each in left:
            if not _is_marked(each, marks):
                await self._patch(each, marks, {})
        for content in plan.create:
            head = {"generateName": f"{metadata.name}-", **marks}
            body = {"metadata": head, "addressType": content.address_type, **_body(content)}
            await self._client.create(ENDPOINT_SLICES, body, metadata.namespace)
        await self._delete(plan.delete)

    async def _patch(self, found: EndpointSlice, marks: Document, body: Document) -> None:
        """Unless someone else has written it; labels and annotations that it should not have go."""
        metadata = found.metadata
        kept = {name: {**dict.fromkeys(getattr(metadata, name)), **marks[name]} for name in _maps(marks)}
        patch = {"metadata": {"resourceVersion": metadata.resource_version, **marks, **kept}, **body}
        await self._client.patch(ENDPOINT_SLICES, metadata.name, patch, PatchType.MERGE, metadata.namespace)

    async def _delete(self, found: Iterable[EndpointSlice]) -> None:
        for each in found:
            metadata = each.metadata
            await self._client.delete(ENDPOINT_SLICES, metadata.name, metadata.namespace, uid=metadata.uid)

    def _marks(self, owner: SliceOwner) -> Document:
        """The metadata that makes a slice one of this owner."""
        labels = {**owner.labels, SERVICE_NAME: owner.metadata.name, MANAGED_BY: self._manager}
        annotations = {} if owner.annotations is None else {"annotations": owner.annotations}
        return {"labels": labels, **annotations, "ownerReferences": [owner.reference]}

    def _owners(self, found: EndpointSlice) -> tuple[str, ...]:
        """The key of its owner; none for slices of others."""
        labels, namespace = found.metadata.labels, found.metadata.namespace
        name = labels.get(SERVICE_NAME) if labels.get(MANAGED_BY) == self._manager else None
        return (f"{namespace}/{name}",) if name else ()


def _is_marked(found: EndpointSlice, marks: Document) -> bool:
    owner = controller_of(found.metadata)
    is_owned = owner is not None and owner.uid == marks["ownerReferences"][0]["uid"]
    return is_owned and all(getattr(found.metadata, name) == marks[name] for name in _maps(marks))


def _maps(marks: Document) -> list[str]:
    return [name for name in ("labels", "annotations") if name in marks]


def _body(content: SliceContent) -> Document:
    """What a slice with this content says of it."""
    ports: list[Document] | None = None
    if content.ports is not None:
        # Here an empty name is one.
        ports = [{"name": port.name, "protocol": port.protocol, **to_document(port)} for port in content.ports]
    return {"endpoints": [to_document(each) for each in content.endpoints] or None, "ports": ports}


async def _tried(writes: Awaitable[None]) -> float | None:
    try:
        await writes
    except ApiStatusError as error:
        if not (error.is_conflict or error.is_not_found):
            raise
        # A slice or its owner has changed or is gone: its event is on the way.
        return _RECHECK_SECONDS
    return None
