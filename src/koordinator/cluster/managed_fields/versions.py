"""The versions of one served kind, as the fields of managers need them: their types, and what a write cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.managed_fields.field_set import of_fields
from koordinator.cluster.managed_fields.schema import Atom, of_kind
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.strategy.metadata import kept_by_status


class Versions(Protocol):
    """The versions of one kind."""

    def atom(self, api_version: str) -> Atom | None:
        """Its type; None for a version that is not served."""
        ...

    def convert(self, obj: Document, api_version: str) -> Document | None:
        """An object of the kind in another version; None for one that is not served."""
        ...


class ServedVersions:
    """Of the kind of ``resource``."""

    def __init__(self, registry: Registry, resource: Resource) -> None:
        self._registry = registry
        self._resource = resource

    def atom(self, api_version: str) -> Atom | None:
        """The type of the kind in a version; None for a version that is not served."""
        resource = self._find(api_version)
        return None if resource is None else atom_of(resource)

    def convert(self, obj: Document, api_version: str) -> Document | None:
        """``obj`` itself where it has that version; None for a version that is not served."""
        if obj.get("apiVersion") == api_version:
            return obj
        source, wanted = self._find(str(obj.get("apiVersion"))), self._find(api_version)
        if source is None or wanted is None:
            return None
        converted: Document = copied(obj)
        if source.to_stored is not None:
            converted = source.to_stored(converted)
        converted = {**converted, "apiVersion": api_version, "kind": wanted.kind}
        return converted if wanted.from_stored is None else wanted.from_stored(converted)

    def _find(self, api_version: str) -> Resource | None:
        if api_version == self._resource.api_version:
            return self._resource
        group, _, version = api_version.rpartition("/")
        return self._registry.served.get((group, version, self._resource.plural))


def atom_of(resource: Resource) -> Atom:
    """The type of a whole object."""
    return resource.atom or _built_in(resource.api_version, resource.kind)


@cache
def _built_in(api_version: str, kind: str) -> Atom:
    object_type = kind_type(api_version, kind)
    assert object_type is not None, f"no table of {api_version} {kind}"
    return of_kind(object_type)


def empty_object(resource: Resource) -> Document:
    """What a new object is compared with: the zero value of its type."""
    fresh: Document = copied(zero_object(resource.api_version, resource.kind))
    return fresh


@cache
def zero_object(api_version: str, kind: str) -> Document:
    """The same, shared: not to be changed."""
    object_type = kind_type(api_version, kind)
    zero: Document = {}
    if object_type is not None:
        canonicalize(zero, object_type)
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, **zero}


# Fields that a write through one path does not change, whatever it sends, and hence does not own.


_BY_NAME: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("CertificateSigningRequest", ""): ("spec", "status"),
    ("CertificateSigningRequest", "status"): ("spec", "status.conditions"),
    ("CertificateSigningRequest", "approval"): ("spec", "status.certificate"),
    # Whoever sends a field through these is its manager, even where the pod stays as it was: so says the real server.
    ("Pod", "resize"): (),
    ("Pod", "ephemeralcontainers"): (),
}


def reset_names(resource: Resource, subresource: str) -> tuple[str, ...]:
    """By the rules of the kind's strategy, as ``metadata.labels``."""
    found = _BY_NAME.get((resource.kind, subresource)) if resource.schema is None else None
    if found is not None:
        return found
    if subresource == "status":
        return kept_by_status(resource.api_version, resource.kind)
    return ("status",) if "status" in resource.subresources else ()


reset_fields = cache(of_fields)
"""The set of these names."""
