"""Writes that bind volumes and claims to each other: each is void where its object has changed since it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from koordinator.api.document import Document
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Kind
from koordinator.api.meta import Object
from koordinator.api.volume import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PersistentVolume,
    PersistentVolumeClaim,
)
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.persistent_volume.matching import STORAGE, is_bound_to
from koordinator.cluster.controllers.persistent_volume.volume_plan import BOUND, unbinding
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

T = TypeVar("T", bound=Object)


class ChangedMeanwhileError(KoordinatorError):
    """The object is not the one that was read: decide anew when the cache shows it."""


class BindWrites:
    """All methods raise ChangedMeanwhileError, and KubeError, and return the object as it is then."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Bind the two, the volume first: whoever sees the claim bound finds its volume."""
        volume = await self._bind_volume(volume, claim)
        volume = await self.volume_phase(volume, BOUND)
        claim = await self._bind_claim(claim, volume)
        await self._claim_bound(claim, volume)

    async def _bind_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        reference = volume.spec.claim_ref
        if reference is not None and reference.uid == claim.metadata.uid and is_bound_to(volume, claim):
            return volume
        metadata = claim.metadata
        body: Document = {
            "spec": {
                "claimRef": {
                    "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
                    "kind": PERSISTENT_VOLUME_CLAIMS.name,
                    "namespace": metadata.namespace,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "resourceVersion": metadata.resource_version,
                }
            }
        }
        if not is_bound_to(volume, claim):
            body["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        return await self._patch(PERSISTENT_VOLUMES, volume, body)

    async def _bind_claim(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
        annotations = {} if BIND_COMPLETED in claim.metadata.annotations else {BIND_COMPLETED: "yes"}
        spec: Document = {}
        if claim.spec.volume_name != volume.metadata.name:
            spec["volumeName"] = volume.metadata.name
            annotations |= {BOUND_BY_CONTROLLER: "yes"}
        if not annotations and not spec:
            return claim
        body = {"metadata": {"annotations": annotations}, "spec": spec}
        return await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, body)

    async def _claim_bound(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """The capacity is left alone once the claim is bound: a volume that grows is not larger at once for those who
        use it."""
        status: Document = {}
        if claim.status.access_modes != volume.spec.access_modes:
            status["accessModes"] = volume.spec.access_modes
        if claim.status.phase != BOUND:
            status["phase"] = BOUND
            status["capacity"] = {name: str(amount) for name, amount in volume.spec.capacity.items()}
        if status:
            await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, {"status": status}, "status")

    async def claim_phase(self, claim: PersistentVolumeClaim, phase: str) -> PersistentVolumeClaim:
        """The phase of a claim that has no volume."""
        status = claim.status
        if status.phase == phase and not status.access_modes and not status.capacity:
            return claim
        body = {"status": {"phase": phase, "accessModes": None, "capacity": None}}
        return await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, body, "status")

    async def give_class(self, claim: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
        """Set the storage class of a claim that names none."""
        return await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, {"spec": {"storageClassName": name}})

    async def annotate_claim(
        self, claim: PersistentVolumeClaim, annotations: Mapping[str, str]
    ) -> PersistentVolumeClaim:
        """Add annotations, if it does not have them."""
        if annotations.items() <= claim.metadata.annotations.items():
            return claim
        return await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, {"metadata": {"annotations": dict(annotations)}})

    async def volume_phase(self, volume: PersistentVolume, phase: str, message: str = "") -> PersistentVolume:
        if volume.status.phase == phase:
            return volume
        body = {"status": {"phase": phase, "message": message or None}}
        return await self._patch(PERSISTENT_VOLUMES, volume, body, "status")

    async def unbind(self, volume: PersistentVolume) -> PersistentVolume:
        annotations, reference = unbinding(volume)
        body = {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}}
        return await self._patch(PERSISTENT_VOLUMES, volume, body)

    async def grow(self, claim: PersistentVolumeClaim, volume: PersistentVolume, size: str) -> None:
        """Give both this capacity, the volume first."""
        capacity = {"capacity": {STORAGE: size}}
        await self._patch(PERSISTENT_VOLUMES, volume, {"spec": capacity})
        await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, {"status": capacity}, "status")

    async def delete_volume(self, volume: PersistentVolume) -> None:
        metadata = volume.metadata
        try:
            await self._client.delete(PERSISTENT_VOLUMES, metadata.name, uid=metadata.uid)
        except ApiStatusError as error:
            _raise_changed(error, metadata.key)

    async def _patch(self, kind: Kind[T], obj: Any, body: Document, subresource: str = "") -> T:
        metadata = obj.metadata
        precondition = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {**body, "metadata": {**(body.get("metadata") or {}), **precondition}}
        try:
            return await self._client.patch(
                kind, metadata.name, body, PatchType.MERGE, metadata.namespace, subresource=subresource
            )
        except ApiStatusError as error:
            _raise_changed(error, metadata.key)
            raise


def _raise_changed(error: ApiStatusError, key: str) -> None:
    if error.is_not_found or error.is_conflict:
        raise ChangedMeanwhileError(key) from error
    raise error
