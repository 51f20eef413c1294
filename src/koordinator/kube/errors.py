"""The exceptions of everything that speaks to an API server.

Callers decide by kind of failure, never by text: the server said no (``ApiStatusError``), nobody answered
(``TransportError``), the response is not what the kind allows (``MalformedObjectError``), or we could not even start
(``KubeconfigError``, ``CredentialError``).
"""

from __future__ import annotations

from koordinator.api.meta import StatusDetails
from koordinator.base.errors import KoordinatorError


class KubeError(KoordinatorError):
    """Anything that went wrong between us and an API server."""


class ApiStatusError(KubeError):
    """The server answered with a failure; the fields are those of ``metav1.Status``.

    ``retry_after`` is in seconds, None when the server did not ask for a pause.
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
        """The object changed since it was read, or a precondition does not hold; not that it already exists."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_expired(self) -> bool:
        """410: the resource version or continue token is too old, so that one has to list anew."""
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
    """No response, or not a whole one.

    ``maybe_applied`` tells whether the server may have acted on the request: False when it never left this machine.
    """

    def __init__(self, message: str, *, maybe_applied: bool = True, timed_out: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied
        self.timed_out = timed_out


class FencedError(KubeError):
    """The request was not sent: who wanted it may not change anything any more."""


class MalformedObjectError(KubeError):
    """The server did what was asked, but the object that it answered with is not what the kind allows."""


class KubeconfigError(KubeError):
    """A kubeconfig that cannot be used; the text names the file, the entry and the field."""


class CredentialError(KubeError):
    """Credentials that cannot be had: an unreadable token file or certificate, an exec plugin that failed."""
