"""Carries out what an owner claims: it adopts children that nothing controls, and releases those that it no longer
selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from koordinator.api.document import Document
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.cluster.controllers.ownership import Claims, adoption_patch, release_patch
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

C = TypeVar("C", bound=Object)
O = TypeVar("O", bound=Object)  # noqa: E741


class Adoption(Generic[O, C]):
    """For owners of one kind and children of another."""

    def __init__(
        self,
        client: Client,
        owner_kind: Kind[O],
        child_kind: Kind[C],
        *,
        finalizers: Sequence[str] = (),
    ) -> None:
        """``finalizers`` are given to children that are adopted."""
        self._client = client
        self._owner_kind = owner_kind
        self._child_kind = child_kind
        self._finalizers = finalizers

    async def claim(self, owner: O, claims: Claims[C]) -> list[C]:
        """Adopt and release children; return those that the owner has then. Raises KubeError."""
        owned = list(claims.owned)
        if claims.adopted and await self._is_there(owner):
            for child in claims.adopted:
                patch = adoption_patch(self._owner_kind, owner, child, self._finalizers)
                adopted = await self._patch(child, patch)
                if adopted is not None:
                    owned.append(adopted)
        for child in claims.released:
            await self._patch(child, release_patch(owner, child))
        return owned

    async def _is_there(self, owner: O) -> bool:
        """Whether the server has the owner still, as the cache may not know of its deletion yet."""
        metadata = owner.metadata
        try:
            fresh = await self._client.get(self._owner_kind, metadata.name, metadata.namespace)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return False
        return fresh.metadata.uid == metadata.uid and fresh.metadata.deletion_timestamp is None

    async def _patch(self, child: C, patch: Document) -> C | None:
        """None if that child is gone, or if another controller has taken it."""
        metadata = child.metadata
        try:
            return await self._client.patch(
                self._child_kind, metadata.name, patch, PatchType.STRATEGIC, metadata.namespace
            )
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict or error.is_invalid):
                raise
            return None
