"""``fieldValidation``: are fields that a kind does not have ignored, warned of or refused?"""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.causes import not_supported

_MODES = ("Ignore", "Strict", "Warn")
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def check_mode(method: str, query: Mapping[str, str]) -> str:
    """What the client asks for. Raises ApiError 422 for what cannot be asked for."""
    mode = query.get("fieldValidation") or "Warn"
    if mode in _MODES:
        return mode
    kind = _OPTIONS[method]
    cause = not_supported("fieldValidation", mode, ("", *_MODES))
    details = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}],
    }
    message = f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
    raise ApiError(422, "Invalid", message, details)


def check_fields(resource: Resource, obj: Document, method: str, query: Mapping[str, str]) -> list[str]:
    """The warnings to answer with. Raises ApiError 400 for an unknown field in a strict request."""
    mode = check_mode(method, query)
    if mode == "Ignore":
        return []
    unknown = [f'unknown field "{path}"' for path in resource.strategy.unknown_fields(obj)]
    if unknown and mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown
