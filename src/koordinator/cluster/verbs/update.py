"""PUT and PATCH, and what subresources share with them: read, change, admit, validate, compare, store, retry."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, repeated_fields, same
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.api.kubernetes_types.table import ObjectType, kind_type
from koordinator.api.kubernetes_types.unknown_fields import Unknown, find_unknown
from koordinator.cluster.errors import ApiError, bad_request, conflict, invalid, not_found
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS, keep_times, untracked
from koordinator.cluster.patch import STRATEGIC_PATCH, apply_patch, check_patch_type
from koordinator.cluster.resource import Cause, Resource, View
from koordinator.cluster.storage.interface import KeyMissing, RevisionMismatch, Stored
from koordinator.cluster.strategy import causes
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.environment import Attributes, Environment, accept, counted, holding, mutate
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import (
    Target,
    blocks_removal,
    check_kind,
    check_name,
    check_namespace,
    decode,
    encode_within_limit,
    shown_one,
    storable,
)
from koordinator.model.patch.merge_list import go_text

# The object is removed instead of stored when the change drops the last finalizer of an object that is being deleted.


_REVISION = re.compile("[0-9]+", re.ASCII)
_ATTEMPTS = 100
"""Each failed attempt means that another writer of the object got through, so this is never reached in practice."""

Change = Callable[[Document], Document]
"""From the current object to the wanted one; must leave its argument alone. May be called several times."""
Attempt = Callable[[Stored, Document], Awaitable[Stored]]
"""From the stored state, as bytes and decoded, to what was stored; may let RevisionMismatch pass."""
_COUNTED: Final = frozenset({("pods", "resize"), ("persistentvolumeclaims", ""), ("services", "")})
"""Plural and subresource of the updates that may make an object count more in a quota."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def modify(
    environment: Environment,
    target: Target,
    change: Change,
    options: WriteOptions | None = None,
    *,
    compares_uid: bool = True,
    applied: bool = False,
) -> Stored:
    """Returns the new state; for an object that was removed its last one. Raises ApiError.

    ``compares_uid``: another uid means another object, which is a conflict; a patch just may not change it.
    ``applied``: by server-side apply, where the change says who manages which field."""
    options = options or WriteOptions()
    view = _view(target)
    validate = view.validate or target.resource.strategy.validate
    fields = environment.field_manager(target.resource, options, target.subresource)

    async def replace(stored: Stored, old: Document) -> Stored:
        obj = change(old)
        _check_identity(target, obj, old, compares_uid=compares_uid)
        if fields is None or applied:
            target.resource.strategy.decode(obj, old)
        else:
            fields.decode(obj, old)
        if fields is None:
            untracked(obj)
        context = environment.context(options.warnings)
        attributes = Attributes("UPDATE", target, obj, old, context, options)
        with holding(environment, target) as allocate:
            await mutate(environment, attributes)
            keep_times(obj, old)
            view.prepare(obj, old, context)
            await accept(environment, attributes, validate, allocate)
            if (target.resource.plural, target.subresource) not in _COUNTED:
                return await store(environment, target, stored, obj, dry_run=options.dry_run)
            with counted(environment, target, obj, old, dry_run=options.dry_run):
                return await store(environment, target, stored, obj, dry_run=options.dry_run)

    return await retry(environment, target, replace)


def _view(target: Target) -> View:
    resource, strategy = target.resource, target.resource.strategy
    if target.subresource == "status":
        return View(strategy.prepare_status_update, strategy.validate_status)
    return resource.views.get(target.subresource) or View(strategy.prepare_update)


async def retry(environment: Environment, target: Target, attempt: Attempt) -> Stored:
    """Run ``attempt`` on the newest state until no other writer comes in between. Raises ApiError 404 and 409."""
    for _ in range(_ATTEMPTS):
        stored = environment.storage.get(target.key)
        if stored is None:
            break
        try:
            return await attempt(stored, decode(target.resource, await shown_one(target.resource, stored)))
        except RevisionMismatch:
            continue
        except KeyMissing:
            break
    else:
        raise conflict(target.resource, target.name)
    raise not_found(target.resource, target.name)


async def store(environment: Environment, target: Target, stored: Stored, obj: Document, *, dry_run: bool) -> Stored:
    """Write what differs from ``stored``; raises RevisionMismatch and KeyMissing like the storage."""
    value = encode_within_limit(target.resource, await storable(target.resource, obj))
    if _same(value, stored.value):
        return stored
    if dry_run:
        return Stored(stored.key, value, stored.revision)
    metadata = obj["metadata"]
    going = bool(metadata.get("deletionTimestamp"))
    if going and not metadata.get("deletionGracePeriodSeconds") and not blocks_removal(target.resource, obj):
        return await environment.storage.delete(stored.key, stored.revision, value)
    return await environment.storage.update(stored.key, value, stored.revision, frees=going)


def _check_identity(target: Target, obj: Document, old: Document, *, compares_uid: bool) -> None:
    """Optimistic concurrency, and no update of another object under the same name."""
    check_kind(target.resource, obj)
    metadata, before = check_namespace(target, obj), old["metadata"]
    check_name(target, metadata)
    version = metadata.get("resourceVersion")
    if version and not _REVISION.fullmatch(version):
        # The real server has no reason for this one.
        raise ApiError(500, "", f"strconv.ParseUint: parsing {go_quoted(version)}: invalid syntax", {})
    if version and version != before["resourceVersion"]:
        raise conflict(target.resource, target.name)
    if not version and not target.resource.unconditional_update:
        cause = Cause(
            "FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
        )
        # In this one message the real server puts the plural where the kind belongs.
        raise invalid(replace(target.resource, kind=target.resource.plural), target.name, [cause])
    if compares_uid and metadata.get("uid") and metadata["uid"] != before["uid"]:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}"
        raise conflict(target.resource, target.name, why)


def _same(value: bytes, stored: bytes) -> bool:
    """Equal but for the order of fields, which is no matter of length."""
    return value == stored or (len(value) == len(stored) and same(_decode(value), _decode(stored)))


async def update(
    environment: Environment, target: Target, obj: Document, options: WriteOptions | None = None
) -> Stored:
    """With a resourceVersion in ``obj`` a newer state is a conflict; without one the newest is replaced."""
    # Strategies change what they are given, and each attempt starts from what was sent.
    sent = msgspec.json.encode(obj)
    object_type = kind_type(target.resource.api_version, target.resource.kind)
    has_unknown = object_type is not None and bool(find_unknown(obj, object_type, ""))

    def change(old: Document) -> Document:
        new: Document = _decode(sent)
        if has_unknown and object_type is not None:
            _drop_added(new, old, object_type)
        return new

    return await modify(environment, target, change, options)


# ``fieldValidation`` of a patch: what counts is not what is in the patch, but what comes of it.


_INDEX: Final = re.compile(r"\[\d+\]")


class UnknownFields(WrongType):
    """A patched object has fields that its type or schema does not know."""


def inspected(resource: Resource, change: Change, body: bytes, options: WriteOptions | None) -> Change:
    """The change that ``body`` requests, with its warnings.

    Unknown fields that a patch adds to an object of a built-in kind are dropped, as the real server's types drop them;
    a schema drops those of a custom resource itself. The change raises ApiError for unknown fields in a strict request.
    """
    mode = options.field_validation if options is not None else ""
    ignores = options is None or mode == "Ignore"
    if ignores and resource.schema is not None:
        return change
    patch = _decoded(body)
    repeated = repeated_fields(body, patch) if not ignores and isinstance(patch, dict) else []
    if resource.schema is None:
        object_type = kind_type(resource.api_version, resource.kind)
        if object_type is None or not (repeated or _may_add_unknown(patch, object_type)):
            return change
    warnings = options.warnings if options is not None else []

    def inspect(old: Document) -> Document:
        new = change(old)
        if resource.schema is None:
            assert object_type is not None
            errors = _drop_added(new, old, object_type)
        else:
            errors = [f"unknown field {go_quoted(path)}" for path in resource.strategy.unknown_fields(new, old)]
        errors = [*(f"duplicate field {go_quoted(path)}" for path in repeated), *errors]
        if errors and mode == "Strict":
            error = UnknownFields(f"strict decoding error: {', '.join(errors)}")
            raise bad_request(str(error)) from error
        if mode != "Ignore":
            # The patch is applied again when another writer comes in between.
            warnings.extend(text for text in errors if text not in warnings)
        return new

    return inspect


def _decoded(body: bytes) -> Any:
    """The patch as JSON; None where it is none, and is refused when it is applied."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _may_add_unknown(patch: Any, of: ObjectType) -> bool:
    """Looks at the patch alone: nearly all know all their fields, and the patched object is a hundred times larger."""
    if not isinstance(patch, dict):
        return patch is not None
    # Directives of a strategic merge patch begin with a dollar sign; null takes a field away.
    return any(
        not found.name.startswith("$") and found.holder[found.name] is not None
        for found in find_unknown(patch, of, "")
        if found.path not in ("apiVersion", "kind")
    )


def _drop_added(new: Document, old: Document, of: ObjectType) -> list[str]:
    """Drop the unknown fields that ``old`` did not have; returns what to say of them."""
    kept = {_place(found) for found in find_unknown(old, of, "")}
    added = [found for found in find_unknown(new, of, "") if _place(found) not in kept]
    for found in added:
        del found.holder[found.name]
    return [f"unknown field {go_quoted(found.path)}" for found in added]


def _place(unknown: Unknown) -> str:
    """The path without indexes, since a patch may move what is in a list."""
    return _INDEX.sub("[]", unknown.path)


# PATCH: change parts of the newest state; without a resourceVersion in the patch it never conflicts.


async def patch(
    environment: Environment,
    target: Target,
    content_type: str,
    body: bytes,
    options: WriteOptions | None = None,
) -> Stored:
    """Raises ApiError: 415 for a format that the kind does not take, 400 and 422 for a patch that does not fit."""
    check_patch_type(content_type, target.resource)
    with explained(content_type, body, target.resource) as change:
        inspected_change = inspected(target.resource, change, body, options)
        if MANAGED_FIELDS.encode() not in body:
            inspected_change = _unmanaged(inspected_change)
        return await modify(environment, target, inspected_change, options, compares_uid=False)


def _unmanaged(change: Change) -> Change:
    """A patch that does not name the managers of fields does not see them: they are a third of many objects."""

    def unmanaged(old: Document) -> Document:
        managers = old["metadata"].pop(MANAGED_FIELDS, None)
        try:
            return change(old)
        finally:
            if managers is not None:
                old["metadata"][MANAGED_FIELDS] = managers

    return unmanaged


@contextmanager
def explained(content_type: str, body: bytes, resource: Resource) -> Iterator[Callable[[Document], Document]]:
    """The change that a patch requests; a result that is no object of its kind is refused as the patch's fault."""
    original: Document = {}

    def change(old: Document) -> Document:
        nonlocal original
        original = old
        new = apply_patch(content_type, old, body, resource)
        if resource.schema is not None:
            _check_named(new)
        return new

    try:
        yield change
    except ApiError as error:
        if not isinstance(error.__cause__, WrongType):
            raise
        if content_type.startswith(STRATEGIC_PATCH):
            strict = isinstance(error.__cause__, UnknownFields)
            why = str(error.__cause__) if strict else f"error decoding from json: {error.__cause__}"
            raise _not_decodable(go_text(msgspec.json.decode(body)), why) from error
        patched = apply_patch(content_type, original, body, resource)
        raise _not_decodable(msgspec.json.encode(patched, order="sorted").decode(), str(error.__cause__)) from error


def _check_named(obj: Document) -> None:
    """A custom resource has no other type than that which it names."""
    if not obj.get("kind"):
        shown = msgspec.json.encode(obj, order="sorted").decode()
        raise _not_decodable(shown, f"Object 'Kind' is missing in '{shown}'")
    if not obj.get("apiVersion"):
        why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        raise ApiError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def _not_decodable(shown: str, why: str) -> ApiError:
    """The real server names neither kind nor object then."""
    cause = causes.invalid("patch", shown, why)
    details = {"causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]}
    return ApiError(422, "Invalid", f' "" is invalid: {cause.field}: {cause.message}', details)
