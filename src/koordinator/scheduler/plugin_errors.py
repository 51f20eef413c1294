"""Plugin errors: logged with their origin, but rate-limited, and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, MIN_NODE_SCORE
from koordinator.scheduler.engine.resync import TRIES

logger = logging.getLogger(__name__)

_SAME_ERROR_SECONDS: Final = 60.0
_ERRORS_REMEMBERED: Final = 100
_SUBJECTS_NAMED: Final = 5


class PluginErrors:
    """Logs and counts plugin errors. A failing plugin fails for one pod after the other: the same text is logged once a
    minute."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        count: Callable[[str, str], None],
        count_resync: Callable[[str, str], None] = lambda plugin, result: None,
    ) -> None:
        self._monotonic = monotonic
        self._count = count
        self._count_resync = count_resync
        self._stale: set[str] = set()
        self._logged: dict[str, float] = {}

    def of_pod(self, key: str, error: Exception) -> None:
        """An attempt of the pod ended by ``error``."""
        if self._is_due(str(error)):
            logger.error("pod %s could not be decided about: %s", key, error, exc_info=error.__cause__ or error)

    def of_plugin(self, plugin: str, point: str, error: Exception) -> None:
        """A plugin failed, and the attempt, or the process, continues without its result."""
        self._count(plugin, point)
        if self._is_due(f"{plugin} {point} {error}"):
            logger.error("plugin %s failed in %s: %s", plugin, point, _text(error), exc_info=error)

    def of_score(self, plugin: str, subject: str, score: int) -> None:
        """A plugin gave ``subject`` a score out of range, in place of which the lowest one counts. What it does once it
        does for one node and one pod after the other, so one of them is logged each minute."""
        self._count(plugin, "score")
        if self._is_due(f"{plugin} score"):
            logger.error(
                "plugin %s: a score of %s for %s is not usable: allowed are %d to %d; it counts as %d",
                *(plugin, score, subject, MIN_NODE_SCORE, MAX_NODE_SCORE, MIN_NODE_SCORE),
            )

    def of_event_handler(self, plugin: str, point: str, error: Exception) -> None:
        """A plugin failed to process an event, and is rebuilt later: logged once until it knows everything again."""
        self._count(plugin, point)
        if plugin not in self._stale:
            self._stale.add(plugin)
            message = "plugin %s failed in %s and is notified of everything again: %s"
            logger.error(message, plugin, point, _text(error), exc_info=error)

    def recovered(self, plugin: str) -> None:
        """The plugin has been rebuilt."""
        self._stale.discard(plugin)
        self._count_resync(plugin, "success")
        logger.info("plugin %s has been notified of all that is there", plugin)

    def given_up(self, plugin: str, left_out: Sequence[str]) -> None:
        """The plugin fails again at something whenever it is rebuilt."""
        self._stale.discard(plugin)
        self._count_resync(plugin, "error")
        logger.error(
            "plugin %s failed %d more times and is not notified of %s until that changes",
            *(plugin, TRIES, ", ".join(left_out[:_SUBJECTS_NAMED])),
        )

    def of_ours(self, what: str, error: Exception) -> None:
        """An unexpected error, a defect of this package, while doing ``what``."""
        if self._is_due(f"{what} {error}"):
            logger.error("%s failed and will be retried: %s", what, _text(error), exc_info=error)

    def of_cache(self, difference: str) -> None:
        """The cached result of a node differs from that of a fresh evaluation: a defect of this package, or a plugin
        that reads more than it declares."""
        if self._is_due(difference):
            logger.error("cached evaluation differs: %s", difference)

    def _is_due(self, text: str) -> bool:
        now = self._monotonic()
        if now - self._logged.get(text, float("-inf")) < _SAME_ERROR_SECONDS:
            return False
        if len(self._logged) >= _ERRORS_REMEMBERED:
            self._logged.clear()
        self._logged[text] = now
        return True


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
