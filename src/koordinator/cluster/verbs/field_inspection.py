"""``fieldValidation`` of a patch: what counts is not what is in the patch, but what comes of it."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.options import WriteOptions

Change = Callable[[Document], Document]


class UnknownFields(WrongType):
    """A patched object has fields that its schema does not know."""


def inspected(resource: Resource, change: Change, options: WriteOptions | None) -> Change:
    """The change, with the warnings that it deserves; of custom resources, since built-in kinds keep unknown fields.

    The change raises ApiError for unknown fields in a strict request.
    """
    if resource.schema is None or options is None or options.field_validation == "Ignore":
        return change
    strict, warnings = options.field_validation == "Strict", options.warnings

    def inspect(old: Document) -> Document:
        new = change(old)
        complaints = [f"unknown field {go_quoted(path)}" for path in resource.strategy.unknown_fields(new)]
        if complaints and strict:
            error = UnknownFields(f"strict decoding error: {', '.join(complaints)}")
            raise bad_request(str(error)) from error
        # The patch is applied again when another writer comes in between.
        warnings.extend(text for text in complaints if text not in warnings)
        return new

    return inspect
