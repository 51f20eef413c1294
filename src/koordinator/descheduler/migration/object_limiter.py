"""How often pods of one workload or namespace are evicted: a token bucket for each, from its first eviction on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.arguments import NAMESPACE, WORKLOAD, MigrationControllerArgs, workload_limit

_Key = tuple[str, str]
"""The kind of the limited object, and its uid or name."""


@dataclass(slots=True)
class _Bucket:
    """Full at the start; more than is in it cannot be taken."""

    rate: float
    burst: int
    tokens: float
    filled_at: float
    last_eviction: float

    def tokens_at(self, now: float) -> float:
        return min(float(self.burst), self.tokens + max(now - self.filled_at, 0.0) * self.rate)

    def take(self, rate: float, now: float) -> None:
        self.tokens = self.tokens_at(now)
        self.filled_at = self.last_eviction = now
        self.rate = rate
        if self.tokens >= 1:
            self.tokens -= 1


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """What an eviction counts for; ``replicas`` of its workload are None if they are not known."""

    namespace: str
    controller: str
    replicas: int | None

    @classmethod
    def of(cls, pod: Pod, replicas: int | None) -> EvictedPod:
        controller = controller_of(pod.metadata)
        return cls(pod.metadata.namespace, controller.uid if controller is not None else "", replicas)


class ObjectLimiter:
    """Times are seconds of the monotonic clock, so that a wall clock that is set neither holds evictions up nor lets
    more of them through."""

    def __init__(self, args: MigrationControllerArgs) -> None:
        self._args = args
        self._limiters = {kind: each for kind, each in args.object_limiters.items() if each.duration > timedelta()}
        self._buckets: dict[_Key, _Bucket] = {}

    @property
    def longest_memory(self) -> timedelta:
        """Evictions longer ago than this count for nothing."""
        return max((_memory(each.duration) for each in self._limiters.values()), default=timedelta())

    def refusals(self, pod: Pod, now: float) -> list[str]:
        """What keeps the pod from being evicted at this moment."""
        self._forget(now)
        refused = []
        for kind, name in self._keys(EvictedPod.of(pod, None)):
            bucket = self._buckets.get((kind, name))
            if bucket is not None and bucket.tokens_at(now) < 1:
                refused.append(f"limitedObject: {kind} {name} had pods evicted a short time ago")
        return refused

    def track(self, evicted: EvictedPod, now: float) -> None:
        """A pod has been evicted."""
        for kind, name in self._keys(evicted):
            most = self._most(kind, evicted.replicas)
            if not most:
                continue
            limiter = self._limiters[kind]
            rate, burst = most / limiter.duration.total_seconds(), limiter.burst or 1
            bucket = self._buckets.setdefault((kind, name), _Bucket(rate, burst, float(burst), now, now))
            bucket.take(rate, now)

    def _keys(self, evicted: EvictedPod) -> Iterator[_Key]:
        for kind in self._limiters:
            name = evicted.controller if kind == WORKLOAD else evicted.namespace
            if name:
                yield kind, name

    def _most(self, kind: str, replicas: int | None) -> int:
        value = self._limiters[kind].max_migrating
        if kind == NAMESPACE:
            return value if isinstance(value, int) else 0
        if replicas is None:
            return 0
        return workload_limit(replicas, self._args.max_migrating_per_workload if value is None else value)

    def _forget(self, now: float) -> None:
        memories = {kind: _memory(each.duration) for kind, each in self._limiters.items()}
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if now - bucket.last_eviction < memories[key[0]].total_seconds()
        }


def _memory(duration: timedelta) -> timedelta:
    return duration * 1.5
