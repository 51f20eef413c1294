"""The metrics of gangs: how many groups hold nodes and wait, and how long attempts of groups take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.base.instruments import Histogram
from koordinator.base.metrics import exponential_buckets
from koordinator.scheduler.plugins.coscheduling.gang import Group, MemberState

_BUCKETS: Final = exponential_buckets(0.001, 2, 15)
_PREEMPTION_BUCKETS: Final = exponential_buckets(0.001, 2, 20)
_KEPT_SECONDS: Final = 300.0
"""How long the series of a job is kept after its last preemption attempt, as in the original."""
_STEP: Final = 100
_LARGEST: Final = 1000


class GangMetrics(Collector):
    """The metrics of gangs; ``groups`` is called at each scrape."""

    def __init__(self, groups: Callable[[], Iterable[Group]]) -> None:
        self._groups = groups
        self._cycles = Histogram(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "[ALPHA] Seconds from the first to the last member of a gang group in one attempt",
            ("reason", "job_size"),
            _BUCKETS,
        )
        self._preemptions = Histogram(
            "scheduler_job_preemption_duration_seconds",
            "Latency for running Coscheduling plugin postFilter.",
            ("jobName", "result"),
            _PREEMPTION_BUCKETS,
        )
        self._preempted: dict[tuple[str, str], float] = {}
        """Series -> when it was last observed, in seconds of the scheduler's clock; the oldest first."""

    def attempt_ended(self, reason: str, members: int, seconds: float) -> None:
        """Observe an attempt of a group; ``members``: how many members were tried."""
        self._cycles.labels(reason, job_size(members)).observe(seconds)

    def preemption_ended(self, job: str, result: str, began: float, now: float) -> None:
        """Observe a preemption attempt of a job, from ``began`` to ``now`` in seconds of the scheduler's clock."""
        series = job, result
        self._preemptions.labels(*series).observe(now - began)
        self._preempted.pop(series, None)
        self._preempted[series] = now
        while now - self._preempted[oldest := next(iter(self._preempted))] > _KEPT_SECONDS:
            del self._preempted[oldest]
            self._preemptions.remove(*oldest)

    def collect(self) -> Iterable[Metric]:
        waiting = sum(1 for group in self._groups() if group.members(MemberState.WAITING))
        family = GaugeMetricFamily(
            "scheduler_waiting_gang_group_number",
            "[ALPHA] Gang groups of which members have a node and wait for the others",
        )
        family.add_metric((), waiting)
        return [family, *self._cycles.collect(), *self._preemptions.collect()]


def job_size(members: int) -> str:
    """The value of the label ``job_size``: the range of a hundred in which the number lies, such as "101-200"."""
    if not members:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    first = (members - 1) // _STEP * _STEP + 1
    return f"{first}-{first + _STEP - 1}"
