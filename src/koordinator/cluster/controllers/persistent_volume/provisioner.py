"""The simulated provisioner: in the place of a CSI driver's, it makes, grows and deletes volumes that hold nothing."""

from __future__ import annotations

from typing import Final, Literal

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from koordinator.api.volume import PROVISIONED_BY, PersistentVolume, PersistentVolumeClaim, class_of_claim
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.persistent_volume.bind_writes import BindWrites, ChangedMeanwhileError
from koordinator.cluster.controllers.persistent_volume.provisioning import (
    PROVISIONER,
    SIMULATED_CLASS,
    growth,
    new_volume,
    volume_name,
    wants_volume,
)
from koordinator.cluster.controllers.persistent_volume.volume_plan import RELEASED
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to

Key = tuple[Literal["claim", "volume", "class"], str]
_RECHECK: Final = 0.2


class SimulatedProvisionerController:
    """Its keys are those of claims, for which it makes volumes, of volumes, which it deletes, and of its own storage
    class, which it creates when it starts; where somebody deletes that, it stays away until the next start."""

    name: Final = "simulated-volume-provisioner"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._writes = BindWrites(context.client)
        self._claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = context.informers.informer(PERSISTENT_VOLUMES)
        self._classes = context.informers.informer(STORAGE_CLASSES)
        self._has_class = False
        self._recorder = context.events.recorder(PROVISIONER)
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, self._all)
        self._claims.add_handlers(
            name=self.name,
            on_add=lambda claim, _: self._reconciler.add(("claim", claim.metadata.key)),
            on_update=lambda _, claim: self._reconciler.add(("claim", claim.metadata.key)),
        )
        self._volumes.add_handlers(
            name=self.name,
            on_add=lambda volume, _: self._reconciler.add(("volume", volume.metadata.name)),
            on_update=lambda _, volume: self._reconciler.add(("volume", volume.metadata.name)),
        )
        self._classes.add_handlers(name=self.name, on_add=lambda *_: self._reconciler.add_all())

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _all(self) -> list[Key]:
        claims: list[Key] = [("claim", claim.metadata.key) for claim in self._claims.list()]
        return [
            ("class", SIMULATED_CLASS["metadata"]["name"]),
            *claims,
            *(("volume", volume.metadata.name) for volume in self._volumes.list()),
        ]

    async def _reconcile(self, key: Key) -> float | None:
        kind, name = key
        try:
            if kind == "class":
                await self._create_class()
            elif kind == "volume":
                await self._delete_released(self._volumes.get(name))
            elif (claim := self._claims.get(name)) is not None:
                await self._provision(claim)
                await self._grow(claim, self._volumes.get(claim.spec.volume_name))
        except ChangedMeanwhileError:
            return _RECHECK
        return None

    async def _create_class(self) -> None:
        if self._has_class:
            return
        try:
            await self._client.create(STORAGE_CLASSES, SIMULATED_CLASS)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
        self._has_class = True

    async def _provision(self, claim: PersistentVolumeClaim) -> None:
        storage_class = self._classes.get(class_of_claim(claim))
        if storage_class is None or not wants_volume(claim, storage_class):
            return
        if self._volumes.get(volume_name(claim)) is not None:
            return
        note = f'External provisioner is provisioning volume for claim "{claim.metadata.key}"'
        self._record(claim, "Provisioning", note)
        try:
            volume = await self._client.create(PERSISTENT_VOLUMES, new_volume(claim, storage_class))
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
            return
        self._record(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {volume.metadata.name}")

    async def _grow(self, claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> None:
        size = growth(claim, volume)
        if volume is None or not size:
            return
        await self._writes.grow(claim, volume, size)
        self._record(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _delete_released(self, volume: PersistentVolume | None) -> None:
        if volume is None or volume.metadata.deletion_timestamp is not None or volume.status.phase != RELEASED:
            return
        is_ours = volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        if is_ours and volume.spec.persistent_volume_reclaim_policy == "Delete":
            await self._writes.delete_volume(volume)

    def _record(self, claim: PersistentVolumeClaim, reason: str, note: str) -> None:
        self._recorder.event(reference_to(PERSISTENT_VOLUME_CLAIMS, claim), "Normal", reason, reason, note)
