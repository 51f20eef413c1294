"""What a node had for pods before its resources were amplified."""

from __future__ import annotations

from koordinator.api.annotations import RAW_ALLOCATABLE
from koordinator.api.codec import DecodeError, decode
from koordinator.api.node import Node
from koordinator.api.pod import ResourceList


def raw_allocatable(node: Node) -> ResourceList:
    """Allocatable, with the values from before amplification where the node's annotation has them.

    The webhook refuses an annotation that cannot be read, so that one is nearly as good as none."""
    allocatable = node.status.allocatable
    text = node.metadata.annotations.get(RAW_ALLOCATABLE)
    if not text:
        return allocatable
    try:
        return {**allocatable, **decode(text, ResourceList)}
    except DecodeError:
        return allocatable
