"""NamespaceLifecycle: nothing is created in a namespace that is absent or going; the system's namespaces stay."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.verbs.environment import Attributes
from koordinator.cluster.verbs.target import is_namespace

_IMMORTAL: Final = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle(Plugin):
    name = "NamespaceLifecycle"
    operations = ("CREATE", "DELETE")
    subresources = ()

    async def mutate(self, attributes: Attributes) -> None:
        target = attributes.target
        if attributes.operation != "CREATE" or not target.resource.namespaced or target.namespace is None:
            return
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

    async def validate(self, attributes: Attributes) -> None:
        target = attributes.target
        doomed = attributes.operation == "DELETE" and is_namespace(target.resource)
        if doomed and target.name in _IMMORTAL:
            raise forbidden(target.resource, target.name, "this namespace may not be deleted")
