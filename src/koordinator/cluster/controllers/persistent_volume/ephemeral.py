"""Generic ephemeral volumes: the claim of such a volume is made for its pod, and goes with it."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, Volume
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.cluster.controllers.persistent_volume.pods_of_claims import ephemeral_claim_name
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to


def new_claim(pod: Pod, volume: Volume) -> Document:
    """The claim of an ephemeral volume of the pod."""
    template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else {}
    given = template.get("metadata") or {}
    metadata: Document = {field: copied(given[field]) for field in ("labels", "annotations") if given.get(field)}
    metadata["name"] = ephemeral_claim_name(pod, volume)
    metadata["ownerReferences"] = [controller_reference(PODS, pod)]
    return {"metadata": metadata, "spec": copied(template.get("spec") or {})}


class EphemeralVolumeController:
    """Its keys are those of pods. The garbage collector deletes what it makes."""

    name: Final = "ephemeral-volume-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._pods = context.informers.informer(PODS)
        self._claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._recorder = context.events.recorder("ephemeral_volume")
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [pod.metadata.key for pod in self._pods.list() if _has_any(pod)]
        )
        self._pods.add_handlers(
            name=self.name, on_add=lambda pod, _: self._reconciler.add(pod.metadata.key) if _has_any(pod) else None
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return None
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None:
                await self._make(pod, volume)
        return None

    async def _make(self, pod: Pod, volume: Volume) -> None:
        namespace, name = pod.metadata.namespace, ephemeral_claim_name(pod, volume)
        claim = self._claims.get(f"{namespace}/{name}")
        if claim is None:
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(pod, volume), namespace)
            except ApiStatusError as error:
                if not error.is_already_exists:
                    self._warn(pod, volume, f"create PVC {name}: {error.message}")
                    raise
            return
        owner = controller_of(claim.metadata)
        if owner is None or owner.uid != pod.metadata.uid:
            self._warn(pod, volume, f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.metadata.name}")

    def _warn(self, pod: Pod, volume: Volume, why: str) -> None:
        note = f"ephemeral volume {volume.name}: {why}"
        self._recorder.event(reference_to(PODS, pod), "Warning", "FailedBinding", "FailedBinding", note)


def _has_any(pod: Pod) -> bool:
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)
