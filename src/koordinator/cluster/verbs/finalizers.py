"""What keeps an object that was asked to go."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource

CUSTOM_RESOURCE_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def blocks_removal(resource: Resource, obj: Document) -> bool:
    """Namespaces hold themselves by ``spec.finalizers`` beside what every object has in its metadata."""
    if obj["metadata"].get("finalizers"):
        return True
    return is_namespace(resource) and bool((obj.get("spec") or {}).get("finalizers"))


def is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces" and not resource.group


def claim(resource: Resource, obj: Document) -> None:
    """The first request to delete a CustomResourceDefinition makes it wait for its objects to go."""
    metadata = obj["metadata"]
    if resource.plural != "customresourcedefinitions" or metadata.get("deletionTimestamp"):
        return
    finalizers = metadata.get("finalizers") or []
    if CUSTOM_RESOURCE_CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, CUSTOM_RESOURCE_CLEANUP]
