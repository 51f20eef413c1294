"""How a plugin offers HTTP services. Plugins make documents; paths, leadership and encoding are the engine's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.framework import Plugin

Service = Callable[[Mapping[str, str]], Any]
"""From the parameters of the path to a JSON document (plain values or structs). May raise ServiceError."""


class ServiceError(KoordinatorError):
    """Answered with ``status`` and the text as ``message``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ServiceProvider(Plugin):
    """A plugin that answers GET requests (original: APIServiceProvider)."""

    @abstractmethod
    def services(self) -> Mapping[str, Service]:
        """Path below ``/apis/v1/plugins/NAME``, parameters written ``:name`` -> what answers it. Where several profiles
        have the plugin, the first one's are served."""
