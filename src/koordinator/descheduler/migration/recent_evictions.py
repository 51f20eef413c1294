"""How soon after an eviction there may be another one: of the same workload or namespace, and of the replacement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from koordinator.api.annotations import SOFT_EVICTION
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct, controller_of
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.base.durations import has_passed
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration.arguments import NAMESPACE, WORKLOAD, MigrationControllerArgs, workload_limit
from koordinator.descheduler.pod_facts import is_evictable_by_annotation

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
    """A token bucket for each object, from its first eviction on.

    Times are seconds of the monotonic clock, so that a wall clock that is set neither holds evictions up nor lets
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


class CoolDown:
    """The time for which the replacement of an evicted pod stays, so that a node around its threshold sends no pods to
    and fro. A replacement has another uid than the pod, and mostly another name: what is known is that it belongs to
    the same controller and was created after the eviction.

    Times are wall times, so that they compare with creation timestamps. A duration of 0 refuses nothing."""

    def __init__(self, duration: timedelta) -> None:
        self._duration = duration
        self._evictions: dict[str, list[datetime]] = {}
        """The uid of a controller -> when pods of it were evicted."""

    def track(self, controller: str, at: datetime) -> None:
        """A pod of the controller with this uid has been evicted; bare pods ("") have no replacement."""
        if not controller or not self._duration:
            return
        # Creation timestamps have whole seconds, so that a replacement may seem to be older than the eviction.
        times, at = self._evictions.setdefault(controller, []), at.replace(microsecond=0)
        if at not in times:
            times.append(at)
        kept = {uid: [each for each in known if self._counts(each, at)] for uid, known in self._evictions.items()}
        self._evictions = {uid: times for uid, times in kept.items() if times}

    def refusals(self, pod: Pod, now: datetime) -> Refusals:
        """What keeps the pod from being moved at this moment; nothing keeps one that is forced."""
        controller, created = controller_of(pod.metadata), pod.metadata.creation_timestamp
        if controller is None or created is None or is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        times = self._evictions.get(controller.uid, ())
        before = [at for at in times if at <= created and self._counts(at, now)]
        if not before:
            return NOTHING_REFUSED
        until = format_time(max(before) + self._duration)
        return [f"coolDown: the pod was created after another one of its workload was evicted, and stays until {until}"]

    def _counts(self, at: datetime, now: datetime) -> bool:
        return not has_passed(self._duration, at, now)


class _SoftEviction(WireStruct):
    """What is read of the annotation soft-eviction."""

    timestamp: datetime | None = None


def under_way_since(pod: Pod, known: datetime) -> datetime:
    """When the eviction of a pod that is terminating began, as far as is known: ``known``, or earlier where the pod's
    annotation says that it was evicted softly before. A replacement of such a pod may be older than the job for it.

    What cannot be read of the pod's annotation says nothing.
    """
    said = pod.metadata.annotations.get(SOFT_EVICTION)
    if said is None:
        return known
    try:
        at = decode(said.encode(), _SoftEviction).timestamp
    except DecodeError:
        return known
    # RFC 3339 has a zone; what lacks one compares with nothing.
    return known if at is None or at.tzinfo is None else min(at, known)
