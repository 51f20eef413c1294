"""Failures of the embedded API: each is one ``metav1.Status`` with the code and reason of the real server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.storage.interface import StorageError, StorageFull, WriteFailed


class ApiError(KoordinatorError):
    """A response other than success. ``status()`` is the response body."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """``details`` are shown even when they are empty, unless they are None: the real server has both."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self._shows_details = details is not None
        self.retry_after = retry_after
        self.warnings: Sequence[str] = ()
        """Texts for the Warning headers of the response."""
        self.continue_token = ""
        """With which a list may go on that has expired."""

    def status(self) -> dict[str, Any]:
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if details or self._shows_details:
            body["details"] = details
        body["code"] = self.code
        return body


def _about(resource: Resource, name: str = "") -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    return details


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{_qualified(resource)} "{name}" not found'
    return ApiError(404, "NotFound", message, {**_about(resource, name), "kind": resource.plural})


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{_qualified(resource)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, {**_about(resource, name), "kind": resource.plural})


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    message = f'Operation cannot be fulfilled on {_qualified(resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, {**_about(resource, name), "kind": resource.plural})


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    # What is said twice is listed once.
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    group = resource.group if resource.storage_group is None else resource.storage_group
    kind = f"{resource.kind}.{group}" if group else resource.kind
    details = {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        "kind": resource.kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def invalid_options(kind: str, causes: Sequence[Cause]) -> ApiError:
    """422 for query parameters, or for the body of a deletion; ``kind`` is what they are read into: DeleteOptions."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {listed}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    message = f'{_qualified(resource)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, {**_about(resource, name), "kind": resource.plural})


def expired(message: str, continue_token: str = "") -> ApiError:
    """410: the resource version or continue token is older than what the watch history keeps. The token that is given
    continues the list without being consistent."""
    error = ApiError(410, "Expired", message)
    error.continue_token = continue_token
    return error


def storage_failure(error: StorageError) -> ApiError:
    """507 for a full disk, 500 for all else.

    client-go sends a request again, up to ten times, when a response of 5xx has Retry-After, whatever the verb.
    Therefore only those have it of which nothing was stored; of a write whose outcome is not known the caller decides.
    """
    message = f"Internal error occurred: {error}"
    if isinstance(error, StorageFull):
        return ApiError(507, "InternalError", message, retry_after=1)
    return ApiError(500, "InternalError", message, retry_after=1 if isinstance(error, WriteFailed) else None)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def unknown_path() -> ApiError:
    # Without details, be they empty, kubectl debug panics.
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def too_large(why: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def unsupported_media_type(accepted: Sequence[str], details: dict[str, Any] | None = None) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message, details)
