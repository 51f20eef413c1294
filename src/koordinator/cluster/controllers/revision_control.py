"""Keeps the ControllerRevisions of DaemonSets and StatefulSets on the API server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from koordinator.api.codec import without_nulls
from koordinator.api.document import Document, same
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, controller_of
from koordinator.cluster.controllers.adoption import Adoption
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.ownership import CONTROLLER_INDEX, by_controller, candidates, claim
from koordinator.cluster.controllers.revision_history import (
    CONTROLLER_REVISIONS,
    ControllerRevision,
    History,
    beyond_limit,
    history_of,
    new_revision,
)
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.model.label_selector import CompiledSelector

O = TypeVar("O", bound=Object)  # noqa: E741
_MOST_COLLISIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of an owner, the current one included."""

    current: ControllerRevision
    history: History
    collisions: int
    """As the status of the owner counts them."""


class RevisionControl(Generic[O]):
    """For owners of one kind."""

    def __init__(self, context: ControllerContext, kind: Kind[O], hash_label: str) -> None:
        """``hash_label`` is the label of a revision that has its hash."""
        self._client = context.client
        self._kind = kind
        self._hash_label = hash_label
        self._revisions = context.informers.informer(CONTROLLER_REVISIONS, indexes={CONTROLLER_INDEX: by_controller})
        self._adoption = Adoption(context.client, kind, CONTROLLER_REVISIONS)

    async def current(self, owner: O, selector: CompiledSelector, template: Document, collisions: int) -> Revisions:
        """See to it that there is a revision of ``template`` and that its number is the highest. Raises KubeError."""
        claims = claim(owner, candidates(self._revisions, owner), selector)
        history = history_of(template, await self._adoption.claim(owner, claims))
        if history.current is None:
            created, collisions = await self._create(owner, template, history.number, collisions)
            return Revisions(created, history, collisions)
        current = history.current
        if current.revision < history.number:
            current = await self._renumber(current, history.number)
        return Revisions(current, history, collisions)

    async def delete_surplus(self, history: History, in_use: Collection[str], limit: int) -> None:
        """Delete the oldest revisions beyond ``limit`` that no pod has. Raises KubeError."""
        for each in beyond_limit(history, in_use, limit):
            metadata = each.metadata
            try:
                await self._client.delete(CONTROLLER_REVISIONS, metadata.name, metadata.namespace, uid=metadata.uid)
            except ApiStatusError as error:
                if not (error.is_not_found or error.is_conflict):
                    raise

    async def _create(
        self, owner: O, template: Document, number: int, collisions: int
    ) -> tuple[ControllerRevision, int]:
        """The revision, and how many names were taken by others."""
        while True:
            body = new_revision(self._kind, owner, template, number, collisions, self._hash_label)
            try:
                created = await self._client.create(CONTROLLER_REVISIONS, body, owner.metadata.namespace)
            except ApiStatusError as error:
                if not error.is_already_exists:
                    raise
                existing = await self._existing(owner, body)
                if existing is not None:
                    return existing, collisions
                if collisions >= _MOST_COLLISIONS:
                    raise
                collisions += 1
            else:
                return created, collisions

    async def _existing(self, owner: O, body: Document) -> ControllerRevision | None:
        """The revision of that name, if it is this one already."""
        found = await self._client.get(CONTROLLER_REVISIONS, body["metadata"]["name"], owner.metadata.namespace)
        reference = controller_of(found.metadata)
        is_ours = reference is not None and reference.uid == owner.metadata.uid
        return found if is_ours and same(without_nulls(found.data), body["data"]) else None

    async def _renumber(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        metadata = revision.metadata
        body = {"metadata": {"uid": metadata.uid}, "revision": number}
        return await self._client.patch(CONTROLLER_REVISIONS, metadata.name, body, PatchType.MERGE, metadata.namespace)
