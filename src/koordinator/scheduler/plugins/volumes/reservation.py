"""What VolumeBinding keeps for a pod, from the choice of its node until its claims are bound.

First it is assumed, so that no other pod gets the same; then it is written; then the volume controller and the
drivers have to make it true, which they may also refuse to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Kind
from koordinator.api.meta import ObjectReference
from koordinator.api.volume import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.volumes.claims import is_fully_bound
from koordinator.scheduler.plugins.volumes.finder import BoundVolume, Finding
from koordinator.scheduler.plugins.volumes.index import VolumeIndex


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
class _Binding:
    """A volume that is given to a claim."""

    volume: PersistentVolume
    """As it shall be."""
    claim: str
    """The claim's key."""
    changes: bool
    """Whether anything has to be written."""
    written: bool = False


@dataclass(slots=True)
class _Provision:
    """A claim for which a volume shall be made."""

    claim: PersistentVolumeClaim
    """As it shall be."""
    changes: bool
    written: bool = False


@dataclass(slots=True)
class Reservation:
    """Of one pod on one node."""

    pod: PodInfo
    node_name: str
    bindings: list[_Binding] = field(default_factory=list)
    provisions: list[_Provision] = field(default_factory=list)

    def assume(self, index: VolumeIndex, finding: Finding) -> None:
        """Keep what was found for the pod. Raises PluginError, with nothing kept."""
        for volume, claim in finding.bindings:
            reserved = bound_to(volume, claim)
            if reserved is not volume and not index.assume_volume(reserved):
                raise self._out_of_date(index, f"persistentvolume {volume.metadata.name!r}")
            self.bindings.append(_Binding(reserved, claim.metadata.key, reserved is not volume))
        for claim in finding.provisions:
            annotated = for_node(claim, self.node_name)
            if annotated is not claim and not index.assume_claim(annotated):
                raise self._out_of_date(index, f"persistentvolumeclaim {claim.metadata.key!r}")
            self.provisions.append(_Provision(annotated, annotated is not claim))

    def revert(self, index: VolumeIndex) -> None:
        """Give up what has not been written; what has been, the API will show."""
        for binding in self.bindings:
            if binding.changes and not binding.written:
                index.restore_volume(binding.volume, self.pod.uid)
        for provision in self.provisions:
            if provision.changes and not provision.written:
                index.restore_claim(provision.claim, self.pod.uid)

    async def write(self, writer: ClusterWriter) -> None:
        """Write to the API. Raises KoordinatorError with its message."""
        for binding in self.bindings:
            if binding.changes:
                name = binding.volume.metadata.name
                await writer.patch(PERSISTENT_VOLUMES, name, "", volume_patch(binding.volume))
                binding.written = True
        for provision in self.provisions:
            if provision.changes:
                claim = provision.claim
                name, namespace = claim.metadata.name, claim.metadata.namespace
                await writer.patch(PERSISTENT_VOLUME_CLAIMS, name, namespace, claim_patch(claim))
                provision.written = True

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
        volumes = [binding.volume.metadata.name for binding in self.bindings]
        keys = [provision.claim.metadata.key for provision in self.provisions]
        made = [claim.spec.volume_name for key in keys if (claim := index.claims.stored(key)) is not None]
        return [
            (NODES, self.node_name),
            (PODS, self.pod.key),
            *((PERSISTENT_VOLUMES, name) for name in (*volumes, *made) if name),
            *((PERSISTENT_VOLUME_CLAIMS, key) for key in (*keys, *(binding.claim for binding in self.bindings))),
        ]

    def _is_bound(self, index: VolumeIndex, binding: _Binding, row: int) -> bool:
        name = binding.volume.metadata.name
        volume, claim = index.volumes.stored(name), index.claims.stored(binding.claim)
        if volume is None:
            raise PluginError(f'failed to check binding: persistentvolumes "{name}" not found')
        if claim is None:
            raise PluginError(f'failed to check binding: persistentvolumeclaims "{binding.claim}" not found')
        if binding.written and volume.metadata.resource_version == binding.volume.metadata.resource_version:
            # What was written has not come back yet.
            return False
        self._check_place(index, volume, row)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise PluginError(f'ClaimRef got reset for pv "{name}"')
        if claim.spec.volume_name not in ("", name):
            bound = f'PVC "{claim.metadata.name}" got bound to pv "{claim.spec.volume_name}"'
            raise PluginError(f'{bound} instead of "{name}"')
        return is_fully_bound(claim)

    def _is_made(self, index: VolumeIndex, provision: _Provision, row: int) -> bool:
        key = provision.claim.metadata.key
        claim = index.claims.stored(key)
        if claim is None:
            raise PluginError(f'failed to check provisioning pvc: persistentvolumeclaims "{key}" not found')
        if provision.written and claim.metadata.resource_version == provision.claim.metadata.resource_version:
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

    def _out_of_date(self, index: VolumeIndex, what: str) -> PluginError:
        self.revert(index)
        return PluginError(f"{what} is out of sync: the API has another version of it")
