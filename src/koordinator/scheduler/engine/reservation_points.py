"""Runs the extension points about Reservations, for the plugin that manages these.

All filters must agree, and scores are scaled to a common range. Restore plugins are called for a row before the row is
adjusted to be seen without reserve pods.

A reservation is scheduled as a pod is: its reserve pod, which exists in no API, goes through the queue; two annotations
mark it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, Plugin, PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import (
    ReservationFilterPlugin,
    ReservationPreAllocationRestorePlugin,
    ReservationRestorePlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.journal import Change
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo


class ReservationPoints:
    """The plugins of a profile that implement points about Reservations, beside the plugin that manages them; falsy
    without any."""

    def __init__(self, profile: Profile) -> None:
        self._restoring = profile.all(ReservationRestorePlugin)
        self._restoring_pods = profile.all(ReservationPreAllocationRestorePlugin)
        self._filtering = profile.all(ReservationFilterPlugin)
        self._scoring = profile.all(ReservationScorePlugin)
        every = (*self._restoring, *self._restoring_pods, *self._filtering, *self._scoring)
        self._plugins: tuple[Plugin, ...] = tuple(dict.fromkeys(every))
        self._seen: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._plugins)

    def key(self, pod: PodInfo) -> Hashable:
        """Equal for pods that all these plugins treat alike at this moment."""
        return tuple([(plugin.class_key(pod), plugin.context_key(pod)) for plugin in self._plugins])

    def is_seen(self, row: int) -> bool:
        """Whether the row is currently adjusted for a pod that may take from Reservations there, or take over pods."""
        return row in self._seen

    def restoration(self, view: ClusterView, matched: Sequence[ReservationInfo], row: int) -> Change:
        """The part of an adjustment of ``row`` for pods that may take from ``matched``."""

        def values() -> dict[tuple[type, str, int], Any]:
            uids = {each.uid for each in matched}
            unmatched = [each for each in view.reservations_on(row) if each.uid not in uids]
            return {
                (ReservationRestorePlugin, plugin.name, row): plugin.restore_reservations(matched, unmatched, row)
                for plugin in self._restoring
            }

        return _Restoration(view, row, self._seen, values)

    def pre_allocation(
        self, view: ClusterView, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int
    ) -> Change:
        """The same for the reserve pod of ``reservation``, which may take over ``pods``."""

        def values() -> dict[tuple[type, str, int], Any]:
            point = ReservationPreAllocationRestorePlugin
            return {
                (point, plugin.name, row): plugin.restore_pre_allocatable(reservation, pods, row)
                for plugin in self._restoring_pods
            }

        return _Restoration(view, row, self._seen, values)

    def refusal(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        """The first reason why the pod cannot take from the Reservation; None when every plugin permits it."""
        for plugin in self._filtering:
            reason = plugin.filter_reservation(pod, reservation, row)
            if reason is not None:
                return reason
        return None

    def scores(self, pairs: Sequence[tuple[PodInfo, ReservationInfo]], row: int) -> list[int]:
        """The sum of all plugins' scores for each of ``pairs``, which are one pod with several Reservations, or one
        Reservation with several pods; each plugin's scores are scaled by its largest to 0..100. A negative one is
        reported, and counts as 0."""
        totals = [0] * len(pairs)
        for plugin in self._scoring:
            scores = [plugin.score_reservation(pod, reservation, row) for pod, reservation in pairs]
            for index, score in enumerate(scores):
                if score < 0:
                    plugin.handle.unusable_score(plugin.name, f"reservation {pairs[index][1].name}", score)
                    scores[index] = 0
            largest = max(scores, default=0)
            for index, score in enumerate(scores):
                totals[index] += score * MAX_NODE_SCORE // largest if largest else 0
        return totals


class _Restoration:
    """A Change during which the results of restore plugins for a row can be read."""

    def __init__(
        self, view: ClusterView, row: int, seen: set[int], values: Callable[[], dict[tuple[type, str, int], Any]]
    ) -> None:
        self._view = view
        self._row = row
        self._seen = seen
        self._values = values
        self._before: dict[tuple[type, str, int], Any] | None = None
        self._was_seen = False

    def apply(self) -> None:
        values = self._values()
        restored = self._view.restored
        self._before, self._was_seen = {key: restored.get(key) for key in values}, self._row in self._seen
        restored.update(values)
        self._seen.add(self._row)

    def revert(self) -> None:
        if self._before is None:
            return
        for key, value in self._before.items():
            if value is None:
                del self._view.restored[key]
            else:
                self._view.restored[key] = value
        if not self._was_seen:
            self._seen.discard(self._row)
        self._before = None


def reservation_of(profile: Profile, pod: PodInfo) -> Reservation:
    """The reservation of a reserve pod, as the API has it now.

    Raises PluginError if it does not exist any more, or was recreated under the same name.
    """
    name = pod.pod.metadata.annotations.get(RESERVATION_NAME, "")
    found = profile.reservation_pre_bind[0].view.objects_of(RESERVATIONS).get(name)
    if found is None or found.metadata.uid != pod.uid:
        raise PluginError(f"reservation {name!r}, for which the pod stands, does not exist")
    if found.metadata.deletion_timestamp is not None:
        raise PluginError(f"reservation {name!r} is being deleted")
    return found
