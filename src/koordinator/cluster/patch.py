"""The patch formats of PATCH requests."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import ObjectType, kind_type
from koordinator.cluster.errors import ApiError, bad_request, unsupported_media_type
from koordinator.cluster.json_patch import apply_json_patch
from koordinator.cluster.limits import MAX_DEPTH, TOO_DEEP, is_too_deep
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.json_syntax import json_kind, syntax_error
from koordinator.model.patch import strategic
from koordinator.model.patch.errors import PatchError

# RFC 7396 (``application/merge-patch+json``).


def apply_merge_patch(original: Document, changes: Document) -> Document:
    """Objects merge, null removes, all else (lists too) replaces. Unchanged parts are shared with the original."""
    merged = dict(original)
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, dict):
            current = merged.get(key)
            merged[key] = apply_merge_patch(current if isinstance(current, dict) else {}, change)
        else:
            merged[key] = _without_nulls(copied(change))
    return merged


def _without_nulls(value: Any) -> Any:
    """A list as the real server takes it over from a patch: null members of the objects in it are left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


# Strategic merge patch of a request: an error in it becomes the API server's response.


def apply_strategic_patch(original: Document, changes: Document, of: ObjectType | None) -> Document:
    """Merge ``changes`` into ``original``, in place; ``of`` is None where the type is not known. Raises ApiError."""
    try:
        return strategic.apply_strategic_patch(original, changes, of)
    except PatchError as error:
        raise ApiError(error.code, error.reason, error.message) from error


JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_APPLY_CBOR: Final = "application/apply-patch+cbor"


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
    media_type = _media_type(content_type)
    object_type = kind_type(resource.api_version, resource.kind)
    if media_type == JSON_PATCH:
        patched = apply_json_patch(original, _decode(patch, list, "[]handlers.jsonPatchOp") or [])
    elif media_type == MERGE_PATCH:
        changes = _decode(patch, dict, "map[string]interface {}")
        if changes is None:
            raise bad_request("Invalid JSON Patch")
        patched = apply_merge_patch(original, changes)
    elif media_type == STRATEGIC_PATCH and object_type is not None:
        changes = _decode(patch, dict, "map[string]interface {}", "") or {}
        patched = apply_strategic_patch(copied(original), changes, object_type)
        # Go's type of an object has neither, so that a patch of them changes nothing.
        patched |= {"apiVersion": resource.api_version, "kind": resource.kind}
    else:
        raise unsupported_patch(resource)
    return patched


def unsupported_patch(resource: Resource) -> ApiError:
    built_in = kind_type(resource.api_version, resource.kind) is not None
    return unsupported_media_type(accepted_patch_types(resource), {} if built_in else None)


def check_patch_type(content_type: str, resource: Resource) -> None:
    """Before the object is looked for: the format alone decides. Raises ApiError 415."""
    media_type = _media_type(content_type)
    if media_type == _APPLY_CBOR:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if media_type not in accepted_patch_types(resource):
        raise unsupported_patch(resource)


def is_apply_patch(content_type: str) -> bool:
    """Whether it is a patch of server-side apply."""
    return _media_type(content_type) == APPLY_PATCH


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _decode(patch: bytes, expected: type, go_type: str, prefix: str = "error decoding patch: ") -> Any:
    try:
        decoded = msgspec.json.decode(patch)
    except UnicodeDecodeError:
        return _decode(patch.decode(errors="replace").encode(), expected, go_type, prefix)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"{prefix}{syntax_error(patch, error)}") from error
    if decoded is not None and not isinstance(decoded, expected):
        raise bad_request(f"{prefix}json: cannot unmarshal {json_kind(decoded)} into Go value of type {go_type}")
    # Few patches have so many brackets that they could be too deep.
    if patch.count(b"{") + patch.count(b"[") > MAX_DEPTH and is_too_deep(decoded):
        raise bad_request(f"{prefix}{TOO_DEEP}")
    return decoded
