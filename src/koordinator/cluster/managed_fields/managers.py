"""The entries of ``metadata.managedFields``: who owns which fields, since when, by which version and subresource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.field_set import FieldSet, MalformedFields, decoded, encoded, union
from koordinator.cluster.strategy.causes import go_quoted

APPLY: Final = "Apply"
UPDATE: Final = "Update"
_OPERATIONS: Final = (APPLY, UPDATE)
_FIELDS_TYPE: Final = "FieldsV1"
_MOST_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"


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
