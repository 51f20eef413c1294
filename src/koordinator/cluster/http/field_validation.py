"""``fieldValidation``: are fields that a kind does not have ignored, warned of or refused?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.errors import bad_request, invalid_options
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.causes import go_quoted, not_supported

_MODES = ("Ignore", "Strict", "Warn")
OPTION_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
"""HTTP method -> what the query parameters of a write are read into."""


def check_mode(method: str, query: Mapping[str, str]) -> str:
    """What the client asks for. Raises ApiError 422 for what cannot be asked for."""
    mode = query.get("fieldValidation") or "Warn"
    if mode in _MODES:
        return mode
    raise invalid_options(OPTION_KINDS[method], [not_supported("fieldValidation", mode, ("", *_MODES))])


def check_fields(resource: Resource, obj: Document, method: str, query: Mapping[str, str]) -> list[str]:
    """The warnings to answer with. Raises ApiError 400 for an unknown field in a strict request."""
    mode = check_mode(method, query)
    if mode == "Ignore":
        return []
    unknown = [f"unknown field {go_quoted(path)}" for path in resource.strategy.unknown_fields(obj)]
    if unknown and mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown
