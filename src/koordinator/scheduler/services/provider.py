"""How a plugin offers HTTP services. Plugins make documents; the engine handles paths, leader checks and encoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from koordinator.base.services import Service as Service
from koordinator.scheduler.engine.framework import Plugin


class ServiceProvider(Plugin):
    """A plugin that serves GET requests (original: APIServiceProvider)."""

    @abstractmethod
    def services(self) -> Mapping[str, Service]:
        """Path below ``/apis/v1/plugins/NAME``, parameters written ``:name`` -> the service for it. If several profiles
        have the plugin, only the first instance's services are served."""
