"""PATCH: change parts of the newest state; without a resourceVersion in the patch it never conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.cluster.errors import ApiError
from koordinator.cluster.patch import STRATEGIC_PATCH, apply_patch, check_not_applied
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.causes import invalid
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.field_inspection import UnknownFields, inspected
from koordinator.cluster.verbs.modify import modify
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target
from koordinator.model.patch.merge_list import go_text


async def patch(
    environment: Environment,
    target: Target,
    content_type: str,
    body: bytes,
    options: WriteOptions | None = None,
) -> Stored:
    """Raises ApiError: 415 for a format that the kind does not take, 400 and 422 for a patch that does not fit."""
    # Also for an object that is not there yet, which server-side apply would create.
    check_not_applied(content_type)
    with explained(content_type, body, target.resource) as change:
        return await modify(environment, target, inspected(target.resource, change, body, options), options)


@contextmanager
def explained(content_type: str, body: bytes, resource: Resource) -> Iterator[Callable[[Document], Document]]:
    """The change that a patch asks for; a result that is no object of its kind is refused as the patch's fault."""
    original: Document = {}

    def change(old: Document) -> Document:
        nonlocal original
        original = old
        return apply_patch(content_type, old, body, resource)

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


def _not_decodable(shown: str, why: str) -> ApiError:
    """The real server names neither kind nor object then."""
    cause = invalid("patch", shown, why)
    details = {"causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]}
    return ApiError(422, "Invalid", f' "" is invalid: {cause.field}: {cause.message}', details)
