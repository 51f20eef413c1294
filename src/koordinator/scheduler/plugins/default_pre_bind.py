"""DefaultPreBind: writes the changes that PreBind plugins of a profile make to a pod or a reservation, in one request.

New annotations of a pod are part of its Binding: one request instead of two, and no pod has them without its node. What
a Binding cannot carry, labels and removed keys, is patched before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.kinds import PODS, RESERVATIONS
from koordinator.api.meta import ObjectMeta
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.binding_points import ClusterWriter, PodChanges
from koordinator.scheduler.engine.framework_hooks import PodPatcher
from koordinator.scheduler.engine.pod_info import PodInfo


class DefaultPreBind(PodPatcher):
    name = "DefaultPreBind"

    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        metadata = pod.pod.metadata
        patch = metadata_patch(metadata, changes)
        if patch is not None:
            await writer.patch(PODS, metadata.name, metadata.namespace, patch)
        return True

    def binding_annotations(self, pod: PodInfo, changes: PodChanges) -> Mapping[str, str] | None:
        metadata = pod.pod.metadata
        if _different(changes.labels, metadata.labels):
            return None
        different = _different(changes.annotations, metadata.annotations)
        found = {key: value for key, value in different.items() if value is not None}
        return found if len(found) == len(different) else None

    async def apply_reservation_changes(
        self, reservation: Reservation, changes: PodChanges, writer: ClusterWriter
    ) -> bool:
        patch = metadata_patch(reservation.metadata, changes)
        if patch is not None:
            await writer.patch(RESERVATIONS, reservation.metadata.name, "", patch)
        return True


def metadata_patch(metadata: ObjectMeta, changes: PodChanges) -> dict[str, Any] | None:
    """The merge patch that applies ``changes``; None when the object has them already.

    The uid in it makes the server refuse an object of the same name that was created since. That a pod is being deleted
    does not matter here: the server refuses to bind such a pod.
    """
    patch: dict[str, Any] = {}
    for field, wanted, present in (
        ("labels", changes.labels, metadata.labels),
        ("annotations", changes.annotations, metadata.annotations),
    ):
        if different := _different(wanted, present):
            patch[field] = different
    return {"metadata": {"uid": metadata.uid, **patch}} if patch else None


def _different(wanted: Mapping[str, str | None], present: Mapping[str, str]) -> dict[str, str | None]:
    """The entries of ``wanted`` that differ from ``present``. None removes a key."""
    return {key: value for key, value in wanted.items() if present.get(key) != value}
