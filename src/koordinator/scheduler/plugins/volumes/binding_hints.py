"""What may help a pod that VolumeBinding has rejected nodes for."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from koordinator.api.volume import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.volumes.attached_volumes import migrated_plugins
from koordinator.scheduler.plugins.volumes.finder import volume_limit
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes
from koordinator.scheduler.plugins.volumes.volume_lists import class_of_claim

_CHANGING: Final = (STORAGE_CLASSES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, CSI_NODES, CSI_STORAGE_CAPACITIES)
EVENTS_TO_REGISTER: Final = frozenset(
    {
        *(f"{kind.name}/{action}" for kind in _CHANGING for action in ("Add", "Update")),
        f"{CSI_DRIVERS.name}/Update",
        EventKind.NODE_ADD,
        EventKind.NODE_LABEL,
        EventKind.POD_DELETE,
    }
)


def queueing_hint(index: VolumeIndex, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
    """Whether ``event`` may be what the pod waits for."""
    if event.kind == EventKind.POD_DELETE:
        # A pod that was not bound after all gives back the volumes that were kept for it.
        return isinstance(event.old, PodInfo) and event.old.uid == index.reverted_by
    old, new = event.old, event.new
    match new:
        case PersistentVolumeClaim():
            return uses(volumes, new)
        case StorageClass() if isinstance(old, StorageClass):
            return old.allowed_topologies != new.allowed_topologies
        case CSINode() if isinstance(old, CSINode):
            return migrated_plugins(old) != migrated_plugins(new)
        case CSIStorageCapacity() if isinstance(old, CSIStorageCapacity):
            return _grew(old, new)
        case CSIDriver() if isinstance(old, CSIDriver):
            return _stopped_counting(old, new) and _relies_on(index, pod, volumes, new.metadata.name)
        case _:
            return True


def uses(volumes: PodVolumes, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is one of the pod's."""
    return any(use.key == claim.metadata.key for use in volumes.claims)


def _grew(old: CSIStorageCapacity, new: CSIStorageCapacity) -> bool:
    before, after = volume_limit(old), volume_limit(new)
    return after is not None and (before is None or after.value > before.value)


def _stopped_counting(old: CSIDriver, new: CSIDriver) -> bool:
    return bool(old.spec.storage_capacity) and not new.spec.storage_capacity


def _relies_on(index: VolumeIndex, pod: PodInfo, volumes: PodVolumes, driver: str) -> bool:
    """Upstream asks about volumes in the pod's spec alone, but it is for claims that capacity is counted."""
    if any(volume.csi is not None and volume.csi.driver == driver for volume in pod.pod.spec.volumes):
        return True
    claims = (index.claims.get(use.key) for use in volumes.claims)
    classes = (index.storage_class(class_of_claim(claim)) for claim in claims if claim is not None)
    return any(storage_class is not None and storage_class.provisioner == driver for storage_class in classes)
