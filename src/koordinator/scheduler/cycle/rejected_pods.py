"""Handles a pod that fits on no node: it becomes unschedulable, or is first nominated to a node from which victims are
evicted."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.scheduler.binding.evictions import Eviction, Evictions
from koordinator.scheduler.cycle.failure_report import FailureReporter
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


class RejectedPods:
    """``wake`` is called when a pod may be retried outside of an attempt."""

    def __init__(
        self,
        queue: SchedulingQueue,
        view: ClusterView,
        evictions: Evictions,
        reporter: FailureReporter,
        metrics: SchedulerMetrics,
        wake: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._view = view
        self._evictions = evictions
        self._reporter = reporter
        self._metrics = metrics
        self._wake = wake

    def handle(self, entry: QueuedPod, rejection: Rejection) -> None:
        """Carry out the plan of PostFilter. The attempt is over when the victims, if any, are being evicted: an earlier
        retry would be useless, or would evict more pods."""
        after = rejection.after
        if entry.pod.uid not in self._queue:
            return
        if after.nominated_node is not None:
            self._nominate(entry.pod, after.nominated_node)
        for pod, node_name in after.nominations:
            self._nominate(pod, node_name)
            self._report_nomination(pod, node_name)
        if not after.victims:
            self._add_unschedulable(entry, rejection)
            return
        self._metrics.preempted(len(after.victims))
        self._queue.await_victims(entry)
        self._evict(entry, rejection)

    def _evict(self, entry: QueuedPod, rejection: Rejection) -> None:
        """Evict the victims of each node; the attempt is over with the last of them."""
        after, by_node = rejection.after, dict[str, list[PodInfo]]()
        for victim in after.victims:
            by_node.setdefault(self._node_of(victim) or after.nominated_node or "", []).append(victim)
        notified, refused = list[bool](), list[str]()

        def on_notified(is_free: bool) -> None:
            notified.append(is_free)
            if len(notified) < len(by_node):
                return
            if refused:
                # No event tells that it would get its node by now, so it is tried again after its whole back-off.
                self._queue.retry(entry, f"{rejection.message} {refused[0]}")
            else:
                self._add_unschedulable(entry, rejection, is_free=all(notified))
            self._wake()

        def on_refused(why: str) -> None:
            refused.append(why)
            # Others may have the room that was kept for it.
            if after.nominated_node and self._view.nominations.node_of(entry.pod.uid) == after.nominated_node:
                self._nominate(entry.pod, "")
                self._report_nomination(entry.pod, "")

        for node_name, victims in by_node.items():
            self._evictions.submit(
                Eviction(entry.pod, node_name, tuple(victims), after.plugin, after.cause, on_notified, on_refused)
            )

    def _node_of(self, pod: PodInfo) -> str:
        waiting = self._view.waiting.get(pod.uid)
        return waiting.node_name if waiting is not None else pod.pod.spec.node_name

    def _add_unschedulable(self, entry: QueuedPod, rejection: Rejection, *, is_free: bool = False) -> None:
        pod, plugins, like = entry.pod, rejection.plugins, rejection.pod_class or rejection.waits_as
        # Whether nominated pods count depends on the priority of the pod.
        group = (pod.pod.spec.scheduler_name, like, plugins, pod.priority) if like else None
        self._queue.add_unschedulable(
            entry,
            rejection.events_to_register,
            rejection.message,
            plugins=plugins,
            group=group,
            ready=is_free,
            refusal=rejection.refusal,
        )

    def _nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate the pod to a node, or with an empty name clear its nomination."""
        before = self._view.nominations.node_of(pod.uid)
        self._view.nominations.set(pod, node_name)
        if before not in ("", node_name):
            # Pods of lower priority may have the capacity that was kept for it.
            self._queue.on_event(ClusterEvent(EventKind.POD_DELETE, pod), useless_to=(pod.uid,))
        if node_name:
            self._clear_nominations(pod, node_name)

    def _clear_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Clear the nominations of pods of lower priority to this node, which would wait in vain: they look for another
        one."""
        for other in list(self._view.nominations.on(node_name)):
            if other.priority < pod.priority:
                self._view.nominations.remove(other.uid)
                self._report_nomination(other, "")
                self._queue.activate([other.uid])

    def _report_nomination(self, pod: PodInfo, node_name: str) -> None:
        if pod.uid not in self._view.pseudo_pods:
            self._reporter.nominate(pod.pod, node_name)
