"""How volumes and claims look once it is decided that they belong together, and the patches that make it so."""

from __future__ import annotations

from typing import Any

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.meta import ObjectReference
from koordinator.api.volume import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim


def bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume, reserved for the claim; the same object when it is already."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    if reference is not None and reference.uid == metadata.uid:
        return volume
    spec = msgspec.structs.replace(
        volume.spec,
        claim_ref=ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        ),
    )
    if reference is not None:
        return msgspec.structs.replace(volume, spec=spec)
    annotations = {**volume.metadata.annotations}
    annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
    return msgspec.structs.replace(
        volume, spec=spec, metadata=msgspec.structs.replace(volume.metadata, annotations=annotations)
    )


def volume_patch(volume: PersistentVolume) -> dict[str, Any]:
    """Writes what ``bound_to`` made of this version of the volume."""
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: volume.metadata.annotations[BOUND_BY_CONTROLLER]}
    return {"metadata": metadata, "spec": {"claimRef": to_document(volume.spec.claim_ref)}}


def for_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """The claim, asking for a volume for the node; the same object when it does already."""
    if claim.metadata.annotations.get(SELECTED_NODE) == node_name:
        return claim
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def claim_patch(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Writes what ``for_node`` made of this version of the claim."""
    return {
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]},
        }
    }
