"""The place between a prepared object and the store where others may change or refuse it.

Checks of our own come first, webhooks (in a later version) join the same chain: all ``mutate`` run before validation,
all ``validate`` after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.resource import Document, RequestContext
from koordinator.cluster.verbs.target import Target

_IMMORTAL_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))


@dataclass(frozen=True, slots=True)
class Attributes:
    """One write on its way to the store."""

    operation: Literal["CREATE", "UPDATE", "DELETE"]
    target: Target
    obj: Document | None
    """What will be written; None for a deletion."""
    old: Document | None
    context: RequestContext
    dry_run: bool = False


class Admission(Protocol):
    """A member of the chain; refuses by raising ApiError."""

    async def mutate(self, attributes: Attributes) -> bool:
        """Change ``attributes.obj`` in place; True when it did, so that defaults are filled in anew."""
        ...

    async def validate(self, attributes: Attributes) -> None: ...


class NamespaceLifecycle:
    """Nothing is created in a namespace that is absent or going; the system's namespaces stay."""

    async def mutate(self, attributes: Attributes) -> bool:
        target = attributes.target
        if attributes.operation != "CREATE" or not target.resource.namespaced or target.namespace is None:
            return False
        namespace = attributes.context.lookup("", "namespaces", None, target.namespace)
        if namespace is None:
            message = f'namespaces "{target.namespace}" not found'
            raise ApiError(404, "NotFound", message, {"name": target.namespace, "kind": "namespaces"})
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            error = forbidden(target.resource, target.name, why)
            message = f"namespace {target.namespace} is being terminated"
            error.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            ]
            raise error
        return False

    async def validate(self, attributes: Attributes) -> None:
        target = attributes.target
        is_namespace = target.resource.plural == "namespaces" and not target.resource.group
        if attributes.operation == "DELETE" and is_namespace and target.name in _IMMORTAL_NAMESPACES:
            raise forbidden(target.resource, target.name, "this namespace may not be deleted")
