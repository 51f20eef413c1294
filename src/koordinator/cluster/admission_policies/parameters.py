"""The objects that a binding gives a policy as parameters (k8s.io/apiserver, ``policy/generic``)."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.admission_policies.constraints import Binding
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.selection import compile_selector
from koordinator.cluster.verbs.target import Target, decode


class ParameterError(KoordinatorError):
    """There are none to be had; the failure policy says what follows."""

    def __init__(self, why: str, *, of_policy: bool = False) -> None:
        super().__init__(f"{'policy' if of_policy else 'binding'}: {why}")
        self.of_policy = of_policy


def parameters(
    kind: Document | None, binding: Binding, namespace: str, storage: Storage, registry: Registry
) -> Sequence[Document | None]:
    """The policy is evaluated once for each; None is no parameter. ``kind`` is what the policy says of them,
    ``namespace`` that of the request.

    Raises ParameterError.
    """
    reference = binding.parameter
    if kind is None:
        return [None]
    resource = _found(kind, registry)
    if reference is None:
        return [None]
    found = _named(resource, reference, _namespace(resource, reference, namespace), storage)
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise ParameterError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def _found(kind: Document, registry: Registry) -> Resource:
    """Raises ParameterError for a kind that is not served."""
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    for resource in registry:
        if resource.api_version == version and resource.kind == name:
            return resource
    why = f"failed to find resource referenced by paramKind: '{version}, Kind={name}'"
    raise ParameterError(why, of_policy=True)


def _namespace(resource: Resource, reference: Document, namespace: str) -> str | None:
    given = reference.get("namespace") or ""
    if not resource.namespaced:
        if given:
            raise ParameterError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return None
    if not given and not namespace:
        raise ParameterError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return given or namespace


def _named(resource: Resource, reference: Document, namespace: str | None, storage: Storage) -> list[Document | None]:
    if name := reference.get("name"):
        stored = storage.get(Target(resource, namespace, name).key)
        return [] if stored is None else [decode(resource, stored)]
    matches = compile_selector(reference.get("selector"))
    found = [decode(resource, stored) for stored in storage.list(Target(resource, namespace).prefix).items]
    return [obj for obj in found if matches is None or matches(obj["metadata"].get("labels") or {})]
