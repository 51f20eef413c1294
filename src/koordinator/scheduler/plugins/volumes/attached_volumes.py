"""The CSI volumes of each node: those that its pods use, and those that are attached for whatever reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from koordinator.api.volume import CSINode, PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.volumes.csi_volumes import counts_on, csi_of_claim, csi_of_volume
from koordinator.scheduler.plugins.volumes.migration import CsiVolume, TranslationError, translate
from koordinator.scheduler.plugins.volumes.placed_pods import PlacedPods
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes

Handle = tuple[str, str]
"""(driver, handle): what makes a volume one."""
_UNRESOLVED: Final = CsiVolume("", "")


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
    """Computed for a row when it is asked for; what an event makes out of date is dropped, and its row touched."""

    def __init__(self, view: ClusterView, placed: PlacedPods, csi_nodes: dict[int, CSINode]) -> None:
        self._view = view
        self._placed = placed
        self._csi_nodes = csi_nodes
        self._rows: dict[int, RowVolumes] = {}
        self._of_claim: dict[str, CsiVolume | None] = {}
        self._claims_of_volume: dict[str, set[str]] = {}
        self._volumes_of_handle: Counter[Handle] = Counter()
        self._on_node: dict[str, dict[str, VolumeAttachment]] = {}
        self._nodes_of_volume: dict[str, dict[str, str]] = {}

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
        if len(self._claims_of_volume.get(claim.spec.volume_name, ())) > 1:
            return True
        return self._volumes_of_handle[volume.driver, volume.handle] > 1 or bool(volume.plugin and self._placed.in_tree)

    # Events.

    def claim_changed(self, key: str, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        before, after = (each.spec.volume_name if each is not None else "" for each in (old, new))
        if before != after:
            claims = self._claims_of_volume.get(before)
            if claims is not None:
                claims.discard(key)
                if not claims:
                    del self._claims_of_volume[before]
            if after:
                self._claims_of_volume.setdefault(after, set()).add(key)
        self._resolve_again(key)

    def volume_changed(self, name: str, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        before, after = (csi_of_volume(each) if each is not None else None for each in (old, new))
        if before == after:
            return
        if before is not None:
            handle = before.driver, before.handle
            self._volumes_of_handle[handle] -= 1
            if not self._volumes_of_handle[handle]:
                del self._volumes_of_handle[handle]
        if after is not None:
            self._volumes_of_handle[after.driver, after.handle] += 1
        for key in self._claims_of_volume.get(name, ()):
            self._resolve_again(key)
        self._touch_nodes(self._nodes_of_volume.get(name, {}).values())

    def class_changed(self) -> None:
        self._of_claim.clear()
        for row in self._placed.rows():
            self._touch(row)

    def attachment_changed(self, key: str, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        for each in (old, new):
            if each is None or each.spec.source.persistent_volume_name is None:
                continue
            node, volume = each.spec.node_name, each.spec.source.persistent_volume_name
            attachments = self._on_node.setdefault(node, {})
            nodes = self._nodes_of_volume.setdefault(volume, {})
            if each is new:
                attachments[key], nodes[key] = each, node
            else:
                attachments.pop(key, None)
                nodes.pop(key, None)
            if not attachments:
                del self._on_node[node]
            if not nodes:
                del self._nodes_of_volume[volume]
            self._touch_nodes((node,))

    def _resolve_again(self, key: str) -> None:
        before = self._of_claim.pop(key, _UNRESOLVED)
        users = self._placed.users(key)
        if users and self._resolve(key) != before:
            for row in set(users.values()):
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
        attached = {handle for each in self._on_node.get(name, {}).values() if (handle := self._handle(each))}
        found.counts.update(driver for driver, _ in attached - found.used)
        return found

    def _of_claims(self, volumes: PodVolumes) -> Iterable[CsiVolume]:
        for use in volumes.claims:
            claim = self._view.objects_of(PERSISTENT_VOLUME_CLAIMS).get(use.key)
            if claim is None or (use.ephemeral and not volumes.owns(claim)):
                continue
            volume = self._resolve(use.key)
            if volume is not None:
                yield volume

    def _resolve(self, key: str) -> CsiVolume | None:
        known = self._of_claim.get(key, _UNRESOLVED)
        if known is _UNRESOLVED:
            claim = self._view.objects_of(PERSISTENT_VOLUME_CLAIMS).get(key)
            known = csi_of_claim(self._view, claim) if claim is not None else None
            self._of_claim[key] = known
        return known

    def _handle(self, attachment: VolumeAttachment) -> Handle | None:
        name = attachment.spec.source.persistent_volume_name
        volume: PersistentVolume | None = self._view.objects_of(PERSISTENT_VOLUMES).get(name or "")
        if not attachment.spec.attacher or volume is None or volume.spec.csi is None:
            return None
        return attachment.spec.attacher, volume.spec.csi.volume_handle


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
