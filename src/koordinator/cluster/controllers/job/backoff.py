"""The pause before a failed pod of a Job is replaced: 10 s, doubled with each failure in a row, at most 10 minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.pod import Pod
from koordinator.cluster.controllers.job.pods import failure_count, finish_time, ignored_failure_count

_FIRST: Final = 10.0
_LONGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The failures of a Job since the last pod that succeeded; kept in memory, as by kube-controller-manager."""

    failures: int = 0
    last_failure: datetime | None = None

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod], now: datetime) -> Backoff:
        """What it is once these pods have ended."""
        before = self
        if succeeded:
            last_success = max(finish_time(pod, now) for pod in succeeded)
            failed = [pod for pod in failed if finish_time(pod, now) > last_success]
            before = Backoff()
        if not failed:
            return before
        return Backoff(before.failures + len(failed), max(finish_time(pod, now) for pod in failed))

    def remaining(self, now: datetime) -> float:
        """Seconds until a pod may be created."""
        if not self.failures or self.last_failure is None:
            return 0.0
        pause = min(_LONGEST, _FIRST * 2.0 ** min(self.failures - 1, 16))
        return max(0.0, pause - (now - self.last_failure).total_seconds())


def backoff_of_index(last_failed: Pod | None, now: datetime) -> Backoff:
    """That of one index of a Job with a backoffLimitPerIndex, from its last pod, which failed."""
    if last_failed is None:
        return Backoff()
    return Backoff(failure_count(last_failed) + ignored_failure_count(last_failed) + 1, finish_time(last_failed, now))
