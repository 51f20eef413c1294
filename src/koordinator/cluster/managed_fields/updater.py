"""Who owns which field after a write: the merge of applied configurations, conflicts, and what nobody applies any more.

The steps of structured-merge-diff's Updater. A manager's fields are paths of the version that it wrote in, so that
objects are compared in each of the versions that managers have used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Protocol

from koordinator.api.document import Document, copied, same
from koordinator.api.kubernetes_types.canonical import canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.field_set import (
    EMPTY,
    FieldSet,
    difference,
    intersection,
    of_fields,
    paths,
    reconciled,
    recursive_difference,
    union,
    with_named_fields,
)
from koordinator.cluster.managed_fields.managers import Identity, Managers, Owned
from koordinator.cluster.managed_fields.merge import merge, remove
from koordinator.cluster.managed_fields.schema import Atom, of_kind
from koordinator.cluster.managed_fields.typed import Comparison, compare, to_set
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.strategy.metadata import kept_by_status


class Conflicts(KoordinatorError):
    """Fields of others that an applied configuration would change."""

    def __init__(self, found: Mapping[Identity, FieldSet]) -> None:
        super().__init__("conflicts")
        self.found = found

    def without(self, allowed: FieldSet) -> Conflicts:
        """Those that are not allowed."""
        left = {who: difference(fields, allowed) for who, fields in self.found.items()}
        return Conflicts({who: fields for who, fields in left.items() if fields})


class Versions(Protocol):
    """The versions of one kind."""

    def atom(self, api_version: str) -> Atom | None:
        """Its type; None for a version that is not served."""
        ...

    def convert(self, obj: Document, api_version: str) -> Document | None:
        """An object of the kind in another version; None for one that is not served."""
        ...


@dataclass(frozen=True, slots=True)
class Updater:
    """For writes of one version through one subresource."""

    versions: Versions
    api_version: str
    reset: FieldSet
    """Fields that the subresource does not write."""
    resets_all_versions: bool = True
    """The rules of custom resources know the version of the request alone."""

    @property
    def _atom(self) -> Atom:
        atom = self.versions.atom(self.api_version)
        assert atom is not None
        return atom

    def update(
        self, live: Document, new: Document, managers: Managers, who: Identity
    ) -> tuple[dict[Identity, Owned], FieldSet]:
        """What others are left with, and ``who`` of what it had, and the fields that this write has taken. Raises
        TypedError."""
        left, comparison = self._settled(live, new, managers, None, force=True, keeps=who)
        return left, comparison.changed

    def apply(
        self, live: Document, config: Document, managers: Managers, who: Identity, *, force: bool
    ) -> tuple[Document | None, dict[Identity, Owned]]:
        """The new object, None where nothing changes, and its managers. Raises Conflicts and TypedError."""
        managers = self.reconciled(managers)
        merged = merge(self._atom, live, config)
        last = managers.get(who)
        fields = self.owned(to_set(self._atom, config))
        wanted = {**managers, who: Owned(fields, self.api_version, last.time if last is not None else None)}
        merged = self._pruned(merged, wanted, last)
        settled, _ = self._settled(live, merged, wanted, who, force=force)
        return (None if same(live, merged) else merged), settled

    def owned(self, fields: FieldSet) -> FieldSet:
        """Without what the subresource does not write."""
        return recursive_difference(fields, self.reset)

    def reconciled(self, managers: Managers) -> Managers:
        """The fields of all managers, under what their versions' schemas are now."""
        found: dict[Identity, Owned] = {}
        for who, owned in managers.items():
            atom = self.versions.atom(owned.api_version)
            if atom is not None:
                found[who] = owned.left(reconciled(owned.fields, atom))
        return found

    def _compared(self, live: Document, new: Document, api_version: str) -> Comparison | None:
        """None for a version that is not served."""
        atom = self.versions.atom(api_version)
        if atom is None:
            return None
        if api_version != self.api_version:
            old, changed = self.versions.convert(live, api_version), self.versions.convert(new, api_version)
            if old is None or changed is None:
                return None
            live, new = old, changed
        found = compare(atom, live, new)
        resets = self.resets_all_versions or api_version == self.api_version
        return found.without(self.owned) if resets else found

    def _settled(
        self,
        live: Document,
        new: Document,
        managers: Managers,
        writer: Identity | None,
        *,
        force: bool,
        keeps: Identity | None = None,
    ) -> tuple[dict[Identity, Owned], Comparison]:
        """Take from all but the writer what has changed; a manager of a version that is no more is forgotten.

        ``keeps`` loses only what is not there any more."""
        own = self._compared(live, new, self.api_version)
        assert own is not None
        compared: dict[str, Comparison | None] = {self.api_version: own}
        conflicts: dict[Identity, FieldSet] = {}
        left: dict[Identity, Owned] = {}
        for who, owned in managers.items():
            left[who] = owned
            if who == writer:
                continue
            if owned.api_version not in compared:
                compared[owned.api_version] = self._compared(live, new, owned.api_version)
            comparison = compared[owned.api_version]
            if comparison is None:
                del left[who]
            elif comparison:
                taken = intersection(owned.fields, comparison.changed) if who != keeps else EMPTY
                if taken:
                    conflicts[who] = taken
                left[who] = owned.left(difference(difference(owned.fields, taken), comparison.removed))
        if conflicts and not force:
            raise Conflicts(conflicts)
        return {who: owned for who, owned in left.items() if owned.fields}, own

    # Pruning: what the manager applied last time and does not now goes, unless somebody else has it, too.

    def _pruned(self, merged: Document, managers: Managers, last: Owned | None) -> Document:
        if last is None or not last.fields:
            return merged
        version = last.api_version
        atom, converted = self.versions.atom(version), self.versions.convert(merged, version)
        if atom is None or converted is None:
            return merged
        named = partial(with_named_fields, atom=atom)
        pruned = remove(atom, converted, named(last.fields))
        pruned = self._with_owned(converted, pruned, version, managers)
        kept = named(to_set(atom, pruned))
        gone = intersection(difference(named(to_set(atom, converted)), kept), named(last.fields))
        result = self.versions.convert(remove(atom, converted, gone), self.api_version)
        assert result is not None
        return result

    def _with_owned(self, merged: Document, pruned: Document, version: str, managers: Managers) -> Document:
        """Put back what somebody owns, the fields of the version in which it was pruned first."""
        owned: dict[str, FieldSet] = {version: EMPTY}
        for each in managers.values():
            owned[each.api_version] = union(owned.get(each.api_version, EMPTY), each.fields)
        for api_version, fields in owned.items():
            atom, whole = self.versions.atom(api_version), self.versions.convert(merged, api_version)
            part = self.versions.convert(pruned, api_version)
            if atom is None or whole is None or part is None:
                continue
            named = partial(with_named_fields, atom=atom)
            kept = union(named(to_set(atom, part)), named(fields))
            merged, pruned = whole, remove(atom, whole, difference(named(to_set(atom, whole)), kept))
        result = self.versions.convert(pruned, version)
        assert result is not None
        return result


def conflicting_paths(conflicts: Conflicts) -> list[tuple[Identity, tuple[str, ...]]]:
    """Each field, by manager."""
    return [(who, path) for who in sorted(conflicts.found) for path in paths(conflicts.found[who])]


# The versions of one served kind, as the fields of its managers need them.


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
        return self._registry.find(group, version, self._resource.plural)


def atom_of(resource: Resource) -> Atom:
    """The type of a whole object."""
    if resource.atom is not None:
        return resource.atom
    object_type = kind_type(resource.api_version, resource.kind)
    assert object_type is not None, f"no table of {resource.api_version} {resource.kind}"
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
