"""How the points about reservations are run: all filters must agree, and scores are brought to a common scale.

A reservation is placed as a pod is: a pod that exists in no API stands for it in the queue, with two annotations that
say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.api.annotations import RESERVATION_NAME, RESERVE_POD
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import (
    ReservationFilterPlugin,
    ReservationPreAllocationRestorePlugin,
    ReservationRestorePlugin,
    ReservationScorePlugin,
)
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


def restore_pre_allocatable(profile: Profile, reservation: Any, pods: Sequence[PodInfo], row: int) -> dict[str, Any]:
    """The same for a reservation that takes over what running pods hold."""
    return {
        plugin.name: plugin.restore_pre_allocatable(reservation, pods, row)
        for plugin in profile.all(ReservationPreAllocationRestorePlugin)
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
    return _score(profile, [(pod, reservation) for reservation in reservations], row)


def score_pre_allocatable(profile: Profile, reservation: Any, pods: Sequence[PodInfo], row: int) -> list[int]:
    """The same for each of ``pods`` that ``reservation`` might take over."""
    return _score(profile, [(pod, reservation) for pod in pods], row)


def _score(profile: Profile, pairs: Sequence[tuple[PodInfo, Any]], row: int) -> list[int]:
    totals = [0] * len(pairs)
    for plugin in profile.all(ReservationScorePlugin):
        scores = [plugin.score_reservation(pod, reservation, row) for pod, reservation in pairs]
        if min(scores, default=0) < 0:
            raise PluginError(f"plugin {plugin.name} scores a reservation {min(scores)}, which is below 0")
        largest = max(scores, default=0)
        for index, score in enumerate(scores):
            totals[index] += score * MAX_NODE_SCORE // largest if largest else 0
    return totals


def stands_for_a_reservation(profile: Profile, pod: PodInfo) -> bool:
    """Whether it is a reservation that gets its node with this pod; never in a profile that knows no reservations."""
    return bool(profile.reservation_pre_bind) and pod.pod.metadata.annotations.get(RESERVE_POD) == "true"


def reservation_of(profile: Profile, pod: PodInfo) -> Reservation:
    """The reservation that the pod stands for, as the API has it now.

    Raises PluginError if there is none any more, or one of the same name that was created since.
    """
    name = pod.pod.metadata.annotations.get(RESERVATION_NAME, "")
    found = profile.reservation_pre_bind[0].view.objects_of(RESERVATIONS).get(name)
    if not isinstance(found, Reservation) or found.metadata.uid != pod.uid:
        raise PluginError(f"reservation {name!r}, for which the pod stands, does not exist")
    if found.metadata.deletion_timestamp is not None:
        raise PluginError(f"reservation {name!r} is being deleted")
    return found
