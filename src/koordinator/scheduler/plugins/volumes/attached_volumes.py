"""The CSI volumes of each node: those that its pods use, and those that are attached for whatever reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from koordinator.api.volume import (
    MIGRATED_PLUGINS,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    class_of_claim,
)
from koordinator.base.groups import Groups
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.volumes.migration import (
    DRIVERS,
    NOT_COUNTED,
    PORTWORX,
    CsiVolume,
    TranslationError,
    translate,
)
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes

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


class PlacedPods:
    """Assumed pods included. ``add`` and ``remove`` may be called with the same pod again."""

    def __init__(self) -> None:
        self._on_row = Groups[int, str, PodVolumes]()
        self._users = Groups[str, str, int]()
        self.in_tree = 0
        """How many of the pods name a volume of an in-tree plugin themselves."""

    def add(self, row: int, volumes: PodVolumes) -> bool:
        """The pod is on ``row``; returns whether that is news."""
        if volumes.uid in self._on_row.of(row):
            return False
        self._on_row.put(row, volumes.uid, volumes)
        self.in_tree += bool(volumes.in_tree)
        for use in volumes.claims:
            self._users.put(use.key, volumes.uid, row)
        return True

    def remove(self, row: int, uid: str) -> bool:
        """The pod is not on ``row`` any more; returns whether it was."""
        volumes = self._on_row.take(row, uid)
        if volumes is None:
            return False
        self.in_tree -= bool(volumes.in_tree)
        for use in volumes.claims:
            self._users.take(use.key, uid)
        return True

    def remove_row(self, row: int) -> bool:
        """The row is free; returns whether there were pods with volumes."""
        uids = list(self._on_row.of(row))
        for uid in uids:
            self.remove(row, uid)
        return bool(uids)

    def on_row(self, row: int) -> Mapping[str, PodVolumes]:
        """By uid."""
        return self._on_row.of(row)

    def users(self, key: str) -> Mapping[str, int]:
        """uid -> row of the pods that use a claim."""
        return self._users.of(key)

    def rows(self) -> Iterable[int]:
        """All rows that have such pods."""
        return tuple(self._on_row)


Handle = tuple[str, str]
"""(driver, handle): what makes a volume one."""


@dataclass(slots=True)
class RowVolumes:
    """What counts on a row."""

    used: set[Handle] = field(default_factory=set)
    """By pods."""
    counts: Counter[str] = field(default_factory=Counter)
    """By driver, with what is attached and used by no pod."""


_NOTHING: Final = RowVolumes()
"""Of the many rows without volumes; never changed."""


class AttachedVolumes:
    """Computed for a row when it is needed; what an event makes out of date is dropped, and its row touched."""

    def __init__(self, view: ClusterView, placed: PlacedPods, csi_nodes: dict[int, CSINode]) -> None:
        self._view = view
        self._placed = placed
        self._csi_nodes = csi_nodes
        self._rows: dict[int, RowVolumes] = {}
        self._claims_of_volume = Groups[str, str, None]()
        self._volumes_of_handle: Counter[Handle] = Counter()
        self._on_node = Groups[str, str, VolumeAttachment]()
        self._nodes_of_volume = Groups[str, str, str]()

    def of_row(self, row: int) -> RowVolumes:
        """What counts on ``row``."""
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = self._count(row)
        return known

    def forget(self, row: int) -> None:
        """Pods of ``row``, or what its CSI drivers do, have changed."""
        self._rows.pop(row, None)

    def is_shared(self, key: str, claim: PersistentVolumeClaim, volume: CsiVolume) -> bool:
        """Whether pods that are on nodes may use the volume of the claim already, by this claim or another."""
        if self._placed.users(key):
            return True
        if len(self._claims_of_volume.of(claim.spec.volume_name)) > 1:
            return True
        return self._volumes_of_handle[volume.driver, volume.handle] > 1 or bool(volume.plugin and self._placed.in_tree)

    # Events.

    def claim_changed(self, key: str, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        before, after = (each.spec.volume_name if each is not None else "" for each in (old, new))
        if before != after:
            self._claims_of_volume.take(before, key)
            if after:
                self._claims_of_volume.put(after, key, None)
        if before != after or _resolved(self._view, old) != _resolved(self._view, new):
            self._touch_users(key)

    def volume_changed(self, name: str, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        before, after = (csi_of_volume(each) if each is not None else None for each in (old, new))
        if before == after:
            return
        handles = self._volumes_of_handle
        handles.update([(after.driver, after.handle)] if after is not None else ())
        if before is not None:
            handles[before.driver, before.handle] -= 1
            if not handles[before.driver, before.handle]:
                del handles[before.driver, before.handle]
        for key in self._claims_of_volume.of(name):
            self._touch_users(key)
        self._touch_nodes(self._nodes_of_volume.of(name).values())

    def class_changed(self) -> None:
        for row in self._placed.rows():
            self._touch(row)

    def attachment_changed(self, key: str, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        for each in (old, new):
            if each is None or each.spec.source.persistent_volume_name is None:
                continue
            node, volume = each.spec.node_name, each.spec.source.persistent_volume_name
            if each is new:
                self._on_node.put(node, key, each)
                self._nodes_of_volume.put(volume, key, node)
            else:
                self._on_node.take(node, key)
                self._nodes_of_volume.take(volume, key)
            self._touch_nodes((node,))

    def _touch_users(self, key: str) -> None:
        for row in set(self._placed.users(key).values()):
            self._touch(row)

    def _touch_nodes(self, names: Iterable[str]) -> None:
        for name in set(names):
            row = self._view.columns.row_of.get(name)
            if row is not None:
                self._touch(row)

    def _touch(self, row: int) -> None:
        self.forget(row)
        self._view.columns.touch(row, Aspect.PODS)

    # Counting.

    def _count(self, row: int) -> RowVolumes:
        name = self._view.columns.names[row]
        if not self._placed.on_row(row) and name not in self._on_node:
            return _NOTHING
        found, node = RowVolumes(), self._csi_nodes.get(row)
        for volumes in self._placed.on_row(row).values():
            for volume in (*self._of_claims(volumes), *_named(volumes)):
                if counts_on(volume, node):
                    found.used.add((volume.driver, volume.handle))
        found.counts.update(driver for driver, _ in found.used)
        attached = {handle for each in self._on_node.of(name).values() if (handle := self._handle(each))}
        found.counts.update(driver for driver, _ in attached - found.used)
        return found

    def _of_claims(self, volumes: PodVolumes) -> Iterable[CsiVolume]:
        for use in volumes.claims:
            claim = self._view.objects_of(PERSISTENT_VOLUME_CLAIMS).get(use.key)
            if claim is None or (use.ephemeral and not volumes.owns(claim)):
                continue
            volume = csi_of_claim(self._view, claim)
            if volume is not None:
                yield volume

    def _handle(self, attachment: VolumeAttachment) -> Handle | None:
        name = attachment.spec.source.persistent_volume_name
        volume: PersistentVolume | None = self._view.objects_of(PERSISTENT_VOLUMES).get(name or "")
        if not attachment.spec.attacher or volume is None or volume.spec.csi is None:
            return None
        return attachment.spec.attacher, volume.spec.csi.volume_handle


def _resolved(view: ClusterView, claim: PersistentVolumeClaim | None) -> CsiVolume | None:
    return csi_of_claim(view, claim) if claim is not None else None


def _named(volumes: PodVolumes) -> Iterable[CsiVolume]:
    """The in-tree volumes that a pod names itself."""
    for source in volumes.in_tree:
        try:
            volume = translate(source, {})
        except TranslationError:
            # The pod is there already, whatever its volume may be; it takes nothing that we could count.
            continue
        if volume is not None:
            yield volume
