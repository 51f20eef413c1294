"""The patch formats of PATCH requests."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import ApiError, bad_request, unsupported_media_type
from koordinator.cluster.patch.json_patch import apply_json_patch
from koordinator.cluster.patch.merge import apply_merge_patch
from koordinator.cluster.patch.strategic import apply_strategic_patch
from koordinator.cluster.resource import Resource

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

__all__ = [
    "APPLY_PATCH",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "accepted_patch_types",
    "apply_patch",
    "check_not_applied",
]


def accepted_patch_types(resource: Resource) -> tuple[str, ...]:
    """Custom resources have no Go type that would say how lists merge, hence no strategic merge patch."""
    if kind_type(resource.api_version, resource.kind) is None:
        return (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
    return (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


def apply_patch(content_type: str, original: Document, patch: bytes, resource: Resource) -> Document:
    """The patched object; ``original`` is left as it is.

    Raises ApiError: 415 for a format that the resource does not take, 400 for a malformed patch, 422 for one that does
    not fit the object.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    object_type = kind_type(resource.api_version, resource.kind)
    if media_type == JSON_PATCH:
        return apply_json_patch(original, _decode(patch, list, "[]handlers.jsonPatchOp"))
    if media_type == MERGE_PATCH:
        return apply_merge_patch(original, _decode(patch, dict, "map[string]interface {}"))
    if media_type == STRATEGIC_PATCH and object_type is not None:
        changes = _decode(patch, dict, "map[string]interface {}", "")
        return apply_strategic_patch(copied(original), changes, object_type)
    raise unsupported_media_type(content_type, accepted_patch_types(resource))


def check_not_applied(content_type: str) -> None:
    """Raises ApiError 415 for server-side apply: nothing here keeps track of who owns which field."""
    if content_type.partition(";")[0].strip().lower() == APPLY_PATCH:
        message = "this API server has no server-side apply; use kubectl apply or kubectl diff without --server-side"
        raise ApiError(415, "UnsupportedMediaType", message, {})


def _decode(patch: bytes, expected: type, go_type: str, prefix: str = "error decoding patch: ") -> Any:
    try:
        decoded = msgspec.json.decode(patch)
    except msgspec.DecodeError as error:
        raise bad_request(f"{prefix}{error}") from error
    if not isinstance(decoded, expected):
        kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
        kind = kinds.get(type(decoded), "number")
        raise bad_request(f"{prefix}json: cannot unmarshal {kind} into Go value of type {go_type}")
    return decoded
