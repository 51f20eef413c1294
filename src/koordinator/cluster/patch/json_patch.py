"""RFC 6902 (``application/json-patch+json``)."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.patch.operations import OperationError, apply_operations

_MAX_OPERATIONS: Final = 10_000


def apply_json_patch(original: Document, operations: list[Any]) -> Document:
    """All operations or none. Raises ApiError 413 for too many and 422 for one that does not apply."""
    if len(operations) > _MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", message)
    try:
        patched = apply_operations(original, operations)
    except OperationError as error:
        # The real server hides why; the reason costs nothing and saves a search.
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", message) from error
    if not isinstance(patched, dict):
        raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request")
    return patched
