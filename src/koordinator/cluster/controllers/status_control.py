"""Writes the status of workloads."""

from __future__ import annotations

from typing import TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, WireStruct
from koordinator.cluster.controllers.conditions import status_patch
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

O = TypeVar("O", bound=Object)  # noqa: E741


async def write_status(client: Client, kind: Kind[O], owner: O, old: WireStruct, new: WireStruct) -> O | None:
    """Write what differs between the status of ``owner`` and the new one; returns the owner as it is then. None if
    nothing differs, or if the owner was deleted meanwhile, and perhaps created again, which is another. Raises
    KubeError."""
    patch = status_patch(old, new)
    if patch is None:
        return None
    metadata = owner.metadata
    patch["metadata"] = {"uid": metadata.uid}
    try:
        return await client.patch(kind, metadata.name, patch, PatchType.MERGE, metadata.namespace, subresource="status")
    except ApiStatusError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
        return None
