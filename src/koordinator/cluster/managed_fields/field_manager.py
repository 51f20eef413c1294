"""What the verbs ask: the managers of an object that is written, and the object that an applied configuration makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.managed_fields.elements import path_text
from koordinator.cluster.managed_fields.field_set import (
    EMPTY,
    FieldSet,
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
    capped,
    entries_of,
    entry_of,
    read,
)
from koordinator.cluster.managed_fields.schema import Atom
from koordinator.cluster.managed_fields.typed import TypedError, check, compare, to_set
from koordinator.cluster.managed_fields.updater import (
    Conflicts,
    ServedVersions,
    Updater,
    atom_of,
    conflicting_paths,
    empty_object,
    reset_fields,
    reset_names,
    zero_object,
)
from koordinator.cluster.resource import Registry, Resource

MANAGED_FIELDS: Final = "managedFields"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CONFLICT: Final = "FieldManagerConflict"
_UNKNOWN: Final = "unknown"
_UNREADABLE: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: "
)
_BEFORE_FIRST_APPLY: Final = "before-first-apply"
_KUBECTL: Final = "kubectl"
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_IDENTITY: Final = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip
"""Members of metadata that the server keeps itself, or that tell the object."""
_OWNED_BY_NOBODY: Final[FieldSet] = of_fields(
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
    def _updater(self) -> Updater:
        resource = self.resource
        versions = ServedVersions(self.registry, resource)
        reset = reset_fields(*reset_names(resource, self.subresource))
        return Updater(versions, resource.api_version, reset, resource.schema is None)

    def _identity(self, operation: str, manager: str = "") -> Identity:
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
        left, changed = self._updated(before, obj, managers, own_schema=own)
        if not own and not changed and left == managers:
            return stored
        return entries_of(left)

    def _entries_of_new(self, obj: Document) -> list[Document]:
        """Many objects are made of the same template, and then the same fields are theirs."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _IDENTITY}
        content = _encode({**obj, "metadata": metadata})
        resource = self.resource
        find = _fields_of_new if len(content) <= _LONGEST_TEMPLATE else _fields_of_new.__wrapped__
        fields = find(atom_of(resource), resource.api_version, resource.kind, reset_names(resource, ""), content)
        if not fields:
            return []
        return [entry_of(self._identity(UPDATE), resource.api_version, self.now, fields)]

    def _managers(self, sent: Any, stored: list[Any]) -> tuple[dict[Identity, Owned], bool]:
        """Those that the request brings along, if it does; True for them. A malformed list counts as none."""
        if not self.subresource and sent and sent != stored:
            try:
                if managers := read(sent, trusted=False):
                    return managers, True
            except MalformedManagers:
                pass
        return read(stored, trusted=True), False

    def _updated(
        self, live: Document, obj: Document, managers: Managers, *, own_schema: bool, manager: str = ""
    ) -> tuple[Managers, FieldSet]:
        updater = self._updater
        if own_schema or self.resource.schema is not None:
            managers = updater.reconciled(managers)
        who = self._identity(UPDATE, manager)
        left, changed = updater.update(live, obj, managers, who)
        changed = difference(changed, _OWNED_BY_NOBODY)
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

    # Server-side apply.

    def applied(self, live: Document | None, config: Document, *, force: bool) -> Document:
        """The object with an applied configuration merged into it, and with its managers.

        ``live`` is None where there is none yet. Raises ApiError: 400 and 500 for a configuration that does not fit the
        kind, 409 for one that would change fields of others.
        """
        self._check(config)
        old = empty_object(self.resource) if live is None else copied(live)
        managers: Managers = read(old["metadata"].pop(MANAGED_FIELDS, None) or [], trusted=True)
        try:
            check(atom_of(self.resource), config)
        except TypedError as error:
            raise self._untyped(config, error) from error
        if not managers:
            managers, _ = self._updated(
                empty_object(self.resource), old, {}, own_schema=False, manager=_BEFORE_FIRST_APPLY
            )
        try:
            obj, owners = self._merged(old, config, managers, force=force)
        except Conflicts as conflicts:
            raise _conflict_error(conflicts) from conflicts
        except TypedError as error:
            raise ApiError(500, "", f"failed to merge config: {error}") from error
        if self.manager == _KUBECTL:
            _sync_last_applied(obj, config)
        obj["metadata"] = obj.get("metadata") or {}
        set_managers(obj, entries_of(owners))
        return obj

    def _check(self, config: Document) -> None:
        """Raises ApiError 400."""
        found = _group_version_kind(config)
        resource = self.resource
        if found != (resource.group, resource.version, resource.kind):
            raise bad_request(f"invalid object type: {_shown(*found)}")
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get(MANAGED_FIELDS), list):
            raise bad_request("metadata.managedFields must be nil")

    def _untyped(self, config: Document, error: TypedError) -> ApiError:
        metadata = config.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        kind = _shown(self.resource.group, self.resource.version, self.resource.kind)
        return ApiError(500, "", f"failed to create typed patch object ({name}; {kind}): {error}")

    def _merged(
        self, live: Document, config: Document, managers: Managers, *, force: bool
    ) -> tuple[Document, Managers]:
        who = self._identity(APPLY)
        updater = self._updater
        try:
            obj, owners = updater.apply(live, config, managers, who, force=force)
        except Conflicts as conflicts:
            if self.manager != _KUBECTL:
                raise
            # What kubectl has applied by itself it may go on to apply through the server.
            left = conflicts.without(self._last_applied(live))
            if left.found:
                raise left from conflicts
            obj, owners = updater.apply(live, config, managers, who, force=True)
        owned = owners.get(who)
        if owned is not None:
            fields = difference(owned.fields, _OWNED_BY_NOBODY)
            del owners[who]
            if fields:
                time = self.now if obj is not None else owned.time
                owners[who] = Owned(fields, self.resource.api_version, time)
        return copied(live if obj is None else obj), owners

    def _last_applied(self, live: Document) -> FieldSet:
        """The fields that ``kubectl apply`` has set and nobody has changed since."""
        text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
        try:
            applied = msgspec.json.decode(text or "")
            if not isinstance(applied, dict) or applied.get("apiVersion") != self.resource.api_version:
                return EMPTY
            atom = atom_of(self.resource)
            check(atom, applied)
            changes = compare(atom, applied, live)
            return difference(difference(to_set(atom, applied), changes.changed), changes.removed)
        except (msgspec.DecodeError, TypedError, RecursionError):
            return EMPTY


@lru_cache(_TEMPLATES)
def _fields_of_new(atom: Atom, api_version: str, kind: str, reset: tuple[str, ...], content: bytes) -> FieldSet:
    """The fields of a new object, written as FieldsV1. Raises TypedError."""
    found = compare(atom, zero_object(api_version, kind), _decode(content)).changed
    fields: FieldSet = encoded(difference(recursive_difference(found, reset_fields(*reset)), _OWNED_BY_NOBODY))
    return fields


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


def _sync_last_applied(obj: Document, config: Document) -> None:
    annotations = (obj.get("metadata") or {}).get("annotations")
    if not isinstance(annotations, dict) or not annotations.get(LAST_APPLIED):
        return
    bare = copied(config)
    given = (bare.get("metadata") or {}).get("annotations")
    if isinstance(given, dict):
        given.pop(LAST_APPLIED, None)
    annotations[LAST_APPLIED] = msgspec.json.encode(bare, order="sorted").decode() + "\n"
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        del annotations[LAST_APPLIED]


def _group_version_kind(config: Document) -> tuple[str, str, str]:
    version, kind = config.get("apiVersion"), config.get("kind")
    version, kind = version if isinstance(version, str) else "", kind if isinstance(kind, str) else ""
    if version.count("/") > 1:
        return "", "", ""
    group, _, name = version.rpartition("/")
    return group, name, kind


def _shown(group: str, version: str, kind: str) -> str:
    return f"{group}/{version}, Kind={kind}"


def _conflict_error(conflicts: Conflicts) -> ApiError:
    """409, with one cause for each field."""
    found = [(who, path_text(path)) for who, path in conflicting_paths(conflicts)]
    causes = [{"reason": _CONFLICT, "message": f"conflict with {who.shown()}", "field": field} for who, field in found]
    return ApiError(409, "Conflict", _conflict_text(found), {"causes": causes})


def _conflict_text(found: list[tuple[Identity, str]]) -> str:
    if len(found) == 1:
        who, field = found[0]
        return f"Apply failed with 1 conflict: conflict with {who.shown()}: {field}"
    fields: dict[Identity, list[str]] = {}
    for who, field in found:
        fields.setdefault(who, []).append(field)
    lines = [
        line
        for who, owned in fields.items()
        for line in (f"conflicts with {who.shown()}:", *(f"- {field}" for field in owned))
    ]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
