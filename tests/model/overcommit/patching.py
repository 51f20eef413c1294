"""What an API server makes of the patches: the node or topology as it is stored afterwards."""

from __future__ import annotations

from typing import Any, cast

import jsonpatch

from koordinator.api.codec import convert, to_document
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology


def merged(document: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched_node(node: Node, patch: dict[str, Any] | None) -> Node:
    return node if patch is None else convert(merged(to_document(node), patch), Node)


def patched_topology(topology: NodeResourceTopology, operations: tuple[dict[str, Any], ...]) -> NodeResourceTopology:
    stored = cast("dict[str, Any]", jsonpatch.apply_patch(to_document(topology), list(operations)))
    return convert(stored, NodeResourceTopology)
