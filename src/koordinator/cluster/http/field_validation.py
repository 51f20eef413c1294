"""``fieldValidation``: are unknown fields of a built-in kind ignored, warned of or refused?"""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.schema.strict import unknown_fields

_MODES = ("Ignore", "Warn", "Strict")


def check_fields(resource: Resource, obj: Document, query: Mapping[str, str]) -> list[str]:
    """The warnings to answer with. Raises ApiError 400 for an unknown field in a strict request."""
    mode = query.get("fieldValidation") or "Warn"
    if mode not in _MODES:
        raise bad_request(f'fieldValidation: Unsupported value: "{mode}": supported values: {", ".join(_MODES)}')
    object_type = kind_type(resource.api_version, resource.kind)
    if mode == "Ignore" or object_type is None:
        return []
    unknown = unknown_fields(obj, object_type)
    if unknown and mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown
