"""Plugins of volumes and claims: DefaultStorageClass, StorageObjectInUseProtection, PersistentVolumeClaimResize."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.api.volume import BETA_STORAGE_CLASS
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.verbs.environment import Attributes
from koordinator.model.default_storage_class import default_storage_class

_CLAIMS: Final = ("", "persistentvolumeclaims")
_CLASSES: Final = ("storage.k8s.io", "storageclasses")
_NOT_BOUND: Final = "Only bound persistent volume claims can be expanded"
_NO_GROWTH: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)
_PROTECTION: Final = {
    "persistentvolumes": "kubernetes.io/pv-protection",
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
}


class DefaultStorageClass(Plugin):
    """A claim that names no class gets the default one."""

    name = "DefaultStorageClass"
    resources = (_CLAIMS,)

    async def mutate(self, attributes: Attributes) -> None:
        claim = attributes.obj
        assert claim is not None
        if claim["spec"].get("storageClassName") is not None or _beta_class(claim) is not None:
            return
        found = (each["metadata"] for each in attributes.context.list_objects(*_CLASSES))
        name = default_storage_class(
            (each.get("creationTimestamp") or "", each["name"], each.get("annotations") or {}) for each in found
        )
        if name:
            claim["spec"]["storageClassName"] = name


class StorageObjectInUseProtection(Plugin):
    """What is in use is not deleted. Runs where a controller takes the finalizers away again: elsewhere, nothing of
    these kinds could ever be deleted."""

    name = "StorageObjectInUseProtection"
    resources = (_CLAIMS, ("", "persistentvolumes"))

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        metadata = attributes.obj["metadata"]
        finalizer = _PROTECTION[attributes.target.resource.plural]
        if finalizer not in (metadata.get("finalizers") or ()):
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), finalizer]


class PersistentVolumeClaimResize(Plugin):
    """A claim grows only where the class that its volume was made for lets it."""

    name = "PersistentVolumeClaimResize"
    resources = (_CLAIMS,)
    operations = ("UPDATE",)

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403."""
        claim, old = attributes.obj, attributes.old
        assert claim is not None
        assert old is not None
        if _requested(claim) <= _requested(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise refused(attributes, _NOT_BOUND)
        if _class_of(claim) != _class_of(old) or not _may_grow(old, attributes.context):
            raise refused(attributes, _NO_GROWTH)


def _may_grow(claim: Document, context: RequestContext) -> bool:
    name = _class_of(claim)
    storage_class = context.lookup(*_CLASSES, None, name) if name else None
    return storage_class is not None and bool(storage_class.get("allowVolumeExpansion"))


def _class_of(claim: Document) -> str:
    named = _beta_class(claim)
    return (claim["spec"].get("storageClassName") if named is None else named) or ""


def _beta_class(claim: Document) -> str | None:
    name: str | None = (claim["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    return name


def _requested(claim: Document) -> int:
    amount = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    return 0 if amount is None else Quantity.parse(amount).nanos
