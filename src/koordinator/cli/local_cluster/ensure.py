"""Objects that a local cluster is given: created where they are missing, and otherwise brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.api.kinds import Kind
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType


async def ensure(
    client: Client, kind: Kind[Any], document: dict[str, Any], *, namespace: str = "", update: Sequence[str] = ()
) -> None:
    """Create ``document``; of one that is there already, the fields ``update`` are replaced. Raises KubeError."""
    body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    try:
        await client.create(kind, body, namespace)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
        if update:
            changed = {field: document[field] for field in update}
            await client.patch(kind, document["metadata"]["name"], changed, PatchType.MERGE, namespace)
