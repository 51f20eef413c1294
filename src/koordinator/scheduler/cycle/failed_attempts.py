"""What becomes of a failed attempt: its pod becomes unschedulable, or is nominated to a node from which victims are
evicted first, or is retried after a back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.logs import verbosity
from koordinator.scheduler.binding.binding_cycle import Binding, Outcome, Result
from koordinator.scheduler.binding.evictions import Eviction, Evictions
from koordinator.scheduler.cycle.failure_report import Failure, FailureReason, FailureReporter
from koordinator.scheduler.cycle.measurement import SchedulerMonitor
from koordinator.scheduler.engine.decision import Attempt, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN
from koordinator.scheduler.engine.rejection import refused_on_node
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import UNDER_WAY, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

logger = logging.getLogger(__name__)

_EACH_DECISION: Final = verbosity(5)


@dataclass(eq=False, slots=True)
class FailedAttempts:
    """``freed`` is called with each pod that is removed from the node that it was assumed on, and ``wake`` when a pod
    may be retried outside of an attempt."""

    engines: Mapping[str, Engine]
    queue: SchedulingQueue
    view: ClusterView
    log: Callable[[str, Attempt], None]
    evictions: Evictions
    reporter: FailureReporter
    monitor: SchedulerMonitor
    metrics: SchedulerMetrics
    errors: PluginErrors
    clock: Clock
    freed: Callable[[PodInfo], None]
    wake: Callable[[], None]

    def unexpected(self, entry: QueuedPod, error: Exception) -> None:
        """An unexpected error has ended the attempt, wherever that was: the pod must not be lost with it."""
        pod, text = entry.pod, f"{type(error).__name__}: {error}"
        self.errors.of_ours(f"scheduling pod {pod.key}", error)
        if entry.pool not in UNDER_WAY:
            return
        if self.queue.get(pod.uid) is entry and pod.uid not in self.view.pseudo_pods:
            self.reporter.report(Failure(pod.pod, "SchedulerError", text))
        self.queue.retry(entry, text)

    def unreserved(self, binding: Binding, outcome: Outcome) -> None:
        """The binding has ended with the pod on no node, or on another one."""
        entry, placement = binding.entry, binding.placement
        binding.engine.forget(placement)
        self.freed(placement.pod)
        if outcome.result is Result.REFUSED:
            self.failed(entry, binding.started, "SchedulerError", f"binding rejected: {outcome.detail}")
        elif outcome.result is Result.REJECTED:
            self._rejected_while_waiting(binding, outcome)
        else:
            pod = placement.pod
            logger.info("pod %s was not bound to %s: %s", pod.key, placement.node_name, outcome.result.value)
            if self.queue.get(pod.uid) is entry:
                self.queue.remove(pod.uid)

    def _rejected_while_waiting(self, binding: Binding, outcome: Outcome) -> None:
        entry, placement = binding.entry, binding.placement
        self.view.pending_evictions.seen(placement.pod.uid)
        if not self.view.columns.is_current(placement.node):
            # No plugin has rejected the pod: no event has to come before another node is tried.
            self.failed(entry, binding.started, "SchedulerError", outcome.detail)
            return
        reason = Reason(outcome.detail)
        rejection = refused_on_node(binding.engine.profile, outcome.plugin, reason, placement.node_name)
        self.rejected(entry, binding.started, rejection)

    def failed(self, entry: QueuedPod, started: float, reason: FailureReason, message: str) -> None:
        """An error has ended the attempt: the pod is retried after a back-off."""
        engine = self.engines[entry.pod.pod.spec.scheduler_name]
        if engine.before_failure(entry.pod, message):
            return
        self.log(entry.pod.key, Attempt(self.clock.now(), entry.attempts, error=message))
        self.queue.retry(entry, message)
        self._report(entry, started, reason, message)
        engine.after_failure(entry.pod, message)

    def rejected(self, entry: QueuedPod, started: float, rejection: Rejection) -> None:
        """The pod fits on no node, or a plugin has rejected the one that was chosen."""
        pod, after = entry.pod, rejection.after
        self.log(pod.key, Attempt(self.clock.now(), entry.attempts, rejection=rejection))
        logger.log(_EACH_DECISION, "pod %s fits nowhere: %s", pod.key, rejection.message)
        engine = self.engines[pod.pod.spec.scheduler_name]
        if engine.before_failure(pod, rejection.message):
            return
        if after != NO_PLAN:
            self.metrics.preemption_attempts.inc()
        if pod.uid in self.queue:
            self._carry_out(entry, rejection)
        self._report(entry, started, "Unschedulable", rejection.message, after.nominated_node)
        engine.after_failure(pod, rejection.message)

    def _report(
        self, entry: QueuedPod, started: float, reason: FailureReason, message: str, nominated_node: str | None = None
    ) -> None:
        pod = entry.pod.pod
        self.monitor.failed(pod, reason, started)
        if pod.metadata.uid in self.queue and pod.metadata.uid not in self.view.pseudo_pods:
            self.reporter.report(Failure(pod, reason, message, nominated_node))

    def _carry_out(self, entry: QueuedPod, rejection: Rejection) -> None:
        """Carry out the plan of PostFilter. The attempt is over when the victims, if any, are being evicted: an earlier
        retry would be useless, or would evict more pods."""
        after = rejection.after
        if after.nominated_node is not None:
            self._nominate(entry.pod, after.nominated_node)
        for pod, node_name in after.nominations:
            self._nominate(pod, node_name)
            self._report_nomination(pod, node_name)
        if not after.victims:
            self._add_unschedulable(entry, rejection)
            return
        self.metrics.preemption_victims.observe(len(after.victims))
        self.queue.await_victims(entry)
        self._evict(entry, rejection)

    def _evict(self, entry: QueuedPod, rejection: Rejection) -> None:
        """Evict the victims; the attempt is over with the last of them."""
        after, refused = rejection.after, list[str]()
        victims = [(victim, self._node_of(victim) or after.nominated_node or "") for victim in after.victims]

        def on_notified(is_free: bool) -> None:
            if refused:
                # No event tells that it would get its node by now, so it is tried again after its whole back-off.
                self.queue.retry(entry, f"{rejection.message} {refused[0]}")
            else:
                self._add_unschedulable(entry, rejection, is_free=is_free)
            self.wake()

        def on_refused(why: str) -> None:
            refused.append(why)
            # Others may have the room that was kept for it.
            if after.nominated_node and self.view.nominations.node_of(entry.pod.uid) == after.nominated_node:
                self._nominate(entry.pod, "")
                self._report_nomination(entry.pod, "")

        nominated, (_, first) = after.nominated_node, victims[0]
        evicted_by = after.plugin, after.cause, after.with_gangs
        self.evictions.submit(Eviction(entry.pod, nominated or first, victims, *evicted_by, on_notified, on_refused))

    def _node_of(self, pod: PodInfo) -> str:
        waiting = self.view.waiting.get(pod.uid)
        return waiting.node_name if waiting is not None else pod.pod.spec.node_name

    def _add_unschedulable(self, entry: QueuedPod, rejection: Rejection, *, is_free: bool = False) -> None:
        pod, plugins, like = entry.pod, rejection.plugins, rejection.pod_class or rejection.waits_as
        # Whether nominated pods count depends on the priority of the pod.
        group = (pod.pod.spec.scheduler_name, like, plugins, pod.priority) if like else None
        self.queue.add_unschedulable(
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
        before = self.view.nominations.node_of(pod.uid)
        self.view.nominations.set(pod, node_name)
        if before not in ("", node_name):
            # Pods of lower priority may have the capacity that was kept for it.
            self.queue.on_event(ClusterEvent(EventKind.POD_DELETE, pod), useless_to=(pod.uid,))
        if node_name:
            self._clear_nominations(pod, node_name)

    def _clear_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Clear the nominations of pods of lower priority to this node, which would wait in vain: they look for another
        one."""
        for other in list(self.view.nominations.on(node_name)):
            if other.priority < pod.priority:
                self.view.nominations.remove(other.uid)
                self._report_nomination(other, "")
                self.queue.activate([other.uid])

    def _report_nomination(self, pod: PodInfo, node_name: str) -> None:
        if pod.uid not in self.view.pseudo_pods:
            self.reporter.nominate(pod.pod, node_name)
