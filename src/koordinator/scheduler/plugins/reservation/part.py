"""The state that all parts of the plugin share: the cache of all profiles, and the Reservations of reserve pods."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.booking import Booking
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.nomination import Nominator
from koordinator.scheduler.plugins.reservation.pre_allocation import PreAllocator

_NONE: Final[tuple[frozenset[str], frozenset[str]]] = frozenset(), frozenset()


class ReservationPart(Plugin):
    """One part of the plugin; all have the same state."""

    name = "Reservation"
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        shared = view.shared.setdefault(self.name, {})
        self._cache: ReservationCache = shared.setdefault("cache", ReservationCache(view))
        if args is not None:
            self._cache.index_selectors(args.reservation_selector_index)
        self._failures: dict[str, str] = shared.setdefault("failures", {})
        config = args.pre_allocation_config if args is not None else None
        self._pre_allocator = PreAllocator(self._cache, view, config, lambda: self._points)
        ignored = (frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)) if args else _NONE
        self._nominator = Nominator(self._cache, view, ignored, lambda: self._points)

    @cached_property
    def _points(self) -> ReservationPoints:
        """The other plugins of the profile that implement points about Reservations."""
        return ReservationPoints(self.handle.profile)

    def _taking_over(self, pod: PodInfo) -> Booking | None:
        """The Reservation of a reserve pod, if it may take over running pods; otherwise None."""
        reservation = self._reservation(pod)
        if reservation is None or not reservation.spec.pre_allocation:
            return None
        return self._cache.pending_booking(reservation, pod.pod)

    def _reservation(self, pod: PodInfo) -> Reservation | None:
        """The Reservation of a reserve pod; None if it is gone."""
        name = pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME, "")
        found = self.view.objects_of(RESERVATIONS).get(name)
        return found if isinstance(found, Reservation) and found.metadata.uid == pod.uid else None
