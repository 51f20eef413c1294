"""What becomes of a volume: available, bound, released, given back or deleted. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from koordinator.api.volume import BOUND_BY_CONTROLLER, PROVISIONED_BY, PersistentVolume, PersistentVolumeClaim
from koordinator.cluster.controllers.persistent_volume.claim_plan import Notice
from koordinator.cluster.controllers.persistent_volume.matching import AVAILABLE

BOUND: Final = "Bound"
RELEASED: Final = "Released"
FAILED: Final = "Failed"
_DELETE: Final = "Delete"
_TEMPORARY: Final = re.compile(r"/tmp/.+")  # noqa: S108  which directories Kubernetes deletes
_IN_TREE: Final = "kubernetes.io/"


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What is to be written, in this order. Nothing else changes."""

    unbind: bool = False
    """The volume loses its claim; one that was made for a claim by name stays kept for that name."""
    phase: str = ""
    reclaim: bool = False
    """The claim is gone: the reclaim policy is carried out."""


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumePlan:
    """``claim`` is the one that the volume refers to, with the same UID; None if it is gone."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return VolumePlan(phase=AVAILABLE)
    if claim is None:
        return _released(volume)
    if not claim.spec.volume_name:
        # The claim is bound next.
        return VolumePlan()
    if claim.spec.volume_name == volume.metadata.name:
        return VolumePlan(phase=BOUND)
    if PROVISIONED_BY in volume.metadata.annotations and volume.spec.persistent_volume_reclaim_policy == _DELETE:
        return _released(volume)
    return VolumePlan(unbind=True, phase=AVAILABLE)


def _released(volume: PersistentVolume) -> VolumePlan:
    """A volume whose reclaim has failed keeps its phase, for all to see."""
    return VolumePlan(phase="" if volume.status.phase == FAILED else RELEASED, reclaim=True)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """How a released volume is reclaimed; nothing is done about one that is retained, or that others delete."""

    delete: bool = False
    failure: Notice | None = None


def plan_reclaim(volume: PersistentVolume) -> Reclaim:
    """Nothing here has the volumes themselves: what has no data of its own is deleted, the rest fails as it does in a
    cluster without a plugin for it."""
    match volume.spec.persistent_volume_reclaim_policy:
        case "Retain":
            return Reclaim()
        case "Recycle":
            text = "No recycler plugin found for the volume!"
            return Reclaim(failure=Notice("Warning", "VolumeFailedRecycle", text))
        case "Delete":
            return _deleted(volume)
        case _:
            text = "Volume has unrecognized PersistentVolumeReclaimPolicy"
            return Reclaim(failure=Notice("Warning", "VolumeUnknownReclaimPolicy", text))


def _deleted(volume: PersistentVolume) -> Reclaim:
    provisioner = volume.metadata.annotations.get(PROVISIONED_BY, "")
    if provisioner and not provisioner.startswith(_IN_TREE):
        return Reclaim()
    path = volume.spec.host_path.path if volume.spec.host_path is not None else None
    if path is not None and _TEMPORARY.match(path):
        return Reclaim(delete=True)
    if path is not None:
        text = f"host_path deleter only supports /tmp/.+ but received provided {path}"
    else:
        name = volume.metadata.name
        text = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
    return Reclaim(failure=Notice("Warning", "VolumeFailedDelete", text))


def unbinding(volume: PersistentVolume) -> tuple[dict[str, None], dict[str, str] | None]:
    """The annotations and the claimRef, as parts of a merge patch, of a volume that loses its claim."""
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        return {BOUND_BY_CONTROLLER: None}, None
    return {}, {"uid": ""}
