"""Why there is no explanation, each in one sentence, and the exit status that goes with it."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from typing import ClassVar, Final

from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import ApiStatusError, CredentialError, KubeconfigError, KubeError, TransportError

EXPLAINED: Final = 0
NOT_REACHED: Final = 1
UNUSABLE: Final = 2
NOT_THERE: Final = 3
NOT_ALLOWED: Final = 4
API_ALONE: Final = 5
DEFECT: Final = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""
PIPE_CLOSED: Final = 141
"""128 + SIGPIPE: the reader of the output has closed it."""


class ExplainError(KoordinatorError):
    """No program could be queried, or none had a result. ``status`` is the exit status of the command."""

    status: ClassVar[int] = NOT_REACHED


class UsageError(ExplainError):
    """What was said on the command line, or a kubeconfig, cannot be used."""

    status = UNUSABLE


class NotFoundError(ExplainError):
    """There is no pod or node of that name."""

    status = NOT_THERE


class ForbiddenError(ExplainError):
    """The server does not authenticate or does not authorize the user. ``permission`` is the one that is missing, such
    as ``get leases.coordination.k8s.io in the namespace a``; empty where the server does not say."""

    status = NOT_ALLOWED

    def __init__(self, text: str, permission: str = "") -> None:
        super().__init__(text)
        self.permission = permission


_REFUSAL: Final = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)" '
    r'(?:in the namespace "(?P<namespace>[^"]+)"|at the cluster scope)'
)
"""What every API server says that decides by roles."""


def missing_permission(message: str) -> str:
    """What a refusal of an API server says is missing; empty where it does not say."""
    found = _REFUSAL.search(message)
    if found is None:
        return ""
    resource, slash, subresource = found["resource"].partition("/")
    qualified = f"{resource}.{found['group']}" if found["group"] else resource
    where = f"in the namespace {found['namespace']}" if found["namespace"] else "in the whole cluster"
    return f"{found['verb']} {qualified}{slash}{subresource} {where}"


def left_out(what: str, error: ForbiddenError | ApiStatusError) -> str:
    """The sentence in place of ``what``, which an explanation lacks because of ``error``."""
    permission = error.permission if isinstance(error, ForbiddenError) else missing_permission(error.message)
    if permission:
        return f"{what} is left out: you lack the permission to {permission}"
    return f"{what} is left out: {error}"


class UnknownToProgramError(NotFoundError):
    """The program that was queried does not know the object; the API may."""


def explain_error(error: KubeError, cluster: str, seconds: float) -> ExplainError:
    """``error`` as one sentence about ``cluster``, such as ``the cluster "a" (https://...)``, which had ``seconds`` to
    respond."""
    if isinstance(error, KubeconfigError | CredentialError):
        return UsageError(str(error))
    if isinstance(error, ApiStatusError):
        return _refused(error, cluster)
    if isinstance(error, TransportError):
        return ExplainError(f"{cluster} cannot be queried: {_reason(error, seconds)}")
    return ExplainError(f"{cluster} cannot be queried: {error}")


def connection_reason(error: BaseException) -> str:
    """Why nothing could be sent or received, in plain words, if it is one of the usual reasons; otherwise empty."""
    for cause in _causes(error):
        match cause:
            case ConnectionRefusedError():
                return "connection refused: nothing listens there; does it run?"
            case ssl.SSLCertVerificationError():
                return (
                    f"its certificate is not trusted ({cause.verify_message}); check the certificate authority and "
                    "the name of the server in the kubeconfig"
                )
            case ssl.SSLError():
                return f"TLS fails ({cause.reason or cause}); is that a server that speaks TLS?"
            case socket.gaierror():
                return "the name of its host cannot be resolved"
            case ConnectionResetError():
                return "the server closed the connection without a response"
    return ""


def _reason(error: TransportError, seconds: float) -> str:
    if error.timed_out:
        return f"no response within {seconds:g} s"
    return connection_reason(error) or str(error)


def _refused(error: ApiStatusError, cluster: str) -> ExplainError:
    if error.is_unauthorized:
        return ForbiddenError(
            f"{cluster} does not know who you are (401 {error.message or error.reason}): sign in again, or choose "
            "another --context or --kubeconfig"
        )
    if error.is_forbidden:
        text = f"{cluster} does not allow it (403): {error.message or error.reason}"
        return ForbiddenError(text, missing_permission(error.message))
    return ExplainError(f"{cluster} cannot be queried: {error}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from; what aiohttp wraps is among them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
        if isinstance(inner, BaseException) and inner is not error:
            yield from _causes(inner)
        error = error.__cause__ or error.__context__
