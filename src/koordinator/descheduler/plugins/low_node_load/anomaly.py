"""Which hot nodes have been hot for long enough (the original's pkg/descheduler/utils/anomaly).

Each node has a detector that is in one of two states, and counts in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition

_DEFAULT_TIMEOUT: Final = 60.0


@dataclass(slots=True)
class Detector:
    """Abnormal after more than ``abnormalities`` abnormal cycles in a row; normal again after more than ``normalities``
    normal ones, or ``timeout`` seconds after it became abnormal."""

    abnormalities: int
    normalities: int
    timeout: float
    is_abnormal: bool = False
    hot_cycles: int = field(default=0, init=False)
    """Abnormal cycles in a row, the last one included."""
    _abnormal: int = field(default=0, init=False)
    _normal: int = field(default=0, init=False)
    _until: float = field(default=0.0, init=False)

    def mark(self, *, normal: bool, now: float) -> bool:
        """Count one cycle. Returns whether the node is abnormal."""
        self._refresh(now)
        if normal:
            self._normal += 1
            self._abnormal = self.hot_cycles = 0
        else:
            self.hot_cycles += 1
            self._abnormal += 1
            self._normal = 0
        if not self.is_abnormal and self._abnormal > self.abnormalities:
            self._set(True, now)
        self._refresh(now)
        return self.is_abnormal

    def reset(self, now: float) -> None:
        """Normal from now on; a run of abnormal cycles that has not been enough continues."""
        self._set(False, now)

    def _refresh(self, now: float) -> None:
        if self.is_abnormal and (self._until < now or self._normal > self.normalities):
            self._set(False, now)

    def _set(self, abnormal: bool, now: float) -> None:
        if self.is_abnormal == abnormal:
            return
        self.is_abnormal = abnormal
        self._abnormal = self._normal = 0
        self._until = now + self.timeout


class Detectors:
    """By the name of the node; one that is not hot for ``cache_timeout`` seconds is forgotten."""

    def __init__(self, cache_timeout: float) -> None:
        self._cache_timeout = cache_timeout
        self._detectors: dict[str, tuple[Detector, float]] = {}

    def forget_expired(self, now: float) -> None:
        """Those of nodes that have been relieved long ago, or are gone."""
        self._detectors = {name: found for name, found in self._detectors.items() if found[1] >= now}

    def mark_hot(self, node: str, condition: AnomalyCondition, now: float) -> bool:
        """Whether the node has been hot for long enough."""
        if condition.consecutive_abnormalities == 1:
            return True
        detector = self._get(node, now)
        if detector is None:
            timeout = condition.timeout.total_seconds() if condition.timeout is not None else 0.0
            detector = Detector(
                condition.consecutive_abnormalities,
                condition.consecutive_normalities,
                timeout if timeout > 0 else _DEFAULT_TIMEOUT,
            )
        self._detectors[node] = detector, now + self._cache_timeout
        return detector.mark(normal=False, now=now)

    def hot_cycles(self, node: str) -> int:
        """In how many cycles in a row a node has been hot that is hot now; 1 where that is enough."""
        found = self._detectors.get(node)
        return found[0].hot_cycles if found is not None else 1

    def mark_normal(self, node: str, now: float) -> None:
        """One normal cycle; it ends a run of hot ones."""
        detector = self._get(node, now)
        if detector is not None:
            detector.mark(normal=True, now=now)

    def reset(self, node: str, now: float) -> None:
        """The node is relieved."""
        detector = self._get(node, now)
        if detector is not None:
            detector.reset(now)

    def _get(self, node: str, now: float) -> Detector | None:
        found = self._detectors.get(node)
        if found is None:
            return None
        detector, expires = found
        if expires < now:
            del self._detectors[node]
            return None
        return detector
