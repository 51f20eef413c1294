"""PreFilter states of classes of pods, and the allocations of pods in the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.reservation.booking import Booking, Match
from koordinator.scheduler.plugins.reservation.matching import ReservationRequirements

FIRST_CODE: Final = 3
"""Codes below are the same for all classes."""


class TakeOver(NamedTuple):
    """The allocation of a reserve pod: the running pods that its Reservation takes over."""

    uid: str
    pods: tuple[PodInfo, ...]


class Use(NamedTuple):
    """The allocation of a pod: the Reservation that it takes from."""

    name: str
    uid: str


@dataclass(slots=True, kw_only=True)
class Coded:
    """Maps the reasons of rejections to codes, for one class of pods."""

    combinations: list[tuple[Reason, ...]] = field(default_factory=list)
    """The reasons of the codes from FIRST_CODE on."""

    def code_of(self, reasons: tuple[Reason, ...]) -> int:
        if reasons not in self.combinations:
            self.combinations.append(reasons)
        return self.combinations.index(reasons) + FIRST_CODE


@dataclass(slots=True)
class Owner(Coded):
    """A class of pods that own Reservations, or must use one. ``is_operating``: they represent one once they run."""

    match: Match
    requirements: ReservationRequirements
    is_operating: bool


@dataclass(slots=True)
class ReservePod(Coded):
    """A class of reserve pods. ``taking_over``: the Reservation, if it may take over running pods."""

    pinned: str
    policy: str
    taking_over: Booking | None = None
