"""Where pods of the scheduling queue wait: in back-off, or unschedulable by the events that may help them; and the
events since the attempts of pods in flight began."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import islice
from math import ceil
from typing import Any, Final

from koordinator.base.groups import Groups
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.queue.queued_pod import QueuedPod

SPARE: Final = 256
"""So many entries of a heap are kept before the void ones are removed."""
_WINDOW: Final = 1.0
"""Seconds. All back-offs that would end within a window end with it, so that priority orders these pods, and not which
of them failed first; kube-scheduler 1.33, pkg/scheduler/backend/queue/backoff_queue.go."""
Heap = list[tuple[tuple[Any, ...], int, QueuedPod]]


class BackingOff:
    """Pods by end of back-off, and those that end together by sort key. Pods that may be tried before that, and pods
    that may not, are in a heap each. Entries whose ticket has changed are void: their pods are in another pool by
    now."""

    def __init__(self, initial: float = 1.0, longest: float = 10.0) -> None:
        """The first back-off of a pod and the longest one, in seconds."""
        self._initial = initial
        self._longest = longest
        self._early: Heap = []
        self._held: Heap = []
        self._limits = {False: SPARE, True: SPARE}
        """When a heap exceeds this, void entries are removed."""

    def __len__(self) -> int:
        """The number of entries, void ones included."""
        return len(self._early) + len(self._held)

    @property
    def first(self) -> QueuedPod | None:
        """The pod whose back-off ends first; None when there is none."""
        if not self._early and not self._held:
            return None
        early = _first(self._early) if self._early else None
        held = _first(self._held) if self._held else None
        if early is None or held is None:
            return early or held
        return early if early.backoff_until <= held.backoff_until else held

    @property
    def early(self) -> QueuedPod | None:
        """The first of those that may be tried before their back-off ends."""
        return _first(self._early) if self._early else None

    def end(self, now: float, failures: int) -> float:
        """When a back-off ends that begins now, after so many failures in a row."""
        pause = min(self._initial * 2.0 ** min(failures - 1, 62), self._longest)
        return ceil((now + pause) / _WINDOW) * _WINDOW

    def push(self, key: tuple[Any, ...], entry: QueuedPod, *, is_held: bool) -> None:
        """Add the pod, which backs off until ``entry.backoff_until``; if it ``is_held``, all that time."""
        heap = self._held if is_held else self._early
        heapq.heappush(heap, ((entry.backoff_until, *key), entry.ticket, entry))
        if len(heap) > self._limits[is_held]:
            heap[:] = [each for each in heap if each[1] == each[2].ticket]
            heapq.heapify(heap)
            self._limits[is_held] = 2 * len(heap) + SPARE


def _first(heap: Heap) -> QueuedPod | None:
    while heap:
        _, ticket, entry = heap[0]
        if ticket == entry.ticket:
            return entry
        heapq.heappop(heap)
    return None


QueueingHint = Callable[[QueuedPod, ClusterEvent], bool]
"""Whether an event of a kind that the pod's plugins registered may make it schedulable. Must not raise."""
NominatedTo = Callable[[ClusterEvent], Collection[str]]
"""The uids of the pods that are nominated to the node that an event is about."""


class UnschedulablePods:
    """Unschedulable pods in the order in which they entered the pool, and by kind of event and group."""

    def __init__(self, queueing_hint: QueueingHint, nominated_to: NominatedTo = lambda event: ()) -> None:
        self._queueing_hint = queueing_hint
        self._nominated_to = nominated_to
        self._pods: dict[str, QueuedPod] = {}
        self._by_kind = defaultdict[str, Groups[Hashable, str, QueuedPod]](Groups)

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def oldest(self) -> QueuedPod | None:
        """The pod that has been unschedulable longest; None when there is none."""
        for entry in self._pods.values():
            return entry
        return None

    def pods(self) -> list[QueuedPod]:
        """All of them."""
        return list(self._pods.values())

    def add(self, entry: QueuedPod) -> None:
        uid, group = entry.pod.uid, _group(entry)
        self._pods[uid] = entry
        for kind in entry.events_to_register:
            self._by_kind[kind].put(group, uid, entry)

    def remove(self, entry: QueuedPod) -> bool:
        """Remove the pod; returns whether it was in this pool."""
        uid = entry.pod.uid
        if self._pods.pop(uid, None) is None:
            return False
        group = _group(entry)
        for kind in entry.events_to_register:
            self._by_kind[kind].take(group, uid)
        return True

    def freed_by(self, event: ClusterEvent, useless_to: Collection[str] = ()) -> list[QueuedPod]:
        """The pods that ``event`` may make schedulable, except those with the uids ``useless_to``, which stay here."""
        freed: list[QueuedPod] = []
        groups = self._by_kind.get(event.kind)
        if not groups:
            return freed
        nominated = self._nominated_to(event)
        for entries in groups.values():
            if useless_to and not entries.keys().isdisjoint(useless_to):
                entries = {uid: entry for uid, entry in entries.items() if uid not in useless_to}
            # A pod that is nominated to the node is evaluated alone, not for its group.
            holders = [entries[uid] for uid in nominated if uid in entries]
            typical = next((entry for uid, entry in entries.items() if uid not in nominated), None)
            if typical is not None and self._queueing_hint(typical, event):
                freed.extend(entries.values())
            else:
                freed.extend(holder for holder in holders if self._queueing_hint(holder, event))
        return freed

    def would_free(self, entry: QueuedPod, events: Iterable[ClusterEvent]) -> bool:
        """Whether one of ``events`` may make the pod schedulable, which is not in this pool yet."""
        return any(event.kind in entry.events_to_register and self._queueing_hint(entry, event) for event in events)


def _group(entry: QueuedPod) -> Hashable:
    return entry.group if entry.group is not None else entry.pod.uid


class RecentEvents:
    """Events by number, the first being 1; not more than ``kept`` of them."""

    def __init__(self, kept: int = 4096) -> None:
        self._kept = kept
        self._events: deque[tuple[ClusterEvent, Collection[str]]] = deque()
        self.count = 0
        """The number of the last event."""

    def add(self, event: ClusterEvent, useless_to: Collection[str] = ()) -> None:
        """Add an event; ``useless_to`` are the uids of pods that it does not help."""
        self.count += 1
        self._events.append((event, useless_to))
        if len(self._events) > self._kept:
            self._events.popleft()

    def forget_until(self, number: int) -> None:
        """Forget the events up to ``number``, which no attempt in flight needs any more."""
        while self._events and self.count - len(self._events) < number:
            self._events.popleft()

    def since(self, number: int, uid: str = "") -> Iterator[ClusterEvent] | None:
        """The events after ``number`` that may help the pod; None when some of them have been dropped."""
        known = self.count - number
        if known > len(self._events):
            return None
        events = islice(self._events, len(self._events) - known, None)
        return (event for event, useless_to in events if uid not in useless_to)
