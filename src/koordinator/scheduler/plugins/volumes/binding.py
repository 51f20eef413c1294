"""VolumeBinding: a pod goes where its claims can be had, and its claims are bound there before it is.

What is kept for a pod, from the choice of its node until its claims are bound, is first assumed, so that no other pod
gets the same; then it is written; then the volume controller and the drivers have to make it true, which they may also
refuse to do. Storage capacity does not count in the score: upstream has that switched off (StorageCapacityScoring).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
import numpy as np

from koordinator.api.codec import to_document
from koordinator.api.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Kind,
)
from koordinator.api.meta import Object, ObjectReference
from koordinator.api.volume import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
)
from koordinator.scheduler.engine.binding_points import (
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
    ReservePlugin,
)
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, NodeReference, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import PluginError, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.plugins.volumes.attached_volumes import migrated_plugins
from koordinator.scheduler.plugins.volumes.claims import PodClaims, is_fully_bound, key_of, read_claims
from koordinator.scheduler.plugins.volumes.finder import (
    NO_CAPACITY,
    NOTHING_TO_BIND,
    VOLUME_MISSING,
    WRONG_NODE,
    BoundVolume,
    Finder,
    Finding,
    binding_lacks,
    volume_limit,
)
from koordinator.scheduler.plugins.volumes.index import CSI_NODE, VolumeIndex, VolumePlugin
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, volumes_of

T = TypeVar("T", bound=Object)


def bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume, reserved for the claim; the same object when it is already."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    if reference is not None and reference.uid == metadata.uid:
        return volume
    spec = msgspec.structs.replace(
        volume.spec,
        claim_ref=ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        ),
    )
    if reference is not None:
        return msgspec.structs.replace(volume, spec=spec)
    annotations = {**volume.metadata.annotations}
    annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
    return msgspec.structs.replace(
        volume, spec=spec, metadata=msgspec.structs.replace(volume.metadata, annotations=annotations)
    )


def volume_patch(volume: PersistentVolume) -> dict[str, Any]:
    """Writes what ``bound_to`` made of this version of the volume."""
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: volume.metadata.annotations[BOUND_BY_CONTROLLER]}
    return {"metadata": metadata, "spec": {"claimRef": to_document(volume.spec.claim_ref)}}


def for_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """The claim with a request for a volume for the node; the same object when it has one already."""
    if claim.metadata.annotations.get(SELECTED_NODE) == node_name:
        return claim
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def claim_patch(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Writes what ``for_node`` made of this version of the claim."""
    return {
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]},
        }
    }


@dataclass(slots=True)
class _Kept(Generic[T]):
    """A volume that is given to a claim, or a claim for which a volume shall be made."""

    kind: Kind[T]
    obj: T
    """As it shall be."""
    patch: dict[str, Any] | None
    """What has to be written; None for nothing."""
    claim: str
    """The key of the claim."""
    written: bool = False


@dataclass(slots=True)
class Reservation:
    """Of one pod on one node."""

    pod: PodInfo
    node_name: str
    bindings: list[_Kept[PersistentVolume]] = field(default_factory=list)
    provisions: list[_Kept[PersistentVolumeClaim]] = field(default_factory=list)

    def assume(self, index: VolumeIndex, finding: Finding) -> None:
        """Keep what was found for the pod. Raises PluginError, with nothing kept."""
        for volume, claim in finding.bindings:
            reserved = bound_to(volume, claim)
            patch = volume_patch(reserved) if reserved is not volume else None
            self.bindings.append(_Kept(PERSISTENT_VOLUMES, reserved, patch, claim.metadata.key))
        for claim in finding.provisions:
            annotated = for_node(claim, self.node_name)
            patch = claim_patch(annotated) if annotated is not claim else None
            self.provisions.append(_Kept(PERSISTENT_VOLUME_CLAIMS, annotated, patch, claim.metadata.key))
        for done, each in enumerate(self._kept):
            if each.patch is not None and not index.assumptions(each.kind).assume(each.obj):
                self._give_up(index, self._kept[:done])
                what = f"{each.kind.name.lower()} {each.obj.metadata.key!r}"
                raise PluginError(f"{what} is out of sync: the API has another version of it")

    @property
    def _kept(self) -> list[_Kept[Any]]:
        return [*self.bindings, *self.provisions]

    def revert(self, index: VolumeIndex) -> None:
        """Give up what has not been written; what has been, the API will show."""
        self._give_up(index, self._kept)

    def _give_up(self, index: VolumeIndex, kept: Iterable[_Kept[Any]]) -> None:
        for each in kept:
            if each.patch is not None and not each.written and index.assumptions(each.kind).restore(each.obj):
                index.reverted_by = self.pod.uid

    async def write(self, writer: ClusterWriter) -> None:
        """Write to the API. Raises KoordinatorError with its message."""
        for each in self._kept:
            if each.patch is not None:
                await writer.patch(each.kind, each.obj.metadata.name, each.obj.metadata.namespace, each.patch)
                each.written = True

    def is_fulfilled(self, index: VolumeIndex) -> bool:
        """Whether all claims are bound by now. Raises PluginError when that will not happen any more."""
        row = index.view.columns.row_of.get(self.node_name)
        if row is None:
            raise PluginError(f'failed to get node "{self.node_name}": node "{self.node_name}" not found')
        if self.pod.uid not in index.view.pods_on.get(row, {}):
            raise PluginError(f'pod does not exist any more: pod "{self.pod.pod.metadata.name}" not found')
        bound = [self._is_bound(index, binding, row) for binding in self.bindings]
        made = [self._is_made(index, provision, row) for provision in self.provisions]
        return all((*bound, *made))

    def objects(self, index: VolumeIndex) -> list[tuple[Kind[Any], str]]:
        """Everything that ``is_fulfilled`` looks at."""
        volumes = [volume.obj.metadata.name for volume in self.bindings]
        keys = [claim.claim for claim in self.provisions]
        made = [claim.spec.volume_name for key in keys if (claim := index.claims.stored(key)) is not None]
        return [
            (NODES, self.node_name),
            (PODS, self.pod.key),
            *((PERSISTENT_VOLUMES, name) for name in (*volumes, *made) if name),
            *((PERSISTENT_VOLUME_CLAIMS, key) for key in (*keys, *(volume.claim for volume in self.bindings))),
        ]

    def _is_bound(self, index: VolumeIndex, binding: _Kept[PersistentVolume], row: int) -> bool:
        name = binding.obj.metadata.name
        volume, claim = index.volumes.stored(name), index.claims.stored(binding.claim)
        if volume is None:
            raise PluginError(f'failed to check binding: persistentvolumes "{name}" not found')
        if claim is None:
            raise PluginError(f'failed to check binding: persistentvolumeclaims "{binding.claim}" not found')
        if binding.written and volume.metadata.resource_version == binding.obj.metadata.resource_version:
            # What was written has not come back yet.
            return False
        self._check_place(index, volume, row)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise PluginError(f'ClaimRef got reset for pv "{name}"')
        if claim.spec.volume_name not in ("", name):
            bound = f'PVC "{claim.metadata.name}" got bound to pv "{claim.spec.volume_name}"'
            raise PluginError(f'{bound} instead of "{name}"')
        return is_fully_bound(claim)

    def _is_made(self, index: VolumeIndex, provision: _Kept[PersistentVolumeClaim], row: int) -> bool:
        key = provision.claim
        claim = index.claims.stored(key)
        if claim is None:
            raise PluginError(f'failed to check provisioning pvc: persistentvolumeclaims "{key}" not found')
        if provision.written and claim.metadata.resource_version == provision.obj.metadata.resource_version:
            return False
        if not claim.metadata.annotations:
            raise PluginError(f'selectedNode annotation reset for PVC "{claim.metadata.name}"')
        if claim.metadata.annotations.get(SELECTED_NODE) != self.node_name:
            raise PluginError(f'provisioning failed for PVC "{claim.metadata.name}"')
        if claim.spec.volume_name:
            volume = index.volumes.stored(claim.spec.volume_name)
            if volume is None:
                # The watch shows the claim before it shows the volume.
                return False
            self._check_place(index, volume, row)
        return is_fully_bound(claim)

    def _check_place(self, index: VolumeIndex, volume: PersistentVolume, row: int) -> None:
        if not BoundVolume(index, volume).evaluate(np.array((row,), dtype=np.intp))[0]:
            affinity = f'pv "{volume.metadata.name}" node affinity'
            raise PluginError(f'{affinity} doesn\'t match node "{self.node_name}": no matching NodeSelectorTerms')


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

    def read(self, volumes: PodVolumes) -> PodClaims | str | None:
        return read_claims(self.index, volumes) if volumes.claims else None

    def key_of(self, read: Any) -> Hashable:
        return key_of(self.index, read)

    def state_of(self, read: Any) -> Finder:
        return Finder(self.index, read)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        finder: Finder = state
        return finder.codes(rows)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return tuple(reason for bit, reason in _REASONS if code & bit)

    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        return binding_lacks(self.index, volumes, row)

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        volumes = volumes_of(pod)
        claims = self.read(volumes) if volumes is not None else None
        if isinstance(claims, str):
            raise PluginError(claims)
        if claims is None or not claims.unbound:
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
        """Those that may help a pod for which VolumeBinding has rejected nodes."""
        kinds = STORAGE_CLASSES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, CSI_NODES, CSI_STORAGE_CAPACITIES
        changes = object_events(*kinds, actions=("Add", "Update")) | object_events(CSI_DRIVERS, actions=("Update",))
        return changes | {EventKind.NODE_ADD, EventKind.NODE_LABEL, EventKind.POD_DELETE}

    def hint(self, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
        if event.kind == EventKind.POD_DELETE:
            # A pod that was not bound after all gives back the volumes that were kept for it.
            return isinstance(event.old, PodInfo) and event.old.uid == self.index.reverted_by
        old, new = event.old, event.new
        match new:
            case PersistentVolumeClaim():
                return volumes.uses(new)
            case StorageClass() if isinstance(old, StorageClass):
                return old.allowed_topologies != new.allowed_topologies
            case CSINode() if isinstance(old, CSINode):
                return migrated_plugins(old) != migrated_plugins(new)
            case CSIStorageCapacity() if isinstance(old, CSIStorageCapacity):
                before, after = volume_limit(old), volume_limit(new)
                return after is not None and (before is None or after.value > before.value)
            case CSIDriver() if isinstance(old, CSIDriver):
                stops_counting = old.spec.storage_capacity and not new.spec.storage_capacity
                return bool(stops_counting) and _relies_on(self.index, pod, volumes, new.metadata.name)
            case _:
                return True


def _relies_on(index: VolumeIndex, pod: PodInfo, volumes: PodVolumes, driver: str) -> bool:
    """Upstream checks volumes in the pod's spec alone, but it is for claims that capacity is counted."""
    if any(volume.csi is not None and volume.csi.driver == driver for volume in pod.pod.spec.volumes):
        return True
    claims = (index.claims.get(use.key) for use in volumes.claims)
    classes = (index.storage_class(class_of_claim(claim)) for claim in claims if claim is not None)
    return any(storage_class is not None and storage_class.provisioner == driver for storage_class in classes)
