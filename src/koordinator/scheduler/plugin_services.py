"""What the handles of all profiles reach: the queue, the pods that exist in no API, and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.failure_report import Events
from koordinator.scheduler.feed import Feed
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


class PluginServices:
    """Implements SchedulerServices. ``wake`` is called when there may be work.

    Plugins call in the middle of decisions and of events, so whatever changes the cluster state is put off.
    """

    def __init__(
        self, queue: SchedulingQueue, feed: Feed, events: Events, pseudo_pods: set[str], wake: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._feed = feed
        self._events = events
        self._pseudo_pods = pseudo_pods
        self._wake = wake

    def activate(self, uids: Iterable[str]) -> None:
        """See Handle."""
        self._queue.activate(uids)
        self._wake()

    def announce(self, event: ClusterEvent) -> None:
        """See Handle."""
        self._feed.defer(partial(self._feed.announce, event))

    def set_pseudo_pod(self, pod: Pod) -> None:
        """See Handle."""
        self._pseudo_pods.add(pod.metadata.uid)
        self._feed.defer(partial(self._feed.set_pod, pod))

    def remove_pseudo_pod(self, pod: Pod) -> None:
        """See Handle."""
        self._feed.defer(partial(self._remove, pod))

    def _remove(self, pod: Pod) -> None:
        self._feed.remove_pod(pod)
        self._pseudo_pods.discard(pod.metadata.uid)

    def pod_event(
        self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, action: str, note: str
    ) -> None:
        """See Handle."""
        self._events.pod_event(pod, event_type, reason, action, note)
