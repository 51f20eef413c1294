"""VolumeBinding: a pod goes where its claims can be had, and its claims are bound there before it is.

Storage capacity does not count in the score: upstream has that switched off (StorageCapacityScoring).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final

from koordinator.api.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Kind,
)
from koordinator.api.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
)
from koordinator.scheduler.engine.binding_points import ClusterWriter, PodChanges, PreBindPlugin, ReservePlugin
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, NodeReference, Rows
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import SKIP_FILTER, PluginError, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.plugins.volumes.attached_volumes import migrated_plugins
from koordinator.scheduler.plugins.volumes.claims import key_of, read_claims
from koordinator.scheduler.plugins.volumes.explaining import binding_lacks
from koordinator.scheduler.plugins.volumes.finder import (
    NO_CAPACITY,
    NOTHING_TO_BIND,
    VOLUME_MISSING,
    WRONG_NODE,
    Finder,
    volume_limit,
)
from koordinator.scheduler.plugins.volumes.index import CSI_NODE, VolumeIndex
from koordinator.scheduler.plugins.volumes.plugin import VolumePlugin
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, volumes_of
from koordinator.scheduler.plugins.volumes.reservation import Reservation

_REASONS: Final = (
    (WRONG_NODE, Reason("node(s) didn't match PersistentVolume's node affinity", unresolvable=True)),
    (NOTHING_TO_BIND, Reason("node(s) didn't find available persistent volumes to bind", unresolvable=True)),
    (NO_CAPACITY, Reason("node(s) did not have enough free storage", unresolvable=True)),
    (
        VOLUME_MISSING,
        Reason("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", unresolvable=True),
    ),
)
_BIND_TIMEOUT_SECONDS: Final = 600
_FOR_WRITING_SECONDS: Final = 60


class VolumeBinding(VolumePlugin, ReservePlugin, PreBindPlugin):
    name = "VolumeBinding"
    watches: ClassVar[tuple[Kind[Any], ...]] = (
        PERSISTENT_VOLUME_CLAIMS,
        PERSISTENT_VOLUMES,
        STORAGE_CLASSES,
        CSI_DRIVERS,
        CSI_STORAGE_CAPACITIES,
    )
    node_objects: ClassVar[tuple[Kind[Any], ...]] = (CSI_NODES,)
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, CSI_NODE)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._bind_seconds: float = getattr(args, "bind_timeout_seconds", _BIND_TIMEOUT_SECONDS)
        self.time_limit = self._bind_seconds + _FOR_WRITING_SECONDS
        self._reservations: dict[str, Reservation] = {}

    def context(self, volumes: PodVolumes) -> Hashable:
        return key_of(self.index, read_claims(self.index, volumes)) if volumes.claims else None

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        volumes = volumes_of(pod)
        if volumes is None or not volumes.claims:
            return SKIP_FILTER
        claims = read_claims(self.index, volumes)
        if isinstance(claims, str):
            return PreFilterResult(rejection=Reason(claims, unresolvable=True))
        return PreFilterResult(Finder(self.index, claims))

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        finder: Finder = state
        return finder.codes(rows)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return tuple(reason for bit, reason in _REASONS if code & bit)

    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        return binding_lacks(self.index, volumes, row)

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        volumes = volumes_of(pod)
        if volumes is None or not volumes.claims:
            return None
        claims = read_claims(self.index, volumes)
        if isinstance(claims, str):
            raise PluginError(claims)
        if not claims.unbound:
            return None
        finding = Finder(self.index, claims).find(node.index)
        if finding.code:
            raise PluginError("; ".join(reason.text for reason in self.reasons(pod, None, finding.code)))
        reservation = Reservation(pod, node.name)
        reservation.assume(self.index, finding)
        self._reservations[pod.uid] = reservation
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        reservation = self._reservations.pop(pod.uid, None)
        if reservation is not None:
            reservation.revert(self.index)

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return pod.uid in self._reservations

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        reservation = self._reservations[pod.uid]
        await reservation.write(writer)
        try:
            bound = await writer.until(
                lambda: reservation.is_fulfilled(self.index),
                self._bind_seconds,
                lambda: reservation.objects(self.index),
            )
        except PluginError as error:
            raise PluginError(f"binding volumes: {error}") from error
        if not bound:
            raise PluginError("binding volumes: context deadline exceeded")
        del self._reservations[pod.uid]

    def events_to_register(self) -> frozenset[str]:
        return EVENTS_TO_REGISTER

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        volumes = volumes_of(pod)
        return volumes is None or queueing_hint(self.index, pod, volumes, event)


# Which events may help a pod for which VolumeBinding has rejected nodes.

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
    """Upstream checks volumes in the pod's spec alone, but it is for claims that capacity is counted."""
    if any(volume.csi is not None and volume.csi.driver == driver for volume in pod.pod.spec.volumes):
        return True
    claims = (index.claims.get(use.key) for use in volumes.claims)
    classes = (index.storage_class(class_of_claim(claim)) for claim in claims if claim is not None)
    return any(storage_class is not None and storage_class.provisioner == driver for storage_class in classes)
