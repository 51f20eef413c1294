"""HTTP handlers of parts of a program, such as plugins: they return documents and do not depend on an HTTP server.

``koordinator.kube.services`` serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordinator.base.errors import KoordinatorError

Service = Callable[[Mapping[str, str]], Any]
"""Returns a JSON document (plain values or structs) for the parameters of the path and of the query; those of the path
take precedence. May raise ServiceError."""


class ServiceError(KoordinatorError):
    """The response has the HTTP status ``status`` and the text as its ``message``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
