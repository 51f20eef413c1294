"""Why a patch cannot be applied, with the code and reason in the API server's response."""

from __future__ import annotations

from koordinator.base.errors import KoordinatorError


class PatchError(KoordinatorError):
    """A patch that is malformed, or that does not fit the object. ``code`` and ``reason`` are those of a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message


def bad_request(message: str) -> PatchError:
    return PatchError(400, "BadRequest", message)
