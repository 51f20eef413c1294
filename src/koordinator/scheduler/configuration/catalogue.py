"""Every plugin that a configuration may name, ours and those of other packages, and the points of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.argument_kinds import make_arguments
from koordinator.scheduler.configuration.points import KNOWN_PLUGINS
from koordinator.scheduler.configuration.third_party import InstalledPlugins, ThirdPartyPlugin


class Catalogue:
    """Asks other packages only about what is not ours."""

    def __init__(self, installed: InstalledPlugins | None = None) -> None:
        self._installed = installed or InstalledPlugins()

    @property
    def third_party(self) -> Mapping[str, ThirdPartyPlugin]:
        """Those that were asked for, by name."""
        return self._installed.loaded

    def __contains__(self, name: str) -> bool:
        return name in KNOWN_PLUGINS or name in self._installed.names

    def points_of(self, name: str, where: str) -> frozenset[str]:
        """The points that the plugin implements. Raises ConfigurationError with the path ``where``."""
        if name in KNOWN_PLUGINS:
            self._installed.check_not_taken(name, where)
            return KNOWN_PLUGINS[name]
        return self._third_party(name, where).points

    def make_arguments(self, name: str, document: Mapping[str, Any], path: str) -> Any:
        """The arguments of a plugin, defaults filled in. Raises ConfigurationError with a path below ``path``."""
        if name in KNOWN_PLUGINS:
            return make_arguments(name, document, path)
        return self._third_party(name, path).make_arguments(document, path)

    def _third_party(self, name: str, where: str) -> ThirdPartyPlugin:
        if name not in self._installed.names:
            known = ", ".join((*KNOWN_PLUGINS, *self._installed.names))
            raise ConfigurationError(where, name, f"no such plugin; there are {known}")
        return self._installed.load(name, where)
