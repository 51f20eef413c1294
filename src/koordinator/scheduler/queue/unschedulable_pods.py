"""Unschedulable pods, found by what may free them.

Like pods wait for the same: they are unschedulable in groups, and a plugin is asked about an event once for each group.
Ten thousand replicas that fit nowhere cost an event no more than one of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable

from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.queue.queued_pod import QueuedPod

QueueingHint = Callable[[QueuedPod, ClusterEvent], bool]
"""Whether an event of a kind that the pod's plugins named may free it indeed. Must not raise."""
NominatedTo = Callable[[ClusterEvent], Collection[str]]
"""The uids of the pods that are nominated to the node that an event is about."""


class UnschedulablePods:
    """Pods in the order of parking, and by kind of event and group."""

    def __init__(self, queueing_hint: QueueingHint, nominated_to: NominatedTo = lambda event: ()) -> None:
        self._queueing_hint = queueing_hint
        self._nominated_to = nominated_to
        self._pods: dict[str, QueuedPod] = {}
        self._by_kind: dict[str, dict[Hashable, dict[str, QueuedPod]]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def oldest(self) -> QueuedPod | None:
        """The pod that was unschedulable first."""
        return next(iter(self._pods.values()), None)

    def pods(self) -> list[QueuedPod]:
        """All of them."""
        return list(self._pods.values())

    def add(self, entry: QueuedPod) -> None:
        uid, group = entry.pod.uid, _group(entry)
        self._pods[uid] = entry
        for kind in entry.events_to_register:
            self._by_kind.setdefault(kind, {}).setdefault(group, {})[uid] = entry

    def remove(self, entry: QueuedPod) -> bool:
        """Whether the pod was unschedulable."""
        uid = entry.pod.uid
        if self._pods.pop(uid, None) is None:
            return False
        group = _group(entry)
        for kind in entry.events_to_register:
            groups = self._by_kind[kind]
            del groups[group][uid]
            if not groups[group]:
                del groups[group]
        return True

    def freed_by(self, event: ClusterEvent) -> list[QueuedPod]:
        """The pods that ``event`` may free; they stay unschedulable."""
        freed: list[QueuedPod] = []
        groups = self._by_kind.get(event.kind)
        if not groups:
            return freed
        nominated = self._nominated_to(event)
        for entries in groups.values():
            # A pod that is nominated to the node stands for nobody but itself.
            holders = [entries[uid] for uid in nominated if uid in entries]
            typical = next((entry for uid, entry in entries.items() if uid not in nominated), None)
            if typical is not None and self._queueing_hint(typical, event):
                freed.extend(entries.values())
            else:
                freed.extend(holder for holder in holders if self._queueing_hint(holder, event))
        return freed

    def would_free(self, entry: QueuedPod, events: Iterable[ClusterEvent]) -> bool:
        """Whether one of ``events`` may free the pod, which is not unschedulable yet."""
        return any(event.kind in entry.events_to_register and self._queueing_hint(entry, event) for event in events)


def _group(entry: QueuedPod) -> Hashable:
    return entry.group if entry.group is not None else entry.pod.uid
