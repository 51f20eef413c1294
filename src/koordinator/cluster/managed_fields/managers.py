"""Who owns which field: the entries of ``metadata.managedFields``, and what a write leaves to each manager.

The steps of structured-merge-diff's Updater. A manager's fields are paths of the version that it wrote in, so that
objects are compared in each of the versions that managers have used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.field_set import (
    EMPTY,
    Comparison,
    FieldSet,
    MalformedFields,
    compare,
    decoded,
    difference,
    encoded,
    intersection,
    reconciled,
    recursive_difference,
    union,
)
from koordinator.cluster.managed_fields.schema import Atom
from koordinator.cluster.managed_fields.versions import Versions
from koordinator.cluster.strategy.causes import go_quoted

APPLY: Final = "Apply"
UPDATE: Final = "Update"
_OPERATIONS: Final = (APPLY, UPDATE)
_FIELDS_TYPE: Final = "FieldsV1"
_MOST_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"
_REMEMBERED: Final = 1024
_LONGEST: Final = 16 << 10
"""Bytes of FieldsV1 that are remembered."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class MalformedManagers(KoordinatorError):
    """Entries that nobody could have written."""


class Identity(NamedTuple):
    """Whose fields they are. Who applies has one set, in whatever version; each version of an update has its own."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def shown(self) -> str:
        """As conflicts name it."""
        text = go_quoted(self.manager)
        if self.subresource:
            text += f" with subresource {go_quoted(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of one manager, as paths of ``api_version``."""

    fields: FieldSet
    api_version: str
    time: str | None = None
    """Of the last change; None for who applied only what was there already."""
    entry: Document | None = field(default=None, compare=False)
    """As it was read, which spares writing it anew."""

    def left(self, fields: FieldSet) -> Owned:
        """With other fields, or the same."""
        return self if fields == self.fields else Owned(fields, self.api_version, self.time)


Managers: TypeAlias = Mapping[Identity, Owned]


def read(entries: Iterable[Any], *, trusted: bool) -> dict[Identity, Owned]:
    """Raises MalformedManagers. ``trusted``: written by ``entries_of``, and stored since."""
    managers: dict[Identity, Owned] = {}
    for index, entry in enumerate(entries):
        operation, version = entry.get("operation") or "", entry.get("apiVersion") or ""
        if not trusted:
            _check(entry, index)
        manager, subresource = entry.get("manager") or "", entry.get("subresource") or ""
        who = Identity(manager, operation, "" if operation == APPLY else version, subresource)
        fields = entry.get("fieldsV1") or {}
        try:
            if trusted:
                managers[who] = Owned(fields, version, entry.get("time"), entry)
            else:
                managers[who] = Owned(decoded(fields), version, entry.get("time"))
        except MalformedFields as error:
            raise MalformedManagers(str(error)) from error
    return managers


def _check(entry: Document, index: int) -> None:
    if entry.get("operation") not in _OPERATIONS:
        raise MalformedManagers("operation must be `Apply` or `Update`")
    if not entry.get("apiVersion"):
        raise MalformedManagers("apiVersion must not be empty")
    kind = entry.get("fieldsType") or ""
    if kind != _FIELDS_TYPE:
        why = f"invalid fieldsType {go_quoted(kind)}" if kind else "missing fieldsType"
        raise MalformedManagers(f"{why} in managed fields entry {index}")


def entries_of(managers: Managers) -> list[Document]:
    """Appliers first, and then by time."""
    return [_entry(who, managers[who]) for who in sorted(managers, key=lambda who: _order(who, managers[who]))]


def _order(who: Identity, owned: Owned) -> tuple[str, ...]:
    return (who.operation, owned.time or "", who.manager, owned.api_version, who.subresource)


def _entry(who: Identity, owned: Owned) -> Document:
    if owned.entry is not None:
        return owned.entry
    return entry_of(who, owned.api_version, owned.time, encoded(owned.fields))


def entry_of(who: Identity, api_version: str, time: str | None, fields: Any) -> Document:
    """One entry; ``fields`` are FieldsV1."""
    entry: Document = {"manager": who.manager} if who.manager else {}
    entry |= {"operation": who.operation, "apiVersion": api_version}
    if time is not None:
        entry["time"] = time
    entry |= {"fieldsType": _FIELDS_TYPE, "fieldsV1": fields}
    return {**entry, "subresource": who.subresource} if who.subresource else entry


def capped(managers: Managers) -> Managers:
    """The oldest updates become one entry for each version, once there are too many of them."""
    updaters = sorted(
        (who for who in managers if who.operation != APPLY), key=lambda who: (managers[who].time or "", *who)
    )
    excess = len(updaters) - _MOST_UPDATERS
    if excess <= 0:
        return managers
    left = dict(managers)
    first: dict[str, Identity] = {}
    for who in updaters:
        if excess <= 0:
            break
        owned = managers[who]
        version = owned.api_version
        bucket = Identity(_ANCIENT, UPDATE, version)
        if version not in first:
            first[version] = who
            continue
        if bucket not in left:
            taken = left.pop(first[version])
            left[bucket] = Owned(taken.fields, version, taken.time)
        left[bucket] = Owned(union(left[bucket].fields, owned.fields), version, owned.time)
        if who != bucket:
            del left[who]
        excess -= 1
    return left


@lru_cache(_REMEMBERED)
def _reconciled(atom: Atom, content: bytes) -> FieldSet | None:
    """FieldsV1 under the schema of today; None where it changes nothing. Few objects have other fields than others."""
    fields = _decode(content)
    found = reconciled(fields, atom)
    return None if found == fields else found


class Conflicts(KoordinatorError):
    """Fields of others that an applied configuration would change."""

    def __init__(self, found: Mapping[Identity, FieldSet]) -> None:
        super().__init__("conflicts")
        self.found = found

    def without(self, allowed: FieldSet) -> Conflicts:
        """Those that are not allowed."""
        left = {who: difference(fields, allowed) for who, fields in self.found.items()}
        return Conflicts({who: fields for who, fields in left.items() if fields})


# What a write leaves to each of them.


@dataclass(frozen=True)
class Updater:
    """For writes of one version through one subresource."""

    versions: Versions
    api_version: str
    reset: FieldSet
    """Fields that the subresource does not write."""
    resets_all_versions: bool = True
    """The rules of custom resources know the version of the request alone."""

    @cached_property
    def atom(self) -> Atom:
        atom = self.versions.atom(self.api_version)
        assert atom is not None
        return atom

    def _atom(self, api_version: str) -> Atom | None:
        return self.atom if api_version == self.api_version else self.versions.atom(api_version)

    def update(
        self, live: Document, new: Document, managers: Managers, who: Identity
    ) -> tuple[dict[Identity, Owned], FieldSet]:
        """What others are left with, and ``who`` of what it had, and the fields that this write has taken. Raises
        TypedError."""
        left, comparison = self.settled(live, new, managers, None, force=True, keeps=who)
        return left, comparison.changed

    def owned(self, fields: FieldSet) -> FieldSet:
        """Without what the subresource does not write."""
        return recursive_difference(fields, self.reset)

    def reconciled(self, managers: Managers) -> Managers:
        """The fields of all managers, under what their versions' schemas are now."""
        found: dict[Identity, Owned] = {}
        for who, owned in managers.items():
            atom = self._atom(owned.api_version)
            if atom is not None:
                content = _encode(owned.fields)
                find = _reconciled if len(content) <= _LONGEST else _reconciled.__wrapped__
                found[who] = owned.left(owned.fields if (fields := find(atom, content)) is None else fields)
        return found

    def _compared(self, live: Document, new: Document, api_version: str) -> Comparison | None:
        """None for a version that is not served."""
        atom = self._atom(api_version)
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

    def settled(
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
                changed = comparison.changed if who != keeps else EMPTY
                if not force and (taken := intersection(owned.fields, changed)):
                    conflicts[who] = taken
                left[who] = owned.left(difference(owned.fields, union(changed, comparison.removed)))
        if conflicts:
            raise Conflicts(conflicts)
        return {who: owned for who, owned in left.items() if owned.fields}, own
