"""What is remembered of the usage of one container of a workload: a histogram of CPU and one of memory peaks.

All replicas of a container feed one model. The scheme is that of Kubernetes' vertical pod autoscaler: each sample of
CPU is weighted by the container's request; of memory only the peak of each interval counts, since too little memory
kills a container at once. Pure: times come with the samples. They are steady times: a sample that bears a time of next
month would outweigh all others until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from koordinator.manager.recommender.options import ModelOptions
from koordinator.model.decaying_histogram import Buckets, DecayingHistogram

CPU_BUCKETS: Final = Buckets(first=0.001, maximum=1000.0)
"""In cores."""
MEMORY_BUCKETS: Final = Buckets(first=1e7, maximum=1e12)
"""In bytes."""
_LEAST_WEIGHT: Final = 0.1
"""Of a sample of CPU, in cores: containers that request nothing count too."""


@dataclass(slots=True)
class Replica:
    """What is kept of one container of one pod, so that each sample counts once."""

    cpu_until: datetime | None = None
    """The time of the last sample of CPU."""
    memory_until: datetime | None = None
    window_end: datetime | None = None
    """The end of the current interval of memory usage; None before the first sample."""
    memory_peak: float = 0.0
    """The highest usage in that interval, in bytes; 0 before the first sample."""
    oom_peak: float = 0.0
    """The highest amount in that interval that was estimated when the container was killed for memory."""

    @property
    def peak(self) -> float:
        """The sample of the current interval so far; 0 for a container that used nothing."""
        return max(self.memory_peak, self.oom_peak)


@dataclass(slots=True)
class History:
    """The time range of the CPU samples and their number, from which the confidence follows."""

    first: datetime | None = None
    last: datetime | None = None
    count: int = 0

    def add(self, at: datetime) -> None:
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        self.count += 1

    def moved(self, by: timedelta) -> History:
        """The same at another time. Times at the ends of the calendar, which no clock has shown, stay."""
        try:
            return History(self.first and self.first + by, self.last and self.last + by, self.count)
        except OverflowError:
            return self


@dataclass(slots=True)
class ContainerModel:
    """One container of one Recommendation. ``replicas`` are by the UID of the pod."""

    options: ModelOptions
    cpu: DecayingHistogram = field(init=False)
    memory: DecayingHistogram = field(init=False)
    history: History = field(default_factory=History)
    replicas: dict[str, Replica] = field(default_factory=dict)
    last_sample: datetime | None = None
    """Of any resource."""
    restored_until: datetime | None = None
    """The time of the last sample of CPU in the checkpoint from which the model was restored: the same sample is read
    again after a restart."""

    def __post_init__(self) -> None:
        self.cpu = DecayingHistogram(CPU_BUCKETS, self.options.cpu_half_life)
        self.memory = DecayingHistogram(MEMORY_BUCKETS, self.options.memory_half_life)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be recommended yet."""
        return self.cpu.is_empty and self.memory.is_empty

    def add_cpu(self, uid: str, cores: float, at: datetime, request_cores: float) -> bool:
        """Add a sample unless it is negative, or not later than the last one of this replica. Returns whether it was
        added."""
        replica = self._replica(uid)
        if cores < 0 or (replica.cpu_until is not None and at <= replica.cpu_until):
            return False
        replica.cpu_until = at
        self.cpu.add(cores, at, max(request_cores, _LEAST_WEIGHT))
        self.history.add(at)
        self._touch(at)
        return True

    def add_memory(self, uid: str, used: float, at: datetime) -> bool:
        """Add a sample (bytes) unless it is negative, or older than the last one of this replica. Returns whether it
        was valid: only the peak of an interval is kept."""
        replica = self._replica(uid)
        if used < 0 or (replica.memory_until is not None and at < replica.memory_until):
            return False
        if self._add_peak(replica, used, at):
            replica.memory_peak = used
        return True

    def add_oom(self, uid: str, amount: float, at: datetime, most: float | None = None) -> bool:
        """Add an OOM kill of a container that used, or requested, ``amount`` bytes: it needs more than that.

        ``most`` limits the assumed usage. Returns False for a kill before the current interval, which is ignored.
        """
        replica = self._replica(uid)
        interval = self.options.memory_interval
        if replica.window_end is not None and at < replica.window_end - interval:
            return False
        # Peaks of earlier kills do not count, because each kill would raise the estimate of the next one.
        used = max(amount, replica.memory_peak)
        if most is not None:
            used = min(used, most)
        needed = max(used + self.options.oom_min_bump_up_bytes, used * self.options.oom_bump_up_ratio)
        if self._add_peak(replica, needed, at):
            replica.oom_peak = needed
        return True

    def memory_without_open_intervals(self) -> DecayingHistogram:
        """Return a copy of the memory histogram without the peaks of the current intervals.

        This is what a checkpoint stores: after a restart, the same interval would otherwise count twice.
        """
        histogram = self.memory.copy()
        for replica in self.replicas.values():
            if replica.window_end is not None:
                histogram.subtract(replica.peak, replica.window_end)
        return histogram

    def _add_peak(self, replica: Replica, amount: float, at: datetime) -> bool:
        """Add ``amount`` if it is the peak of its interval so far. Returns whether it is."""
        replica.memory_until = at if replica.memory_until is None else max(at, replica.memory_until)
        self._touch(at)
        if replica.window_end is None:
            replica.window_end = at
        if at < replica.window_end:
            if amount <= replica.peak:
                return False
            self.memory.subtract(replica.peak, replica.window_end)
        else:
            interval = self.options.memory_interval
            replica.window_end += ((at - replica.window_end) // interval + 1) * interval
            replica.memory_peak = replica.oom_peak = 0.0
        self.memory.add(amount, replica.window_end)
        return True

    def _replica(self, uid: str) -> Replica:
        replica = self.replicas.get(uid)
        if replica is None:
            replica = self.replicas[uid] = Replica(cpu_until=self.restored_until)
        return replica

    def _touch(self, at: datetime) -> None:
        self.last_sample = at if self.last_sample is None else max(self.last_sample, at)
