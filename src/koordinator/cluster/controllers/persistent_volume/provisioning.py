"""The volumes that the simulated provisioner makes: they hold nothing, and every node can use them. Pure."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS
from koordinator.api.quantity import Quantity
from koordinator.api.volume import (
    DEFAULT_CLASS,
    PROVISIONED_BY,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
)
from koordinator.cluster.controllers.persistent_volume.claim_plan import is_delayed
from koordinator.cluster.controllers.persistent_volume.matching import STORAGE, requested
from koordinator.cluster.controllers.persistent_volume.volume_plan import BOUND

PROVISIONER: Final = "simulated.koordinator.sh"
SIMULATED_CLASS: Final[Document] = {
    "metadata": {"name": "simulated", "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
    "allowVolumeExpansion": True,
}
"""The storage class of a local cluster."""


def wants_volume(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Whether the simulated provisioner has to make a volume for the claim now."""
    if storage_class is None or storage_class.provisioner != PROVISIONER:
        return False
    if claim.spec.volume_name or claim.spec.selector is not None or claim.metadata.deletion_timestamp is not None:
        return False
    return not is_delayed(storage_class) or SELECTED_NODE in claim.metadata.annotations


def volume_name(claim: PersistentVolumeClaim) -> str:
    """The same each time, so that no claim gets two volumes."""
    return f"pvc-{claim.metadata.uid}"


def new_volume(claim: PersistentVolumeClaim, storage_class: StorageClass) -> Document:
    """The volume that is made for the claim by the provisioner of the class."""
    metadata, spec = claim.metadata, claim.spec
    name, driver = volume_name(claim), storage_class.provisioner
    return {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: driver}},
        "spec": {
            "capacity": {STORAGE: str(spec.resources.requests[STORAGE])} if STORAGE in spec.resources.requests else {},
            "accessModes": list(spec.access_modes),
            "volumeMode": spec.volume_mode or "Filesystem",
            "storageClassName": class_of_claim(claim),
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or "Delete",
            "csi": {"driver": driver, "volumeHandle": name},
            "claimRef": {
                "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
                "kind": PERSISTENT_VOLUME_CLAIMS.name,
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            },
        },
    }


def growth(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> str:
    """The size that a bound claim and its simulated volume have to grow to; empty if they are large enough."""
    if volume is None or volume.metadata.annotations.get(PROVISIONED_BY) != PROVISIONER:
        return ""
    if claim.status.phase != BOUND:
        return ""
    has = min((amount.nanos for amount in _sizes(claim, volume)), default=0)
    return str(claim.spec.resources.requests[STORAGE]) if requested(claim) > has else ""


def _sizes(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Quantity]:
    return [amounts[STORAGE] for amounts in (claim.status.capacity, volume.spec.capacity) if STORAGE in amounts]
