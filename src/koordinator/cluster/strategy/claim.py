"""PersistentVolumeClaims: the default storage class, and which claims may grow."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.api.volume import BETA_STORAGE_CLASS
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.storage_rules import claim
from koordinator.model.default_storage_class import default_storage_class

_GROUP: Final = "storage.k8s.io"
_PLURAL: Final = "storageclasses"
_NO_GROWTH: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


class ClaimStrategy(ObjectStrategy):
    """The protection finalizer is left to the controller that takes it away again: without one, no claim would go."""

    def __init__(self) -> None:
        super().__init__("v1", "PersistentVolumeClaim", table=tables.PERSISTENT_VOLUME_CLAIM, status=True, check=claim)

    def admit(self, obj: Document, context: RequestContext) -> None:
        """The admission plugin DefaultStorageClass."""
        if obj["spec"].get("storageClassName") is not None or _beta_class(obj) is not None:
            return
        found = (each["metadata"] for each in context.list_objects(_GROUP, _PLURAL))
        name = default_storage_class(
            (each.get("creationTimestamp") or "", each["name"], each.get("annotations") or {}) for each in found
        )
        if name:
            obj["spec"]["storageClassName"] = name

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        """The admission plugin PersistentVolumeClaimResize. Raises ApiError 403."""
        is_bound = (old.get("status") or {}).get("phase") == "Bound"
        if not is_bound or _requested(obj) <= _requested(old) or _may_grow(old, context):
            return
        name = obj["metadata"]["name"]
        message = f'persistentvolumeclaims "{name}" is forbidden: {_NO_GROWTH}'
        raise ApiError(403, "Forbidden", message, {"name": name, "kind": "persistentvolumeclaims"})


def _may_grow(obj: Document, context: RequestContext) -> bool:
    named = _beta_class(obj)
    name = obj["spec"].get("storageClassName") if named is None else named
    storage_class = context.lookup(_GROUP, _PLURAL, None, name) if name else None
    return storage_class is not None and bool(storage_class.get("allowVolumeExpansion"))


def _beta_class(obj: Document) -> str | None:
    name: str | None = (obj["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    return name


def _requested(obj: Document) -> int:
    amount = ((obj["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    return 0 if amount is None else Quantity.parse(amount).nanos
