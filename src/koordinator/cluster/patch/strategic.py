"""Strategic merge patch as a request asks for it: what is wrong with one becomes the API server's answer."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import ObjectType
from koordinator.cluster.errors import ApiError
from koordinator.model.patch import strategic
from koordinator.model.patch.errors import PatchError


def apply_strategic_patch(original: Document, changes: Document, of: ObjectType | None) -> Document:
    """Merge ``changes`` into ``original``, in place; ``of`` is None where the type is not known. Raises ApiError."""
    try:
        return strategic.apply_strategic_patch(original, changes, of)
    except PatchError as error:
        raise ApiError(error.code, error.reason, error.message) from error
