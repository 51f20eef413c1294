"""The requests and responses of admission handlers, without the wire around them.

Handlers get objects as the API server sent them, as plain documents, so that fields unknown to this project survive; a
handler that wants typed fields converts them. Handlers are pure: their view of the cluster is injected when they are
made. A handler names its steps, so that its caller can measure each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document as Document

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One admission request of the API server. Handlers modify neither ``object`` nor ``old_object``."""

    operation: Operation
    group: str
    version: str
    resource: str
    """The plural, such as ``pods``."""
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    user_name: str = ""
    object: Document | None = None
    """None for DELETE."""
    old_object: Document | None = None
    """None for CREATE."""
    dry_run: bool = False
    uid: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """Allowed, with the modified object if it was modified, or denied with a code and a message for the user."""

    allowed: bool = True
    code: int = 200
    message: str = ""
    reason: str = ""
    """As in a Status: ``Forbidden``, ``BadRequest``, …"""
    changed: Document | None = None
    """The object to store; None leaves the request's object as it is."""
    warnings: Sequence[str] = field(default=())


ALLOWED = AdmissionResponse()


def content(document: Document | None) -> Document:
    """The object that a request must carry. Raises DecodeError where it is missing."""
    if not document:
        raise DecodeError("there is no content to decode")
    return document


class AdmissionHandler(Protocol):
    """Handles all admission requests of one path."""

    path: str
    """Such as ``/mutate-pod``."""

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Handle one request. May raise KoordinatorError; the server responds to that and to any other error with a
        code."""
        ...


@runtime_checkable
class CommittingHandler(AdmissionHandler, Protocol):
    """A handler that has to persist something before its "allowed" response may be sent."""

    async def commit(self, request: AdmissionRequest) -> None:
        """Called after ``handle`` has allowed the request; denies it after all by raising as ``handle`` does."""
        ...


class Steps(Protocol):
    """A context around every step of an admission; a step that raises has denied the request."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]: ...


class Unmeasured:
    """Steps for callers that do not measure."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]:
        return nullcontext()


UNMEASURED = Unmeasured()
