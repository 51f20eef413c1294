"""What plugins did wrong: logged with its origin, but each only now and then, and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_SAME_ERROR_SECONDS: Final = 60.0
_ERRORS_REMEMBERED: Final = 100


class PluginErrors:
    """A plugin that fails does so for one pod after the other: the same text is logged once a minute."""

    def __init__(self, monotonic: Callable[[], float], count: Callable[[str, str], None]) -> None:
        self._monotonic = monotonic
        self._count = count
        self._logged: dict[str, float] = {}

    def of_pod(self, key: str, error: Exception) -> None:
        """An attempt of the pod ended by ``error``."""
        if self._is_due(str(error)):
            logger.error("pod %s could not be decided about: %s", key, error, exc_info=error.__cause__ or error)

    def of_observer(self, plugin: str, point: str, error: Exception) -> None:
        """A plugin failed to take note of an event; what it knows may be out of date."""
        self._count(plugin, point)
        if self._is_due(f"{plugin} {point} {error}"):
            logger.error("plugin %s failed in %s and may be out of date: %s", plugin, point, error, exc_info=error)

    def _is_due(self, text: str) -> bool:
        now = self._monotonic()
        if now - self._logged.get(text, float("-inf")) < _SAME_ERROR_SECONDS:
            return False
        if len(self._logged) >= _ERRORS_REMEMBERED:
            self._logged.clear()
        self._logged[text] = now
        return True
