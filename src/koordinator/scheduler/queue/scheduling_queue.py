"""The scheduling queue: which pod is tried next, and when a pod that failed is retried.

A pod is in exactly one pool at any time. A pod for which no node fits goes to the unschedulable pool with the kinds of
event that may help it; events while it is in flight count too, so that none is missed between a decision and that move.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.queue.pools import (
    SPARE,
    BackingOff,
    Heap,
    NominatedTo,
    QueueingHint,
    RecentEvents,
    UnschedulablePods,
)
from koordinator.scheduler.queue.queued_pod import NO_KINDS, UNDER_WAY, Cause, Pool, QueuedPod, may_matter, of_event

_EVENTS_AT_ONCE: Final = 64
"""So many events are looked through together for those that can be forgotten."""
SortKey = Callable[[PodInfo, float], tuple[Any, ...]]
Gate = Callable[[PodInfo], str | None]
"""Why the pod must not be queued yet; None admits it. Raises PluginError when a plugin fails."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Durations in seconds."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_in_unschedulable: float = 300.0
    """An unschedulable pod is retried after this long even without an event."""


class ActivePods:
    """A heap of pods by sort key; the last item of a key is the age, those before it the priority. Entries whose ticket
    has changed are void."""

    def __init__(self) -> None:
        self._heaps: dict[str, Heap] = {}
        self._limits: dict[str, int] = {}
        """By profile: when the heap exceeds this, void entries are removed."""
        self._served: dict[str, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        """The number of entries, void ones included."""
        return sum(map(len, self._heaps.values()))

    def push(self, key: tuple[Any, ...], entry: QueuedPod) -> None:
        profile = entry.pod.pod.spec.scheduler_name
        heap = self._heaps.setdefault(profile, [])
        heapq.heappush(heap, (key, entry.ticket, entry))
        if len(heap) > SPARE and len(heap) > self._limits.get(profile, 0):
            # An instance that waits to lead pops no pods, but sees them come and go.
            heap[:] = [each for each in heap if each[1] == each[2].ticket]
            heapq.heapify(heap)
            self._limits[profile] = 2 * len(heap) + SPARE

    def pop(self) -> QueuedPod | None:
        """The next pod; None when there is none."""
        best: str | None = None
        rank: tuple[Any, ...] = ()
        for profile, heap in self._heaps.items():
            while heap and heap[0][1] != heap[0][2].ticket:
                heapq.heappop(heap)
            if not heap:
                continue
            if len(self._heaps) == 1:
                return heapq.heappop(heap)[2]
            key = heap[0][0]
            of_profile = (*key[:-1], self._served.get(profile, 0))
            if best is None or of_profile < rank:
                best, rank = profile, of_profile
        if best is None:
            return None
        self._turn += 1
        self._served[best] = self._turn
        return heapq.heappop(self._heaps[best])[2]


class SchedulingQueue:
    """``monotonic`` is the clock; nothing here sleeps, see ``next_deadline``."""

    def __init__(
        self,
        sort_key: SortKey,
        gate: Gate,
        monotonic: Callable[[], float],
        options: QueueOptions | None = None,
        queueing_hint: QueueingHint = lambda entry, event: True,
        nominated_to: NominatedTo = lambda event: (),
        keeps_back_off: Callable[[PodInfo], bool] = lambda pod: False,
        gate_failed: Callable[[PodInfo, PluginError], None] = lambda pod, error: None,
    ) -> None:
        """``keeps_back_off`` returns whether a pod's back-off must be waited for even when the active pool is empty.
        ``gate_failed`` is called with each error of a gate, which is checked again after a back-off."""
        self._sort_key = sort_key
        self._gate = gate
        self._gate_failed = gate_failed
        self._monotonic = monotonic
        options = options or QueueOptions()
        self._max_in_unschedulable = options.max_in_unschedulable
        self._pods: dict[str, QueuedPod] = {}
        self._sizes: Counter[Pool] = Counter(dict.fromkeys(Pool, 0))
        self.incoming: Counter[tuple[Pool, str]] = Counter()
        """How many pods entered a pool, by cause (see ``Cause``)."""
        self._ticket = 0
        self._active = ActivePods()
        self._backoff = BackingOff(options.initial_backoff, options.max_backoff)
        self._unschedulable = UnschedulablePods(queueing_hint, nominated_to)
        self._keeps_back_off = keeps_back_off
        self._in_flight: dict[str, QueuedPod] = {}
        """By uid, in the order of their attempts."""
        self._events = RecentEvents()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def size(self, pool: Pool) -> int:
        return self._sizes[pool]

    def pods(self) -> Iterable[QueuedPod]:
        """All pods; a live view."""
        return self._pods.values()

    def add(self, pod: PodInfo) -> None:
        """Add a pod that needs a node, or apply its change."""
        entry = self._pods.get(pod.uid)
        if entry is not None:
            self._update(entry, pod)
            return
        now = self._monotonic()
        entry = self._pods[pod.uid] = QueuedPod(pod, created_at=now, queued_at=now)
        self._sizes[entry.pool] += 1
        self._admit(entry, Cause.ADDED)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod that is gone or has a node. An attempt in flight ends without effect on the queue."""
        entry = self._pods.pop(uid, None)
        if entry is not None:
            self._leave(entry)
            self._sizes[entry.pool] -= 1
            if entry.pool in UNDER_WAY:
                self._in_flight.pop(uid, None)
        return entry

    def pop(self) -> QueuedPod | None:
        """The next pod to try. When no pod is active, the most important one of those whose back-off ends first, of
        those that need not wait for its end."""
        self.flush()
        entry = self._active.pop()
        if entry is None and self._sizes[Pool.BACKOFF] and (entry := self._backoff.early) is not None:
            self.incoming[Pool.ACTIVE, Cause.TAKEN_EARLY] += 1
        return self._begin(entry) if entry is not None else None

    def take(self, uid: str) -> QueuedPod | None:
        """Take out the pod to try next out of order, whichever pool it is in; None if it is gated, in flight or
        unknown."""
        entry = self._pods.get(uid)
        if entry is None or entry.pool in (*UNDER_WAY, Pool.GATED):
            return None
        self._leave(entry)
        return self._begin(entry)

    def await_victims(self, entry: QueuedPod) -> None:
        """Extend the attempt in flight until ``add_unschedulable``: the pod is not retried before its victims are being
        evicted."""
        if self._pods.get(entry.pod.uid) is entry:
            self._move(entry, Pool.PREEMPTING)

    def add_unschedulable(
        self,
        entry: QueuedPod,
        events_to_register: frozenset[str],
        reason: str,
        *,
        plugins: frozenset[str] = NO_KINDS,
        group: Hashable = None,
        ready: bool = False,
        refusal: str = "",
    ) -> None:
        """No node fits. If an event that may help has happened since the attempt began, the pod is retried soon; if it
        is ``ready``, because its preemption has succeeded since, at once and with its previous age. ``refusal``: see
        QueuedPod."""
        if self._pods.get(entry.pod.uid) is not entry:
            return
        entry.rejections += 1
        entry.errors = 0
        entry.reason, entry.events_to_register, entry.plugins, entry.group = reason, events_to_register, plugins, group
        entry.refusal = refusal
        if not ready:
            self._set_backoff(entry, entry.rejections)
        if self._gated(entry, Cause.FAILED):
            return
        if ready:
            self._activate(entry, Cause.ACTIVATED)
        elif entry.changed or (events_to_register and self._has_missed(entry)):
            self._to_backoff_or_active(entry, Cause.FAILED)
        else:
            self._enter(entry, Pool.UNSCHEDULABLE, Cause.FAILED)
            self._unschedulable.add(entry)

    def _has_missed(self, entry: QueuedPod) -> bool:
        """Whether an event that may help the pod has happened since its attempt began, or such events may have been
        dropped."""
        missed = self._events.since(entry.seen, entry.pod.uid)
        return missed is None or self._unschedulable.would_free(entry, missed)

    def unschedulable(self) -> list[QueuedPod]:
        """The unschedulable pods; a copy."""
        return self._unschedulable.pods()

    def update_refusal(self, entry: QueuedPod, refusal: str) -> None:
        """The plugin that ended the last attempt of the unschedulable pod would give another reason by now."""
        entry.reason = entry.reason.replace(entry.refusal, refusal, 1)
        entry.refusal, entry.updated_at = refusal, self._monotonic()

    def retry(self, entry: QueuedPod, reason: str) -> None:
        """The attempt failed by an error (a plugin, the API): retry after a back-off."""
        if self._pods.get(entry.pod.uid) is not entry:
            return
        entry.errors += 1
        entry.reason = reason
        self._set_backoff(entry, entry.errors)
        if not self._gated(entry, Cause.FAILED):
            self._to_backoff_or_active(entry, Cause.FAILED)

    def activate(self, uids: Iterable[str]) -> None:
        """Retry these pods soon, whatever they wait for; gates are checked again, and those in flight are retried when
        their attempt fails."""
        for uid in uids:
            entry = self._pods.get(uid)
            if entry is None:
                continue
            if entry.pool in UNDER_WAY:
                entry.changed = True
            elif entry.pool is not Pool.ACTIVE:
                self._leave(entry)
                if entry.pool is not Pool.GATED or not self._gated(entry, Cause.ACTIVATED):
                    self._activate(entry, Cause.ACTIVATED)

    def on_event(self, event: ClusterEvent, useless_to: Collection[str] = ()) -> None:
        """Wake the unschedulable pods that ``event`` may help, except those with the uids ``useless_to``."""
        if self._in_flight:
            self._events.add(event, useless_to)
            if not self._events.count % _EVENTS_AT_ONCE:
                # Those that no attempt in flight needs any more.
                self._events.forget_until(next(iter(self._in_flight.values())).seen)
        for entry in self._unschedulable.freed_by(event, useless_to) if self._sizes[Pool.UNSCHEDULABLE] else ():
            self._wake(entry, of_event(event.kind))

    def wake(self, uids: Iterable[str], kind: str) -> None:
        """Wake these pods for an event of this kind, whatever their plugins wait for; those in back-off stay there."""
        for uid in uids:
            entry = self._pods.get(uid)
            if entry is not None and entry.pool is Pool.UNSCHEDULABLE:
                self._wake(entry, of_event(kind))

    def activate_unschedulable(self) -> None:
        """Wake every unschedulable pod, after a change for which there is no event."""
        for entry in self._unschedulable.pods():
            self._wake(entry, Cause.ACTIVATED)

    def flush(self) -> None:
        """Move on the pods whose back-off or longest time in the unschedulable pool is over, and check failed gates
        again."""
        if not self._any_waits():
            return
        now = self._monotonic()
        while (entry := self._backoff.first) is not None and entry.backoff_until <= now:
            if entry.pool is Pool.GATED:
                if self._gated(entry, Cause.BACKED_OFF):
                    continue
                entry.errors = 0
            self._activate(entry, Cause.BACKED_OFF)
        while (oldest := self._unschedulable.oldest) and oldest.queued_at + self._max_in_unschedulable <= now:
            self._wake(oldest, Cause.TIMED_OUT)

    def next_deadline(self) -> float | None:
        """When ``flush`` has something to do next, in seconds of the queue's clock."""
        if not self._any_waits():
            return None
        deadlines = [first.backoff_until] if (first := self._backoff.first) is not None else []
        if (oldest := self._unschedulable.oldest) is not None:
            deadlines.append(oldest.queued_at + self._max_in_unschedulable)
        return min(deadlines, default=None)

    def _any_waits(self) -> bool:
        """Whether any pod is neither active nor in flight."""
        return len(self._pods) > self._sizes[Pool.ACTIVE] + self._sizes[Pool.IN_FLIGHT]

    def _update(self, entry: QueuedPod, pod: PodInfo) -> None:
        changed = may_matter(entry.pod.pod, pod.pod)
        entry.pod = pod
        if not changed:
            return
        match entry.pool:
            case Pool.IN_FLIGHT | Pool.PREEMPTING:
                entry.changed = True
            case Pool.UNSCHEDULABLE | Pool.GATED:
                self._leave(entry)
                self._admit(entry, Cause.CHANGED)
            case Pool.ACTIVE:
                self._admit(entry, Cause.CHANGED)
            case Pool.BACKOFF:
                if not self._gated(entry, Cause.CHANGED):
                    # Its priority may be another one now.
                    entry.ticket = self._ticket = self._ticket + 1
                    self._push_backoff(entry)

    def _admit(self, entry: QueuedPod, cause: str) -> None:
        if not self._gated(entry, cause):
            self._to_backoff_or_active(entry, cause)

    def _gated(self, entry: QueuedPod, cause: str) -> bool:
        try:
            reason = self._gate(entry.pod)
        except PluginError as error:
            self._gate_failed(entry.pod, error)
            # No change of the pod would bring it back: its gate is checked again after a back-off.
            entry.errors += 1
            entry.reason = str(error)
            self._set_backoff(entry, entry.errors)
            self._enter(entry, Pool.GATED, cause)
            self._push_backoff(entry)
            return True
        if reason is not None:
            entry.reason = reason
            self._enter(entry, Pool.GATED, cause)
        return reason is not None

    def _wake(self, entry: QueuedPod, cause: str) -> None:
        self._leave(entry)
        self._to_backoff_or_active(entry, cause)

    def _to_backoff_or_active(self, entry: QueuedPod, cause: str) -> None:
        if not entry.backoff_until or entry.backoff_until <= self._monotonic():
            self._activate(entry, cause)
            return
        self._enter(entry, Pool.BACKOFF, cause)
        self._push_backoff(entry)

    def _push_backoff(self, entry: QueuedPod) -> None:
        is_held = entry.errors > 0 or self._keeps_back_off(entry.pod)
        self._backoff.push(self._sort_key(entry.pod, entry.queued_at), entry, is_held=is_held)

    def _activate(self, entry: QueuedPod, cause: str) -> None:
        self._enter(entry, Pool.ACTIVE, cause)
        self._active.push(self._sort_key(entry.pod, entry.queued_at), entry)

    def _begin(self, entry: QueuedPod) -> QueuedPod:
        self._move(entry, Pool.IN_FLIGHT)
        entry.attempts += 1
        entry.popped_at = self._monotonic()
        entry.seen = self._events.count
        entry.changed = False
        self._in_flight[entry.pod.uid] = entry
        return entry

    def _set_backoff(self, entry: QueuedPod, failures: int) -> None:
        entry.queued_at = self._monotonic()
        entry.backoff_until = self._backoff.end(entry.queued_at, failures)

    def _enter(self, entry: QueuedPod, pool: Pool, cause: str) -> None:
        self._move(entry, pool)
        self.incoming[pool, cause] += 1

    def _move(self, entry: QueuedPod, pool: Pool) -> None:
        """Change the pool; heap entries of the pod are void from now on."""
        self._sizes[entry.pool] -= 1
        self._sizes[pool] += 1
        if entry.pool in UNDER_WAY and pool is not Pool.PREEMPTING:
            self._in_flight.pop(entry.pod.uid, None)
        entry.pool = pool
        entry.ticket = self._ticket = self._ticket + 1

    def _leave(self, entry: QueuedPod) -> None:
        """Remove the entry from the indices of its pool."""
        entry.ticket = 0
        if entry.pool is Pool.UNSCHEDULABLE:
            self._unschedulable.remove(entry)
