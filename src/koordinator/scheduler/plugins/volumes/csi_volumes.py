"""Claims as the volumes that a CSI driver attaches to a node (pkg/scheduler/framework/plugins/nodevolumelimits)."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import PERSISTENT_VOLUMES, STORAGE_CLASSES
from koordinator.api.volume import MIGRATED_PLUGINS, CSINode, PersistentVolume, PersistentVolumeClaim
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.volumes.migration import (
    DRIVERS,
    NOT_COUNTED,
    PORTWORX,
    CsiVolume,
    TranslationError,
    translate,
)
from koordinator.scheduler.plugins.volumes.volume_lists import class_of_claim

_NOT_MADE_YET: Final = "\0"
"""Begins the handle that stands for the volume of a claim that has none; no real handle does."""


def csi_of_volume(volume: PersistentVolume) -> CsiVolume | None:
    """None for a volume that no CSI driver cares for."""
    if volume.spec.csi is not None:
        return CsiVolume(volume.spec.csi.driver, volume.spec.csi.volume_handle)
    try:
        return translate(volume.spec, volume.metadata.labels)
    except TranslationError:
        # Upstream does not count it either.
        return None


def csi_of_claim(view: ClusterView, claim: PersistentVolumeClaim) -> CsiVolume | None:
    """The volume that the claim has or, by its class, will have; None when that does not count."""
    name = claim.spec.volume_name
    volume = view.objects_of(PERSISTENT_VOLUMES).get(name) if name else None
    found = csi_of_volume(volume) if volume is not None else _by_class(view, claim)
    return found if found is not None and found.driver and found.handle else None


def _by_class(view: ClusterView, claim: PersistentVolumeClaim) -> CsiVolume | None:
    storage_class = view.objects_of(STORAGE_CLASSES).get(class_of_claim(claim))
    if storage_class is None:
        return None
    provisioner, handle = storage_class.provisioner, _NOT_MADE_YET + claim.metadata.key
    if provisioner in NOT_COUNTED:
        return None
    if provisioner in DRIVERS:
        return CsiVolume(DRIVERS[provisioner], handle, provisioner)
    return CsiVolume(provisioner, handle)


def migrated_plugins(node: CSINode | None) -> frozenset[str]:
    """The in-tree plugins whose work CSI drivers do on the node."""
    text = node.metadata.annotations.get(MIGRATED_PLUGINS, "") if node is not None else ""
    return frozenset(text.split(",")) if text else frozenset()


def counts_on(volume: CsiVolume, node: CSINode | None) -> bool:
    """Whether a driver of the node has to attach the volume; for most in-tree plugins it does wherever there is one."""
    if not volume.plugin:
        return True
    return node is not None and (volume.plugin != PORTWORX or PORTWORX in migrated_plugins(node))


def limits_of(node: CSINode) -> dict[str, int]:
    """Driver -> how many volumes it can attach to the node; without those that do not say."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
