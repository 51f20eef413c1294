"""How a part of a program, such as a plugin, answers people over HTTP: it makes documents and knows nothing of servers.

``koordinator.kube.services`` serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordinator.base.errors import KoordinatorError

Service = Callable[[Mapping[str, str]], Any]
"""From the parameters of the path and of the query to a JSON document (plain values or structs); those of the path take
precedence. May raise ServiceError."""


class ServiceError(KoordinatorError):
    """Answered with ``status`` and the text as ``message``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
