"""How the points about reservations are run: all filters must agree, and scores are brought to a common scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.scheduler.engine.extender import (
    ReservationFilterPlugin,
    ReservationRestorePlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, PluginError, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile


def restore_reservations(
    profile: Profile, pod: PodInfo, matched: Sequence[Any], unmatched: Sequence[Any], row: int
) -> dict[str, Any]:
    """What each plugin has to give back on ``row``, by the plugin's name."""
    return {
        plugin.name: plugin.restore_reservations(pod, matched, unmatched, row)
        for plugin in profile.all(ReservationRestorePlugin)
    }


def filter_reservation(profile: Profile, pod: PodInfo, reservation: Any, row: int) -> Reason | None:
    """Why the pod cannot take from the reservation; None when every plugin lets it."""
    for plugin in profile.all(ReservationFilterPlugin):
        reason = plugin.filter_reservation(pod, reservation, row)
        if reason is not None:
            return reason
    return None


def score_reservations(profile: Profile, pod: PodInfo, reservations: Sequence[Any], row: int) -> list[int]:
    """The sum over all plugins for each of ``reservations``; each plugin's scores are scaled by its largest to 0..100.

    Raises PluginError for a score that is negative.
    """
    totals = [0] * len(reservations)
    for plugin in profile.all(ReservationScorePlugin):
        scores = [plugin.score_reservation(pod, reservation, row) for reservation in reservations]
        if min(scores, default=0) < 0:
            raise PluginError(f"plugin {plugin.name} scores a reservation {min(scores)}, which is below 0")
        largest = max(scores, default=0)
        for index, score in enumerate(scores):
            totals[index] += score * MAX_NODE_SCORE // largest if largest else 0
    return totals
