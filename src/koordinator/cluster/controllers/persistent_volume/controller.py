"""The volume binder: it binds claims and volumes to each other, and keeps the phases of both."""

from __future__ import annotations

from typing import Final, Literal

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Kind
from koordinator.api.meta import Object
from koordinator.api.timestamps import format_time
from koordinator.api.volume import (
    BIND_COMPLETED,
    PersistentVolume,
    PersistentVolumeClaim,
    class_of_claim,
    class_of_volume,
)
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.persistent_volume.bind_writes import BindWrites, ChangedMeanwhileError
from koordinator.cluster.controllers.persistent_volume.claim_plan import (
    LOST,
    ClaimState,
    Notice,
    plan_claim,
)
from koordinator.cluster.controllers.persistent_volume.pods_of_claims import CLAIM_INDEX, claim_keys
from koordinator.cluster.controllers.persistent_volume.volume_plan import (
    FAILED,
    plan_reclaim,
    plan_volume,
)
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.model.default_storage_class import default_storage_class

Key = tuple[Literal["claim", "volume"], str]

_RESYNC: Final = 15.0
"""--pvclaimbinder-sync-period of kube-controller-manager: a claim that waits is looked at again so often."""
_RECHECK: Final = 0.2
_VOLUMES_OF_CLAIM: Final = "claim"
_VOLUMES_OF_CLASS: Final = "class"
_WAITING_OF_CLASS: Final = "waiting"
_PROVISIONERS: Final = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")


def _claim_of_volume(volume: PersistentVolume) -> tuple[str, ...]:
    reference = volume.spec.claim_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _waits(claim: PersistentVolumeClaim) -> bool:
    return BIND_COMPLETED not in claim.metadata.annotations


class VolumeBinderController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are those of claims and of volumes. One worker,
    so that no two claims choose the same volume."""

    name: Final = "persistentvolume-binder-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._writes = BindWrites(context.client)
        self._claims = context.informers.informer(
            PERSISTENT_VOLUME_CLAIMS,
            indexes={_WAITING_OF_CLASS: lambda claim: (class_of_claim(claim),) if _waits(claim) else ()},
        )
        self._volumes = context.informers.informer(
            PERSISTENT_VOLUMES,
            indexes={
                _VOLUMES_OF_CLAIM: _claim_of_volume,
                _VOLUMES_OF_CLASS: lambda volume: (class_of_volume(volume),) if not volume.spec.claim_ref else (),
            },
        )
        self._classes = context.informers.informer(STORAGE_CLASSES)
        self._pods = context.informers.informer(PODS, indexes={CLAIM_INDEX: claim_keys})
        self._recorder = context.events.recorder("persistentvolume-controller")
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, self._all)
        self._watch()

    def _watch(self) -> None:
        self._claims.add_handlers(
            name=self.name,
            on_add=lambda claim, _: self._claim_changed(claim),
            on_update=lambda _, claim: self._claim_changed(claim),
            on_delete=self._claim_changed,
        )
        self._volumes.add_handlers(
            name=self.name,
            on_add=lambda volume, _: self._volume_changed(volume),
            on_update=lambda _, volume: self._volume_changed(volume),
            on_delete=self._volume_changed,
        )
        self._classes.add_handlers(
            name=self.name,
            on_add=lambda each, _: self._class_changed(each.metadata.name),
            on_update=lambda _, each: self._class_changed(each.metadata.name),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _all(self) -> list[Key]:
        claims: list[Key] = [("claim", claim.metadata.key) for claim in self._claims.list()]
        return [*claims, *(("volume", volume.metadata.name) for volume in self._volumes.list())]

    def _claim_changed(self, claim: PersistentVolumeClaim) -> None:
        key = claim.metadata.key
        self._reconciler.add(("claim", key))
        for volume in self._volumes.by_index(_VOLUMES_OF_CLAIM, key):
            self._reconciler.add(("volume", volume.metadata.name))

    def _volume_changed(self, volume: PersistentVolume) -> None:
        self._reconciler.add(("volume", volume.metadata.name))
        keys = _claim_of_volume(volume)
        for key in keys:
            self._reconciler.add(("claim", key))
        if not keys:
            self._class_changed(class_of_volume(volume))

    def _class_changed(self, name: str) -> None:
        """Claims that wait for a volume of the class, or for a default class, have to be looked at."""
        for claim in (*self._claims.by_index(_WAITING_OF_CLASS, name), *self._claims.by_index(_WAITING_OF_CLASS, "")):
            self._reconciler.add(("claim", claim.metadata.key))

    async def _reconcile(self, key: Key) -> float | None:
        kind, name = key
        try:
            return await (self._sync_claim(name) if kind == "claim" else self._sync_volume(name))
        except ChangedMeanwhileError:
            return _RECHECK

    async def _sync_claim(self, key: str) -> float | None:
        claim = self._claims.get(key)
        if claim is None:
            return None
        plan = plan_claim(self._state_of(claim))
        if plan.storage_class:
            await self._writes.give_class(claim, plan.storage_class)
            return None
        if plan.bind is not None:
            await self._writes.bind(claim, plan.bind)
            return None
        was_lost = claim.status.phase == LOST
        if plan.provisioner:
            claim = await self._writes.annotate_claim(claim, dict.fromkeys(_PROVISIONERS, plan.provisioner))
        if plan.phase:
            claim = await self._writes.claim_phase(claim, plan.phase)
        if plan.notice is not None and not (plan.phase == LOST and was_lost):
            self._record(PERSISTENT_VOLUME_CLAIMS, claim, plan.notice)
        return None if plan.phase == LOST else _RESYNC

    def _state_of(self, claim: PersistentVolumeClaim) -> ClaimState:
        key, class_name = claim.metadata.key, class_of_claim(claim)
        kept = self._volumes.by_index(_VOLUMES_OF_CLAIM, key)
        waiting = (pod.metadata.name for pod in self._pods.by_index(CLAIM_INDEX, key) if not pod.spec.node_name)
        return ClaimState(
            claim=claim,
            candidates=[*kept, *self._volumes.by_index(_VOLUMES_OF_CLASS, class_name)],
            named=self._volumes.get(claim.spec.volume_name),
            storage_class=self._classes.get(class_name) if class_name else None,
            default_class=self._default_class(),
            waiting_pods=sorted(waiting),
        )

    def _default_class(self) -> str:
        found = (each.metadata for each in self._classes.list())
        return default_storage_class(
            (format_time(each.creation_timestamp) if each.creation_timestamp else "", each.name, each.annotations)
            for each in found
        )

    async def _sync_volume(self, name: str) -> float | None:
        volume = self._volumes.get(name)
        if volume is None:
            return None
        plan = plan_volume(volume, await self._claim_of(volume))
        if plan.unbind:
            volume = await self._writes.unbind(volume)
        if plan.phase:
            volume = await self._writes.volume_phase(volume, plan.phase)
        if plan.reclaim and volume.metadata.deletion_timestamp is None:
            await self._reclaim(volume)
        return None

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """The very claim that the volume refers to. Where the cache has it not, the server is asked, because the data
        of the volume may be lost for good."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return None
        claim = self._claims.get(f"{reference.namespace}/{reference.name}")
        if claim is None or claim.metadata.uid != reference.uid:
            try:
                claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, reference.name, reference.namespace)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                return None
        return claim if claim.metadata.uid == reference.uid else None

    async def _reclaim(self, volume: PersistentVolume) -> None:
        reclaim = plan_reclaim(volume)
        if reclaim.delete:
            await self._writes.delete_volume(volume)
        elif reclaim.failure is not None and volume.status.phase != FAILED:
            await self._writes.volume_phase(volume, FAILED, reclaim.failure.note)
            self._record(PERSISTENT_VOLUMES, volume, reclaim.failure)

    def _record(self, kind: Kind[PersistentVolumeClaim] | Kind[PersistentVolume], obj: Object, notice: Notice) -> None:
        self._recorder.event(reference_to(kind, obj), notice.type, notice.reason, notice.reason, notice.note)
