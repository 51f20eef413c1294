"""Server-side apply: the object that an applied configuration makes, conflicts, and what nobody applies any more."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.managed_fields.elements import path_text
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS, OWNED_BY_NOBODY, FieldManager, set_managers
from koordinator.cluster.managed_fields.field_set import (
    EMPTY,
    FieldSet,
    compare,
    difference,
    intersection,
    paths,
    union,
    with_named_fields,
)
from koordinator.cluster.managed_fields.managers import (
    APPLY,
    Conflicts,
    Identity,
    Managers,
    Owned,
    Updater,
    entries_of,
    read,
)
from koordinator.cluster.managed_fields.merge import merge, remove
from koordinator.cluster.managed_fields.schema import TypedError
from koordinator.cluster.managed_fields.typed import check, to_set
from koordinator.cluster.managed_fields.versions import atom_of, empty_object
from koordinator.cluster.resource import Resource

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CONFLICT: Final = "FieldManagerConflict"
_BEFORE_FIRST_APPLY: Final = "before-first-apply"
_KUBECTL: Final = "kubectl"
_ANNOTATIONS_LIMIT: Final = 256 * 1024


def applied(fields: FieldManager, live: Document | None, config: Document, *, force: bool) -> Document:
    """The object with an applied configuration merged into it, and with its managers.

    ``live`` is None where there is none yet. Raises ApiError: 400 and 500 for a configuration that does not fit the
    kind, 409 for one that would change fields of others.
    """
    _check(fields, config)
    old = empty_object(fields.resource) if live is None else copied(live)
    managers: Managers = read(old["metadata"].pop(MANAGED_FIELDS, None) or [], trusted=True)
    try:
        check(atom_of(fields.resource), config)
    except TypedError as error:
        raise _untyped(fields, config, error) from error
    if not managers:
        managers, _ = fields.updated(
            empty_object(fields.resource), old, {}, own_schema=False, manager=_BEFORE_FIRST_APPLY
        )
    try:
        obj, owners = _merged(fields, old, config, managers, force=force)
    except Conflicts as conflicts:
        raise _conflict_error(conflicts) from conflicts
    except TypedError as error:
        raise ApiError(500, "", f"failed to merge config: {error}") from error
    if fields.manager == _KUBECTL:
        _sync_last_applied(obj, config)
    obj["metadata"] = obj.get("metadata") or {}
    set_managers(obj, entries_of(owners))
    return obj


def _check(fields: FieldManager, config: Document) -> None:
    """Raises ApiError 400."""
    found = _group_version_kind(config)
    resource = fields.resource
    if found != (resource.group, resource.version, resource.kind):
        raise bad_request(f"invalid object type: {_shown(*found)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get(MANAGED_FIELDS), list):
        raise bad_request("metadata.managedFields must be nil")


def _untyped(fields: FieldManager, config: Document, error: TypedError) -> ApiError:
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    kind = _shown(fields.resource.group, fields.resource.version, fields.resource.kind)
    return ApiError(500, "", f"failed to create typed patch object ({name}; {kind}): {error}")


def _merged(
    fields: FieldManager, live: Document, config: Document, managers: Managers, *, force: bool
) -> tuple[Document, Managers]:
    who = fields.identity(APPLY)
    updater = fields.updater
    try:
        obj, owners = apply(updater, live, config, managers, who, force=force)
    except Conflicts as conflicts:
        if fields.manager != _KUBECTL:
            raise
        # What kubectl has applied by itself it may go on to apply through the server.
        left = conflicts.without(_last_applied(fields.resource, live))
        if left.found:
            raise left from conflicts
        obj, owners = apply(updater, live, config, managers, who, force=True)
    owned = owners.get(who)
    if owned is not None:
        kept = difference(owned.fields, OWNED_BY_NOBODY)
        del owners[who]
        if kept:
            time = fields.now if obj is not None else owned.time
            owners[who] = Owned(kept, fields.resource.api_version, time)
    return copied(live if obj is None else obj), owners


def _last_applied(resource: Resource, live: Document) -> FieldSet:
    """The fields that ``kubectl apply`` has set and nobody has changed since."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        applied = msgspec.json.decode(text or "")
        if not isinstance(applied, dict) or applied.get("apiVersion") != resource.api_version:
            return EMPTY
        atom = atom_of(resource)
        check(atom, applied)
        changes = compare(atom, applied, live)
        return difference(difference(to_set(atom, applied), changes.changed), changes.removed)
    except (msgspec.DecodeError, TypedError, RecursionError):
        return EMPTY


def apply(
    updater: Updater, live: Document, config: Document, managers: Managers, who: Identity, *, force: bool
) -> tuple[Document | None, dict[Identity, Owned]]:
    """The new object, None where nothing changes, and its managers. Raises Conflicts and TypedError."""
    managers = updater.reconciled(managers)
    merged = merge(updater.atom, live, config)
    last = managers.get(who)
    fields = updater.owned(to_set(updater.atom, config))
    wanted = {**managers, who: Owned(fields, updater.api_version, last.time if last is not None else None)}
    merged = _pruned(updater, merged, wanted, last)
    settled, _ = updater.settled(live, merged, wanted, who, force=force)
    return (None if same(live, merged) else merged), settled


# Pruning: what the manager applied last time and does not now goes, unless somebody else has it, too.


def _pruned(updater: Updater, merged: Document, managers: Managers, last: Owned | None) -> Document:
    if last is None or not last.fields:
        return merged
    version = last.api_version
    atom, converted = updater.versions.atom(version), updater.versions.convert(merged, version)
    if atom is None or converted is None:
        return merged
    named = partial(with_named_fields, atom=atom)
    pruned = remove(atom, converted, named(last.fields))
    pruned = _with_owned(updater, converted, pruned, version, managers)
    kept = named(to_set(atom, pruned))
    gone = intersection(difference(named(to_set(atom, converted)), kept), named(last.fields))
    result = updater.versions.convert(remove(atom, converted, gone), updater.api_version)
    assert result is not None
    return result


def _with_owned(updater: Updater, merged: Document, pruned: Document, version: str, managers: Managers) -> Document:
    """Put back what somebody owns, the fields of the version in which it was pruned first."""
    owned: dict[str, FieldSet] = {version: EMPTY}
    for each in managers.values():
        owned[each.api_version] = union(owned.get(each.api_version, EMPTY), each.fields)
    for api_version, fields in owned.items():
        atom, whole = updater.versions.atom(api_version), updater.versions.convert(merged, api_version)
        part = updater.versions.convert(pruned, api_version)
        if atom is None or whole is None or part is None:
            continue
        named = partial(with_named_fields, atom=atom)
        kept = union(named(to_set(atom, part)), named(fields))
        merged, pruned = whole, remove(atom, whole, difference(named(to_set(atom, whole)), kept))
    result = updater.versions.convert(pruned, version)
    assert result is not None
    return result


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


def conflicting_paths(conflicts: Conflicts) -> list[tuple[Identity, tuple[str, ...]]]:
    """Each field, by manager."""
    return [(who, path) for who in sorted(conflicts.found) for path in paths(conflicts.found[who])]
