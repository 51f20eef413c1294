"""NodeVolumeLimits: no node is given more volumes of a CSI driver than the driver can attach there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from koordinator.api.kinds import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from koordinator.api.volume import CSINode, PersistentVolumeClaim
from koordinator.scheduler.engine.columns import AnyAspect, Aspect
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import FEASIBLE, PluginError, Reason
from koordinator.scheduler.engine.plugin_forms import RowFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.plugins.volumes.attached_volumes import counts_on, csi_of_claim, limits_of
from koordinator.scheduler.plugins.volumes.claims import claim_not_found
from koordinator.scheduler.plugins.volumes.index import CSI_NODE, VolumePlugin
from koordinator.scheduler.plugins.volumes.migration import CsiVolume, TranslationError, translate
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, known_volumes

_TOO_MANY: Final = 1
_NO_CLAIM: Final = 2
_EXCEEDED: Final = Reason("node(s) exceed max volume count")


@dataclass(frozen=True, slots=True)
class _NewVolumes:
    """What the pod brings to a node."""

    fresh: tuple[tuple[str, str, int], ...] = ()
    """(driver, in-tree plugin, how many) of volumes that no pod on any node uses."""
    known: tuple[CsiVolume, ...] = ()
    """Volumes that may be on a node already."""
    missing: str = ""
    """The claim that is not there, in the words of the reason."""


class NodeVolumeLimits(RowFilterPlugin, VolumePlugin):
    name = "NodeVolumeLimits"
    watches: ClassVar[tuple[Kind[Any], ...]] = (
        PERSISTENT_VOLUME_CLAIMS,
        PERSISTENT_VOLUMES,
        STORAGE_CLASSES,
        VOLUME_ATTACHMENTS,
    )
    node_objects: ClassVar[tuple[Kind[Any], ...]] = (CSI_NODES,)
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, CSI_NODE, Aspect.PODS)

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        new: _NewVolumes = state
        if new.missing:
            return _NO_CLAIM
        return _TOO_MANY if row in self.index.csi_limits and self._beyond(new, row) else FEASIBLE

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_EXCEEDED if code == _TOO_MANY else Reason(state.missing, unresolvable=True),)

    def events_to_register(self) -> frozenset[str]:
        others = {f"{PERSISTENT_VOLUME_CLAIMS.name}/Add", f"{VOLUME_ATTACHMENTS.name}/Delete", EventKind.POD_DELETE}
        return object_events(CSI_NODES, actions=("Add", "Update")) | others

    def hint(self, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
        if event.kind == EventKind.POD_DELETE and isinstance(event.old, PodInfo):
            theirs = known_volumes(event.old)
            return theirs is not None and bool(theirs.claims or theirs.in_tree)
        if event.kind == f"{VOLUME_ATTACHMENTS.name}/Delete":
            return _may_be_attached_by(volumes, event.old.spec.attacher)
        if isinstance(event.new, PersistentVolumeClaim):
            return volumes.uses(event.new)
        if isinstance(event.old, CSINode) and isinstance(event.new, CSINode):
            before = limits_of(event.old)
            return any(limit > before.get(driver, 0) for driver, limit in limits_of(event.new).items())
        return True

    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        limits, attached = self.index.csi_limits.get(row, {}), self.index.attached.of_row(row).counts
        return [
            Lack(
                f"{driver} can attach {limits[driver]} volumes to the node, {attached.get(driver, 0)} are, "
                f"and the pod needs {count} more",
                (attached.get(driver, 0) + count - limits[driver]) / count,
            )
            for driver, count in self._beyond(state, row).items()
        ]

    def _beyond(self, new: _NewVolumes, row: int) -> dict[str, int]:
        """How many volumes the pod adds to the row, of those drivers that cannot attach so many."""
        limits = self.index.csi_limits.get(row)
        if not limits:
            return {}
        node, wanted = self.index.csi_nodes[row], dict.fromkeys(limits, 0)
        for driver, plugin, count in new.fresh:
            if driver in wanted and (not plugin or counts_on(CsiVolume(driver, "", plugin), node)):
                wanted[driver] += count
        present = self.index.attached.of_row(row)
        for volume in new.known:
            is_new = (volume.driver, volume.handle) not in present.used
            if volume.driver in wanted and is_new and counts_on(volume, node):
                wanted[volume.driver] += 1
        return {
            driver: count
            for driver, count in wanted.items()
            if count and present.counts.get(driver, 0) + count > limits[driver]
        }

    def read(self, volumes: PodVolumes) -> _NewVolumes | None:
        fresh: set[CsiVolume] = set()
        known = {each for each in map(_translated, volumes.in_tree) if each is not None}
        for use in volumes.claims:
            claim = self.index.claims.stored(use.key)
            if claim is None:
                return _NewVolumes(missing=f"looking up PVC {use.key}: {claim_not_found(use.claim)}")
            if use.ephemeral and not volumes.owns(claim):
                raise PluginError(volumes.disowned(claim))
            volume = csi_of_claim(self.view, claim)
            if volume is not None:
                (known if self.index.attached.is_shared(use.key, claim, volume) else fresh).add(volume)
        handles = {(volume.driver, volume.handle) for volume in known}
        counts = Counter(
            (volume.driver, volume.plugin) for volume in fresh if (volume.driver, volume.handle) not in handles
        )
        new = _NewVolumes(
            tuple(sorted((driver, plugin, count) for (driver, plugin), count in counts.items())),
            tuple(sorted(known, key=lambda volume: (volume.driver, volume.handle))),
        )
        return new if fresh or known else None


def _translated(source: Any) -> CsiVolume | None:
    try:
        return translate(source, {})
    except TranslationError as error:
        raise PluginError(f"converting volume({source.name}) from inline to csi: {error}") from error


def _may_be_attached_by(volumes: PodVolumes, attacher: str) -> bool:
    return bool(volumes.claims) or any(
        volume is not None and volume.driver == attacher for volume in map(_translated, volumes.in_tree)
    )
