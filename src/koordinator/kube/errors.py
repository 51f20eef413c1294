"""The exceptions of all code that communicates with an API server.

Callers distinguish failures by type, never by text: the server rejected the request (``ApiStatusError``), there was no
complete response (``TransportError``), the response does not match the kind's schema (``MalformedObjectError``), or the
client's configuration is unusable (``KubeconfigError``, ``CredentialError``).
"""

from __future__ import annotations

from koordinator.api.meta import StatusDetails
from koordinator.base.errors import KoordinatorError


class KubeError(KoordinatorError):
    """Base class of all errors of requests to an API server."""


class ApiStatusError(KubeError):
    """The server responded with a failure; the fields are those of ``metav1.Status``.

    ``retry_after`` is in seconds; None without a Retry-After header.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: StatusDetails | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{message or 'no message'} ({code} {reason or 'without a reason'})")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or StatusDetails()
        self.retry_after = retry_after

    @property
    def is_bad_request(self) -> bool:
        return self.code == 400

    @property
    def is_unauthorized(self) -> bool:
        return self.code == 401

    @property
    def is_forbidden(self) -> bool:
        return self.code == 403

    @property
    def is_not_found(self) -> bool:
        return self.code == 404

    @property
    def is_already_exists(self) -> bool:
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Whether the object changed since it was read, or a precondition failed; AlreadyExists is not a conflict."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_expired(self) -> bool:
        """410: the resource version or continue token is too old, so the caller has to list again."""
        return self.code == 410

    @property
    def is_invalid(self) -> bool:
        return self.code == 422

    @property
    def is_too_many_requests(self) -> bool:
        return self.code == 429

    @property
    def is_server_error(self) -> bool:
        return self.code >= 500


class TransportError(KubeError):
    """No response, or an incomplete one.

    ``maybe_applied`` is whether the server may have acted on the request: False if it never left this machine.
    """

    def __init__(self, message: str, *, maybe_applied: bool = True, timed_out: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied
        self.timed_out = timed_out


class UnsentError(KubeError):
    """The request was not sent, because earlier ones like it have had no answer for too long."""


class FencedError(KubeError):
    """The request was not sent, because the caller is no longer allowed to write (it lost its lease)."""


class WriteRefusedError(KubeError):
    """The request was not sent, because this client may not write: it belongs to a program that only looks on."""

    def __init__(self, purpose: str, verb: str, resource: str, name: str) -> None:
        what = " ".join(part for part in (verb, resource, name) if part)
        super().__init__(f"{purpose} writes nothing: {what} was not sent")
        self.verb = verb
        self.resource = resource
        self.name = name


class MalformedObjectError(KubeError):
    """The server performed the request, but the object in its response does not match the kind's schema."""


class KubeconfigError(KubeError):
    """An unusable kubeconfig; the message names the file, the entry and the field."""


class CredentialError(KubeError):
    """Unavailable credentials: an unreadable token file or certificate, or an exec plugin that failed."""
