"""Which volume suits a claim. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, class_of_claim, class_of_volume
from koordinator.cluster.controllers.ownership import usable_selector
from koordinator.model.label_selector import CompiledSelector

STORAGE = "storage"
AVAILABLE = "Available"
_FILESYSTEM = "Filesystem"


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is kept for this claim, or bound to it."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    if reference is None or (reference.namespace, reference.name) != (metadata.namespace, metadata.name):
        return False
    return reference.uid in ("", metadata.uid)


def best_match(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, only_kept: bool = False
) -> PersistentVolume | None:
    """The volume to bind the claim to: of those with the fewest access modes one that is kept for it, or else the
    smallest; None if there is none.

    ``only_kept``: it has to be one that is kept for the claim, since the scheduler chooses among the others.
    """
    selector = usable_selector(claim.spec.selector) if claim.spec.selector is not None else None
    suitable = (volume for volume in volumes if _suits(claim, volume, selector, only_kept))
    return min(suitable, key=lambda volume: _rank(claim, volume), default=None)


def _rank(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[int, bool, int, str]:
    return (
        len(volume.spec.access_modes),
        not is_bound_to(volume, claim),
        _size(volume),
        volume.metadata.name,
    )


def _suits(
    claim: PersistentVolumeClaim, volume: PersistentVolume, selector: CompiledSelector | None, only_kept: bool
) -> bool:
    if _size(volume) < requested(claim) or _mode(volume) != _mode(claim) or _lacks_access(claim, volume):
        return False
    if volume.metadata.deletion_timestamp is not None:
        return False
    if volume.spec.claim_ref is not None:
        return is_bound_to(volume, claim)
    if only_kept or volume.status.phase != AVAILABLE or class_of_volume(volume) != class_of_claim(claim):
        return False
    return selector is None or selector.matches(volume.metadata.labels)


def mismatch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Why the claim cannot have the volume that it names; empty if it can."""
    if volume.metadata.deletion_timestamp is not None:
        return "the volume is marked for deletion"
    if _size(volume) < requested(claim):
        return "requested PV is too small"
    if class_of_volume(volume) != class_of_claim(claim):
        return "storageClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    return "incompatible accessMode" if _lacks_access(claim, volume) else ""


def requested(claim: PersistentVolumeClaim) -> int:
    """The requested size in billionths of a byte, as ``Quantity.nanos``."""
    amount = claim.spec.resources.requests.get(STORAGE)
    return amount.nanos if amount is not None else 0


def _size(volume: PersistentVolume) -> int:
    amount = volume.spec.capacity.get(STORAGE)
    return amount.nanos if amount is not None else 0


def _mode(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    return obj.spec.volume_mode or _FILESYSTEM


def _lacks_access(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    return not set(claim.spec.access_modes) <= set(volume.spec.access_modes)
