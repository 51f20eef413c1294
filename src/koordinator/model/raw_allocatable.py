"""What a node had for pods before its resources were amplified."""

from __future__ import annotations

from koordinator.api.annotations import RAW_ALLOCATABLE
from koordinator.api.codec import decode_or
from koordinator.api.node import Node
from koordinator.api.pod import ResourceList


def raw_allocatable(node: Node) -> ResourceList:
    """Allocatable, with the values from before amplification where the node's annotation has them.

    The webhook refuses an annotation that cannot be read, so that one is nearly as good as none."""
    raw = decode_or(node.metadata.annotations.get(RAW_ALLOCATABLE), ResourceList, None)
    return node.status.allocatable if raw is None else {**node.status.allocatable, **raw}
