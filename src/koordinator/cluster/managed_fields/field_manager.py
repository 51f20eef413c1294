"""What the verbs ask: the managers of an object that is written. ``applied`` has what server-side apply adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api.document import Document, same
from koordinator.cluster.managed_fields.field_set import (
    FieldSet,
    compare,
    difference,
    encoded,
    of_fields,
    recursive_difference,
    union,
)
from koordinator.cluster.managed_fields.managers import (
    APPLY,
    UPDATE,
    Identity,
    MalformedManagers,
    Managers,
    Owned,
    Updater,
    capped,
    entries_of,
    entry_of,
    read,
)
from koordinator.cluster.managed_fields.schema import Atom, TypedError
from koordinator.cluster.managed_fields.versions import (
    ServedVersions,
    atom_of,
    empty_object,
    reset_fields,
    reset_names,
    zero_object,
)
from koordinator.cluster.resource import Registry, Resource

T = TypeVar("T")

MANAGED_FIELDS: Final = "managedFields"
_UNKNOWN: Final = "unknown"
_UNREADABLE: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: "
)
_IDENTITY: Final = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip
"""Members of metadata that the server keeps itself, or that tell the object."""
OWNED_BY_NOBODY: Final[FieldSet] = of_fields(
    "apiVersion", "kind", "metadata", *(f"metadata.{name}" for name in _IDENTITY)
)
_TEMPLATES: Final = 1024
"""So many are remembered."""
_LONGEST_TEMPLATE: Final = 16 << 10
"""Bytes."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class FieldManager:
    """Of the writes of one ``manager`` to one kind, through ``subresource``; ``now`` is the time of the request."""

    registry: Registry
    resource: Resource
    subresource: str
    manager: str
    now: str

    @property
    def updater(self) -> Updater:
        return self._derived(_updater)

    def _derived(self, make: Callable[[FieldManager], T]) -> T:
        """What ``make`` has made for writes of this kind, until what is served changes."""
        known, key = self.registry.derived, (make, id(self.resource), self.subresource)
        found = known.get(key)
        if found is None:
            # With the resource, so that no other one can have this id meanwhile.
            found = known[key] = self.resource, make(self)
        made: T = found[1]
        return made

    def identity(self, operation: str, manager: str = "") -> Identity:
        version = "" if operation == APPLY else self.resource.api_version
        return Identity(manager or self.manager or _UNKNOWN, operation, version, self.subresource)

    # Create, update and all patches but that of apply.

    def decode(self, obj: Document, live: Document | None = None) -> None:
        """Give what a client sent the server's form, with its managers: those that ``live`` has, which it is about to
        replace, or that the request itself has brought along, and the author of the request. Raises ApiError 400.

        A new object has no ``live`` one."""
        # A patch shares with the old object what it leaves alone.
        obj["metadata"] = {**obj["metadata"]}
        # Nothing stays of an empty list, which is a request of its own.
        resets = _resets(obj["metadata"].get(MANAGED_FIELDS))
        self.resource.strategy.decode(obj, live)
        sent = obj["metadata"].pop(MANAGED_FIELDS, None)
        stored = (live["metadata"].get(MANAGED_FIELDS) or []) if live is not None else []
        if resets and not self.subresource:
            sent, stored = None, []
        try:
            set_managers(obj, self._entries(live, obj, sent, stored))
        except TypedError:
            # An object that its schema cannot describe is stored without managers, and refused where it is validated.
            untracked(obj)

    def _entries(self, live: Document | None, obj: Document, sent: Any, stored: list[Any]) -> list[Document]:
        managers, own = self._managers(sent, stored)
        if live is None and not managers:
            return self._entries_of_new(obj)
        if live is not None and not managers:
            # Its fields were not tracked before, or a client has asked for them not to be any more.
            return []
        before = _without_managers(live) if live is not None else empty_object(self.resource)
        left, changed = self.updated(before, obj, managers, own_schema=own)
        if not own and not changed and left == managers:
            return stored
        return entries_of(left)

    def _entries_of_new(self, obj: Document) -> list[Document]:
        """Many objects are made of the same template, and then the same fields are theirs."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _IDENTITY}
        content = _encode({**obj, "metadata": metadata})
        find = _entry_of_new if len(content) <= _LONGEST_TEMPLATE else _entry_of_new.__wrapped__
        entry = find(*self._derived(_template_kind), self.manager or _UNKNOWN, content)
        return [] if entry is None else [{**entry, "time": self.now}]

    def _managers(self, sent: Any, stored: list[Any]) -> tuple[dict[Identity, Owned], bool]:
        """Those that the request brings along, if it does; True for them. A malformed list counts as none."""
        if not self.subresource and sent and sent != stored:
            try:
                if managers := read(sent, trusted=False):
                    return managers, True
            except MalformedManagers:
                pass
        return read(stored, trusted=True) if stored else {}, False

    def updated(
        self, live: Document, obj: Document, managers: Managers, *, own_schema: bool, manager: str = ""
    ) -> tuple[Managers, FieldSet]:
        updater = self.updater
        if own_schema or self.resource.schema is not None:
            managers = updater.reconciled(managers)
        who = self.identity(UPDATE, manager)
        left, changed = updater.update(live, obj, managers, who)
        changed = difference(changed, OWNED_BY_NOBODY)
        if changed:
            left[who] = self._with(left.get(who), changed, who)
        return capped(left), changed

    def _with(self, known: Owned | None, changed: FieldSet, who: Identity) -> Owned:
        """What was known and what has changed, now."""
        version = self.resource.api_version
        if known is None:
            return Owned(changed, version, self.now)
        if known.entry is None or difference(changed, known.fields):
            return Owned(union(known.fields, changed), version, self.now)
        # Most writers write the same fields again and again.
        return Owned(known.fields, version, self.now, entry_of(who, version, self.now, known.entry["fieldsV1"]))


def _updater(writes: FieldManager) -> Updater:
    resource = writes.resource
    versions = ServedVersions(writes.registry, resource)
    reset = reset_fields(*reset_names(resource, writes.subresource))
    return Updater(versions, resource.api_version, reset, resource.schema is None)


def _template_kind(writes: FieldManager) -> tuple[Atom, str, str, tuple[str, ...]]:
    """What the entry of a new object depends on, without the resource itself."""
    resource = writes.resource
    return atom_of(resource), resource.api_version, resource.kind, reset_names(resource, "")


@lru_cache(_TEMPLATES)
def _entry_of_new(
    atom: Atom, api_version: str, kind: str, reset: tuple[str, ...], manager: str, content: bytes
) -> Document | None:
    """That of the author of a new object, without its time; None where there is nothing to own. Raises TypedError."""
    found = compare(atom, zero_object(api_version, kind), _decode(content)).changed
    fields = difference(recursive_difference(found, reset_fields(*reset)), OWNED_BY_NOBODY)
    who = Identity(manager, UPDATE, api_version)
    return entry_of(who, api_version, "", encoded(fields)) if fields else None


def set_managers(obj: Document, entries: list[Document]) -> None:
    """Without any, the field is not there."""
    obj["metadata"].pop(MANAGED_FIELDS, None)
    if entries:
        obj["metadata"][MANAGED_FIELDS] = entries


def untracked(obj: Document) -> None:
    """Of a server that does not track fields."""
    obj["metadata"].pop(MANAGED_FIELDS, None)


def keep_readable(obj: Document, before: Any, warnings: list[str]) -> None:
    """After others have changed ``obj``: managers that nobody can read become those that were there ``before``."""
    found = obj["metadata"].get(MANAGED_FIELDS)
    if not found or found == before:
        return
    try:
        obj["metadata"][MANAGED_FIELDS] = entries_of(read(found, trusted=False))
    except MalformedManagers as error:
        untracked(obj)
        if before:
            obj["metadata"][MANAGED_FIELDS] = before
        warnings.append(f"{_UNREADABLE}{error}")


def _resets(sent: Any) -> bool:
    """Whether a client asks for fields not to be tracked."""
    return sent in ([], [{}])


def keep_times(obj: Document, old: Document) -> None:
    """A write that changes nothing but when a manager wrote last is none."""
    new, known = obj["metadata"].get(MANAGED_FIELDS), old["metadata"].get(MANAGED_FIELDS)
    if not new or not known or new == known or len(new) != len(known):
        return
    if any({**one, "time": None} != {**other, "time": None} for one, other in zip(new, known, strict=True)):
        return
    if same(_without_managers(obj), _without_managers(old)):
        obj["metadata"][MANAGED_FIELDS] = known


def _without_managers(obj: Document) -> Document:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != MANAGED_FIELDS}}
