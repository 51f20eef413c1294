"""The objects that have the name of this node and that the agent keeps current: made where they are not there, patched
where they say something else, and gone with their Node."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from koordinator.api.kinds import Kind
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

logger = logging.getLogger(__name__)

Document = dict[str, Any]


def node_object(
    kind: Kind[Any], node: Node, labels: Mapping[str, str | None], annotations: Mapping[str, str | None], **rest: Any
) -> Document:
    """The object to create; labels and annotations that are None must be absent."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": node.metadata.name,
            "labels": {name: text for name, text in labels.items() if text is not None},
            "annotations": {name: text for name, text in annotations.items() if text is not None},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        **rest,
    }


def differing(wanted: Mapping[str, str | None], present: Mapping[str, str]) -> Document:
    """What a merge patch changes in labels or annotations; None for one that must be absent and is not."""
    return {name: text for name, text in wanted.items() if present.get(name) != text}


class NodeObject:
    """Writes the object of one kind. It is another one's to say what the object should be."""

    def __init__(self, client: Client, kind: Kind[Any]) -> None:
        self._client = client
        self._kind = kind

    async def create(self, document: Document) -> None:
        """Errors are those of the API server, here and below."""
        try:
            await self._client.create(self._kind, document)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
        else:
            logger.info("the %s is made", self._kind.name)

    async def patch(self, present: ObjectMeta, patch: Document | None) -> None:
        """Merge the patch into the object, if there is anything to change in this version of it."""
        if patch is None:
            return
        metadata = patch.get("metadata", {})
        names = [name for part in ("annotations", "labels") for name in metadata.get(part, {})]
        parts = ", ".join(names + [part for part in patch if part != "metadata"])
        logger.info("the %s is brought up to date: %s", self._kind.name, parts)
        try:
            await self._client.patch(self._kind, present.name, patch, PatchType.MERGE)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            logger.debug("the %s has changed meanwhile: %s", self._kind.name, error)
