"""VolumeRestrictions: disks that pods name themselves are not shared on a node in ways that harm them, and a claim with
the access mode ReadWriteOncePod is used by one pod at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, Kind
from koordinator.api.pod import Volume
from koordinator.api.volume import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import Lack, some
from koordinator.scheduler.plugins.volumes.claims import claim_not_found
from koordinator.scheduler.plugins.volumes.index import VolumePlugin
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, conflict, known_volumes

_DISK: Final = 1
_IN_USE: Final = 2
_REASONS: Final = {
    _DISK: Reason("node(s) had no available disk"),
    _IN_USE: Reason(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
}


class _Restrictions(NamedTuple):
    disks: tuple[Volume, ...]
    in_use: tuple[str, ...]
    """The keys of the pod's claims that one pod may use at a time, and some pod does."""


class VolumeRestrictions(VolumePlugin):
    name = "VolumeRestrictions"
    watches: ClassVar[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS,)
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.PODS,)
    monotone = True

    def read(self, volumes: PodVolumes) -> _Restrictions | str | None:
        in_use: set[str] = set()
        for use in volumes.named:
            claim = self.index.claims.stored(use.key)
            if claim is None:
                return claim_not_found(use.claim)
            if READ_WRITE_ONCE_POD in claim.spec.access_modes and self.index.placed.users(use.key):
                in_use.add(use.key)
        return _Restrictions(volumes.disks, tuple(sorted(in_use))) if volumes.disks or in_use else None

    def key_of(self, read: Any) -> Hashable:
        restrictions: _Restrictions = read
        return msgspec.json.encode(restrictions.disks), restrictions.in_use

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        restrictions: _Restrictions = state
        # Claims are used somewhere or nowhere, whatever the node.
        in_use = _IN_USE if any(self.index.placed.users(key) for key in restrictions.in_use) else 0
        codes = np.full(rows.shape[0], in_use, dtype=np.int64)
        disks, on_row = restrictions.disks, self.index.placed.on_row
        if disks:
            for place, row in enumerate(rows.tolist()):
                if any(conflict(disks, other.disks) for other in on_row(row).values()):
                    codes[place] = _DISK
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_REASONS[code],)

    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        restrictions: _Restrictions = state
        found, placed, pods_on = [], self.index.placed, self.view.pods_on
        for disk in restrictions.disks:
            there = placed.on_row(row).values()
            if users := [f"{each.namespace}/{each.pod}" for each in there if conflict([disk], each.disks)]:
                found.append(Lack(f"volume {disk.name}: its disk is in use there by {some(users)}"))
        for key in restrictions.in_use:
            claims = placed.users(key).items()
            if users := [pods_on[where][uid].key for uid, where in claims if uid in pods_on.get(where, ())]:
                name = key.removeprefix(f"{volumes.namespace}/")
                found.append(Lack(f"claim {name} is for one pod at a time (ReadWriteOncePod), {some(users)} uses it"))
        return found

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE, EventKind.NODE_ADD, f"{PERSISTENT_VOLUME_CLAIMS.name}/Add"})

    def hint(self, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
        mine = {use.key for use in volumes.named}
        if isinstance(event.new, PersistentVolumeClaim):
            return event.new.metadata.key in mine
        if event.kind != EventKind.POD_DELETE or not isinstance(event.old, PodInfo):
            return True
        theirs = known_volumes(event.old)
        if theirs is None or theirs.namespace != volumes.namespace:
            return False
        shared = any(use.key in mine for use in theirs.named)
        return shared or conflict(volumes.disks, theirs.disks)
