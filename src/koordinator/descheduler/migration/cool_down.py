"""The time for which a pod that has just been moved stays where it is, so that a node around its threshold does not
send pods to and fro.

A replacement is not recognisable by its object: it has another uid than the pod that was evicted, and mostly another
name. What is known is that it belongs to the same controller and was created after the eviction.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from koordinator.api.annotations import SOFT_EVICTION
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct, controller_of
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.base.durations import has_passed
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.pod_predicates import is_evictable_by_annotation


class CoolDown:
    """Times are wall times, so that they compare with creation timestamps. A duration of 0 refuses nothing."""

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
