"""How a plugin offers HTTP services. Plugins make documents; paths, leadership and encoding are the engine's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from koordinator.base.services import Service as Service
from koordinator.scheduler.engine.framework import Plugin


class ServiceProvider(Plugin):
    """A plugin that answers GET requests (original: APIServiceProvider)."""

    @abstractmethod
    def services(self) -> Mapping[str, Service]:
        """Path below ``/apis/v1/plugins/NAME``, parameters written ``:name`` -> what answers it. Where several profiles
        have the plugin, the first one's are served."""
