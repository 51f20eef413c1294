"""The PersistentVolumeClaims of a StatefulSet: created before the pods that use them, and kept or left to the garbage
collector as ``persistentVolumeClaimRetentionPolicy`` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, Kind
from koordinator.api.meta import Object, OwnerReference, controller_of
from koordinator.api.pod import Pod
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.cluster.controllers.stateful_set.identity import claim_names, new_claims, pod_name
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS, StatefulSet
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

_DELETE: Final = "Delete"
Note = Callable[[str, str], None]
"""Records an event with a reason and a text; a warning if the reason begins with ``Failed``."""


class ClaimIsLeavingError(KoordinatorError):
    """A claim of an earlier pod is still being deleted."""


def wanted_owner(stateful_set: StatefulSet, ordinal: int) -> Kind[Any] | None:
    """Of what kind the controller of a claim should be: with it, the claim goes. None for a claim that stays."""
    policy = stateful_set.spec.persistent_volume_claim_retention_policy
    if ordinal not in stateful_set.ordinals and policy.when_scaled == _DELETE:
        return PODS
    return STATEFUL_SETS if policy.when_deleted == _DELETE else None


def wanted_references(stateful_set: StatefulSet, pod: Pod, ordinal: int, claim: Object) -> list[Document] | None:
    """The ownerReferences that a claim should have; None if it has them, or if something else controls it."""
    ours = (stateful_set.metadata.uid, pod.metadata.uid)
    controller = controller_of(claim.metadata)
    if controller is not None and controller.uid not in ours:
        return None
    kind = wanted_owner(stateful_set, ordinal)
    owner: Object | None = None if kind is None else pod if kind is PODS else stateful_set
    present = {each.uid for each in claim.metadata.owner_references if each.uid in ours}
    if present == ({owner.metadata.uid} if owner is not None else set()):
        return None
    others = [_document(each) for each in claim.metadata.owner_references if each.uid not in ours]
    return others if owner is None or kind is None else [*others, controller_reference(kind, owner)]


def _document(reference: OwnerReference) -> Document:
    document: Document = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "name": reference.name,
        "uid": reference.uid,
    }
    flags = {"controller": reference.controller, "blockOwnerDeletion": reference.block_owner_deletion}
    return document | {name: value for name, value in flags.items() if value is not None}


class ClaimControl:
    """Writes the claims of StatefulSets."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)

    async def create(self, stateful_set: StatefulSet, ordinal: int, record: Note) -> None:
        """Create the missing claims of a pod. Raises KubeError, and ClaimIsLeavingError."""
        namespace, pod = stateful_set.metadata.namespace, pod_name(stateful_set, ordinal)
        for body in new_claims(stateful_set, ordinal):
            name = body["metadata"]["name"]
            known = self._claims.get(f"{namespace}/{name}")
            if known is not None:
                if known.metadata.deletion_timestamp is not None:
                    raise ClaimIsLeavingError(f"pvc {name} is being deleted")
                continue
            what = f"Claim {name} Pod {pod} in StatefulSet {stateful_set.metadata.name}"
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, namespace)
            except ApiStatusError as error:
                if error.is_already_exists:
                    continue
                record("FailedCreate", f"Create {what} failed error: {error.message}")
                raise
            record("SuccessfulCreate", f"Create {what} success")

    async def see_to_owners(self, stateful_set: StatefulSet, pods: Sequence[tuple[int, Pod]]) -> None:
        """Give the claims of these pods the owners that the retention policy says. Raises KubeError."""
        namespace = stateful_set.metadata.namespace
        for ordinal, pod in pods:
            for _, name in claim_names(stateful_set, ordinal):
                claim = self._claims.get(f"{namespace}/{name}")
                wanted = wanted_references(stateful_set, pod, ordinal, claim) if claim is not None else None
                if claim is not None and wanted is not None:
                    await self._patch(claim, wanted)

    async def _patch(self, claim: Object, references: Sequence[Document]) -> None:
        metadata = claim.metadata
        fields: Document = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": fields | {"ownerReferences": list(references)}}
        try:
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, metadata.name, body, PatchType.MERGE, metadata.namespace)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
