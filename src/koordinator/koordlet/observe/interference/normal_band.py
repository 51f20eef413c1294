"""The normal band of an indicator: what readings of it look like when nothing is wrong, learned as they come."""

from __future__ import annotations

import math
from typing import Final

_WARM_UP: Final = 30
"""So many readings are needed before anything counts as abnormal: five minutes, one every ten seconds."""
_HALF_LIFE: Final = 360
"""Readings after which an old one weighs half: an hour."""
_WEIGHT: Final = 1 - 0.5 ** (1 / _HALF_LIFE)
_ABNORMAL_WEIGHT: Final = 0.1
_DEVIATIONS: Final = 3.0
"""A reading is abnormal that many standard deviations above the mean (CPI² uses two, and meets more false alarms)."""


class NormalBand:
    """The mean and the deviation of one indicator, exponentially weighted.

    Below ``floor`` a reading is never abnormal, and an abnormal one is at least ``least_ratio`` times the mean.
    """

    __slots__ = ("_count", "_floor", "_least_ratio", "_variance", "mean")

    def __init__(self, floor: float, least_ratio: float) -> None:
        self._floor = floor
        self._least_ratio = least_ratio
        self._count = 0
        self._variance = 0.0
        self.mean = 0.0

    @property
    def is_learned(self) -> bool:
        """Whether there are enough readings to recognise an abnormal one."""
        return self._count >= _WARM_UP

    @property
    def limit(self) -> float:
        """What is above it is abnormal; infinite until the band is learned."""
        if not self.is_learned:
            return math.inf
        by_deviation = self.mean + _DEVIATIONS * math.sqrt(self._variance)
        return max(by_deviation, self.mean * self._least_ratio, self._floor)

    def learn(self, value: float) -> bool:
        """Take a reading into account; returns whether it is abnormal.

        An abnormal one counts as the limit, and little: a lasting change becomes normal within hours, an antagonist of
        some minutes does not.
        """
        limit = self.limit
        is_abnormal = value > limit
        clipped = min(value, limit)
        self._count += 1
        weight = max(1 / self._count, _WEIGHT) * (_ABNORMAL_WEIGHT if is_abnormal else 1.0)
        difference = clipped - self.mean
        self.mean += weight * difference
        self._variance = (1 - weight) * (self._variance + weight * difference * difference)
        return is_abnormal
