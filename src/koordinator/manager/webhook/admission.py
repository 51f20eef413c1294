"""What an admission handler is asked and what it answers, without the wire around it.

Handlers see objects as the API server sent them, as plain documents, so that what this project does not know of an
object survives; a handler that wants typed fields converts them. They are pure: all that they need to know of the
cluster is handed to them when they are made. A handler names its steps, so that its caller can measure each.
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
    """One question of the API server. Handlers change neither ``object`` nor ``old_object``."""

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
    """Allowed, with the changed object if it was changed, or refused with a code and a text for the user."""

    allowed: bool = True
    code: int = 200
    message: str = ""
    reason: str = ""
    """As in a Status: ``Forbidden``, ``BadRequest``, …"""
    changed: Document | None = None
    """The object as it is to be stored; None leaves it as it is."""
    warnings: Sequence[str] = field(default=())


ALLOWED = AdmissionResponse()


def content(document: Document | None) -> Document:
    """An object that a question has to come with. Raises DecodeError where there is none."""
    if not document:
        raise DecodeError("there is no content to decode")
    return document


class AdmissionHandler(Protocol):
    """Answers everything that arrives at one path."""

    path: str
    """Such as ``/mutate-pod``."""

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """May raise KoordinatorError; that and any other error is answered with a code by the server."""
        ...


@runtime_checkable
class CommittingHandler(AdmissionHandler, Protocol):
    """One that has to write down what it allows before it may be answered."""

    async def commit(self, request: AdmissionRequest) -> None:
        """After ``handle`` has allowed; to refuse after all, raise as there."""
        ...


class Steps(Protocol):
    """Around every step of an admission; a step that raises has refused the request."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]: ...


class Unmeasured:
    """For those who do not measure."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]:
        return nullcontext()


UNMEASURED = Unmeasured()
