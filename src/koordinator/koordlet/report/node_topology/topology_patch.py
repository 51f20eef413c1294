"""What to write into a NodeResourceTopology so that it says what is wanted and keeps what others wrote; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordinator.api.codec import DecodeError, decode_any, encode, to_document
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.labels import MANAGED_BY
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology, Zone
from koordinator.koordlet.report.node_object import Document, differing, node_object
from koordinator.koordlet.report.node_topology.description import NodeTopology
from koordinator.koordlet.report.node_topology.zones import OWN_RESOURCES, merged_zones

_MANAGER: Final = "Koordinator"


def new_topology(node: Node, wanted: NodeTopology) -> Document:
    """The object to create."""
    return node_object(
        NODE_RESOURCE_TOPOLOGIES,
        node,
        {MANAGED_BY: _MANAGER, **wanted.labels},
        {name: _text(document) for name, document in wanted.annotations.items()},
        topologyPolicies=[wanted.topology_policy],
        zones=to_document(wanted.zones),
    )


def topology_patch(present: NodeResourceTopology, wanted: NodeTopology) -> Document | None:
    """A merge patch; None if the object says what is wanted already.

    Annotations are compared as what they mean, not as texts. Zones are a list, which a patch replaces whole: then the
    patch is for this version of the object alone, and one that comes too late is refused.
    """
    annotations = {
        name: _text(document)
        for name, document in wanted.annotations.items()
        if not _says(present.metadata.annotations.get(name), document)
    }
    metadata: Document = {}
    patch: Document = {}
    if annotations:
        metadata["annotations"] = annotations
    if labels := differing(wanted.labels, present.metadata.labels):
        metadata["labels"] = labels
    if present.topology_policies != [wanted.topology_policy]:
        patch["topologyPolicies"] = [wanted.topology_policy]
    if _own_parts(present.zones) != _own_parts(wanted.zones):
        patch["zones"] = to_document(merged_zones(present.zones, wanted.zones))
        metadata["resourceVersion"] = present.metadata.resource_version
    if metadata:
        patch["metadata"] = metadata
    return patch or None


def _own_parts(zones: Sequence[Zone]) -> list[tuple[str, str, Document]]:
    return [
        (
            zone.name,
            zone.type,
            {resource.name: resource.allocatable for resource in zone.resources if resource.name in OWN_RESOURCES},
        )
        for zone in zones
    ]


def _says(text: str | None, document: Any) -> bool:
    if text is None:
        return False
    try:
        return bool(decode_any(text) == document)
    except DecodeError:
        return False


def _text(document: Any) -> str:
    return encode(document).decode()
