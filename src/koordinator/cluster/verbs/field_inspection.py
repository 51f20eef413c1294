"""``fieldValidation`` of a patch: what counts is not what is in the patch, but what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.api.kubernetes_types.table import ObjectType, kind_type
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.schema.strict import Unknown, find_unknown
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.options import WriteOptions

Change = Callable[[Document], Document]

_INDEX: Final = re.compile(r"\[\d+\]")


class UnknownFields(WrongType):
    """A patched object has fields that its type or schema does not know."""


def inspected(resource: Resource, change: Change, body: bytes, options: WriteOptions | None) -> Change:
    """The change that ``body`` asks for, with the warnings that it deserves.

    Unknown fields that a patch adds to an object of a built-in kind are dropped, as the real server's types drop them;
    a schema drops those of a custom resource itself. The change raises ApiError for unknown fields in a strict request.
    """
    mode = options.field_validation if options is not None else ""
    if resource.schema is None:
        object_type = kind_type(resource.api_version, resource.kind)
        if object_type is None or not _may_add_unknown(body, object_type):
            return change
    elif options is None or mode == "Ignore":
        return change
    warnings = options.warnings if options is not None else []

    def inspect(old: Document) -> Document:
        new = change(old)
        if resource.schema is None:
            assert object_type is not None
            complaints = _drop_added(new, old, object_type)
        else:
            complaints = [f"unknown field {go_quoted(path)}" for path in resource.strategy.unknown_fields(new)]
        if complaints and mode == "Strict":
            error = UnknownFields(f"strict decoding error: {', '.join(complaints)}")
            raise bad_request(str(error)) from error
        if mode != "Ignore":
            # The patch is applied again when another writer comes in between.
            warnings.extend(text for text in complaints if text not in warnings)
        return new

    return inspect


def _may_add_unknown(body: bytes, of: ObjectType) -> bool:
    """Looks at the patch alone: nearly all know all their fields, and the patched object is a hundred times larger."""
    try:
        patch = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False  # is refused when it is applied
    if not isinstance(patch, dict):
        return True
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
