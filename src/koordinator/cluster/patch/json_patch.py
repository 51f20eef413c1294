"""RFC 6902 (``application/json-patch+json``)."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request, too_large
from koordinator.cluster.limits import MAX_PATCH_OPERATIONS
from koordinator.cluster.patch.operations import OperationError, apply_operations
from koordinator.cluster.strategy.json_syntax import json_kind

_FIELDS: Final = ("op", "path", "from")
_REJECTED: Final = "the server rejected our request due to an error in our request"


def apply_json_patch(original: Document, operations: list[Any]) -> Document:
    """All operations or none.

    Raises ApiError: 400 for what is no list of operations, 413 for too many and 422 for one that does not apply.
    """
    _check_types(operations)
    if len(operations) > MAX_PATCH_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_PATCH_OPERATIONS}, got {len(operations)}"
        raise too_large(limit)
    try:
        patched = apply_operations(original, operations)
    except OperationError as error:
        # The real server hides why; the reason costs nothing and saves a search.
        raise ApiError(422, "Invalid", f"{_REJECTED}: {error}", {}) from error
    if not isinstance(patched, dict):
        raise ApiError(422, "Invalid", _REJECTED, {})
    return patched


def _check_types(operations: list[Any]) -> None:
    """Raises ApiError 400 as the real server's decoder of operations does."""
    for operation in operations:
        wrong = _wrong_type(operation)
        if wrong:
            raise bad_request(f"error decoding patch: json: cannot unmarshal {wrong}")


def _wrong_type(operation: Any) -> str:
    if operation is None:
        return ""
    if not isinstance(operation, dict):
        return f"{json_kind(operation)} into Go value of type handlers.jsonPatchOp"
    for field in _FIELDS:
        value = operation.get(field)
        if value is not None and not isinstance(value, str):
            return f"{json_kind(value)} into Go struct field jsonPatchOp.{field} of type string"
    return ""
