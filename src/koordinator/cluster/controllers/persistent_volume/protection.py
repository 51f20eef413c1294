"""Two controllers that keep a claim or a volume that is being deleted until nobody uses it any more."""

from __future__ import annotations

from typing import Final, TypeVar

from koordinator.api.document import Document
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.persistent_volume.pods_of_claims import CLAIM_INDEX, claim_keys
from koordinator.cluster.controllers.persistent_volume.volume_plan import BOUND
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

O = TypeVar("O", bound=Object)  # noqa: E741

_OF_CLAIMS: Final = "kubernetes.io/pvc-protection"
_OF_VOLUMES: Final = "kubernetes.io/pv-protection"


def wanted_finalizers(obj: Object, finalizer: str, *, is_used: bool) -> list[str] | None:
    """The finalizers that the object should have; None if it has them. An object that is being deleted gets none."""
    there, is_leaving = obj.metadata.finalizers, obj.metadata.deletion_timestamp is not None
    if not is_leaving and finalizer not in there:
        return [*there, finalizer]
    if is_leaving and not is_used and finalizer in there:
        return [each for each in there if each != finalizer]
    return None


async def _write(client: Client, kind: Kind[O], obj: O, finalizers: list[str]) -> None:
    """Void where the object has changed since it was read, of which an event comes."""
    metadata = obj.metadata
    body: Document = {
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "finalizers": finalizers or None,
        }
    }
    try:
        await client.patch(kind, metadata.name, body, PatchType.MERGE, metadata.namespace)
    except ApiStatusError as error:
        if not (error.is_not_found or error.is_conflict):
            raise


class ClaimProtectionController:
    """Its keys are those of claims. A claim is in use as long as there is a pod with it that was bound to a node,
    whether it has ended or not."""

    name: Final = "persistentvolumeclaim-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._pods = context.informers.informer(PODS, indexes={CLAIM_INDEX: claim_keys})
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [claim.metadata.key for claim in self._claims.list()]
        )
        self._claims.add_handlers(
            name=self.name,
            on_add=lambda claim, _: self._reconciler.add(claim.metadata.key),
            on_update=lambda _, claim: self._reconciler.add(claim.metadata.key),
        )
        self._pods.add_handlers(name=self.name, on_delete=self._pod_gone)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _pod_gone(self, pod: Pod) -> None:
        for key in claim_keys(pod):
            self._reconciler.add(key)

    async def _reconcile(self, key: str) -> float | None:
        claim = self._claims.get(key)
        if claim is None:
            return None
        is_used = any(pod.spec.node_name for pod in self._pods.by_index(CLAIM_INDEX, key))
        finalizers = wanted_finalizers(claim, _OF_CLAIMS, is_used=is_used)
        if finalizers is not None and not (_OF_CLAIMS not in finalizers and await self._is_used(claim)):
            await _write(self._client, PERSISTENT_VOLUME_CLAIMS, claim, finalizers)
        return None

    async def _is_used(self, claim: PersistentVolumeClaim) -> bool:
        """As the server has it, because the cache may not know of a pod yet."""
        pods = (await self._client.list(PODS, claim.metadata.namespace)).items
        return any(pod.spec.node_name and claim.metadata.key in claim_keys(pod) for pod in pods)


class VolumeProtectionController:
    """Its keys are the names of volumes. A volume is in use as long as it is bound."""

    name: Final = "persistentvolume-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._volumes = context.informers.informer(PERSISTENT_VOLUMES)
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [volume.metadata.name for volume in self._volumes.list()]
        )
        self._volumes.add_handlers(
            name=self.name,
            on_add=lambda volume, _: self._reconciler.add(volume.metadata.name),
            on_update=lambda _, volume: self._reconciler.add(volume.metadata.name),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, name: str) -> float | None:
        volume: PersistentVolume | None = self._volumes.get(name)
        if volume is not None:
            finalizers = wanted_finalizers(volume, _OF_VOLUMES, is_used=volume.status.phase == BOUND)
            if finalizers is not None:
                await _write(self._client, PERSISTENT_VOLUMES, volume, finalizers)
        return None
