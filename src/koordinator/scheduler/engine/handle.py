"""The API of the scheduler for a plugin (upstream: framework.Handle): one for each profile.

A plugin has it as ``self.handle`` once its profile is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.failed_attempt import Attempt
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.numa_topology import NUMATopologyManager
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.simulation import Simulation
from koordinator.scheduler.engine.slots import Slots, count_slots
from koordinator.scheduler.engine.waiting_pods import WaitingPods

P = TypeVar("P", bound=Plugin)
EventType = Literal["Normal", "Warning"]


class Events(Protocol):
    """Records events; must not block."""

    def pod_event(
        self,
        pod: Pod,
        event_type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
        modification: Modification | None = None,
    ) -> None:
        """Record an event of events.k8s.io about the pod, under the scheduler name of the pod, or of ``reporter``."""

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        """Record an event about an object of another kind, under a scheduler name."""


class SchedulerServices(Events, Protocol):
    """What the scheduler around the engine provides to plugins."""

    def activate(self, uids: Iterable[str]) -> None: ...
    def monotonic(self) -> float: ...
    def announce(self, event: ClusterEvent) -> None: ...
    def unusable_score(self, plugin: str, subject: str, score: int) -> None: ...
    def set_pseudo_pod(self, pod: Pod) -> None: ...
    def remove_pseudo_pod(self, pod: Pod) -> None: ...


class Handle:
    """``profile`` is the plugin's own, with all its plugins."""

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        check_time: Callable[[], None],
        evaluate: Callable[[PodInfo], tuple[Hashable, Evaluation]],
    ) -> None:
        """``evaluate`` returns the key of a pod's class, and its current evaluation."""
        self.profile = profile
        self._state = state
        self._check_time = check_time
        self._evaluate = evaluate
        self._services: SchedulerServices | None = None

    def connect(self, services: SchedulerServices) -> None:
        """Attach the services of the scheduler. An engine alone, as in tests and in what-if simulations, has none."""
        self._services = services

    def plugin(self, kind: type[P]) -> P | None:
        """The first plugin of the profile that is a ``kind``, a class or a protocol of an extension point; None if
        there is none."""
        return self.profile.first(kind)

    @cached_property
    def numa_topology(self) -> NUMATopologyManager:
        """The manager by which the plugins that allocate keep to the same NUMA nodes."""
        return NUMATopologyManager(self.profile, self._state.view)

    @property
    def waiting(self) -> WaitingPods:
        """The pods of all profiles that wait at Permit: to iterate over, to allow and to reject. An allowed or rejected
        pod is processed soon, and never before the present call of the plugin has returned."""
        return self._state.view.waiting

    def simulate(self, attempt: FailedAttempt | None = None) -> Simulation:
        """A block in which pods are hypothetically removed from and placed on any nodes; at its end all changes are
        undone. With the ``attempt`` that has just failed, fewer filters need to run for its pod."""
        if isinstance(attempt, Attempt):
            return attempt.simulate()
        return Simulation(self.profile, self._state, self._check_time)

    def slots(self, pods: Sequence[PodInfo]) -> Slots | None:
        """How many of ``pods``, from the front, fit on each node, if all of them went to that node. Nominations of
        these pods do not count. None when PreFilter rejects the first one on every node."""
        key, evaluation = self._evaluate(pods[0])
        if evaluation.plan.rejection is not None:
            return None
        simulation = Simulation(self.profile, self._state, self._check_time, ((key, evaluation),))
        alike = all(self.profile.class_key(pod) == key for pod in pods[1:])
        return count_slots(self._state.view, evaluation, simulation, pods, alike=alike)

    def monotonic(self) -> float:
        """A monotonic clock, in seconds, to measure the run time of the plugin's own work; decisions do not depend on
        it. Always 0 where there is no scheduler around the engine."""
        return self._services.monotonic() if self._services is not None else 0.0

    def activate(self, uids: Iterable[str]) -> None:
        """Retry these pods soon, whatever they wait for: back-off, an event, or a PreEnqueue plugin, which is called
        again. Those that are being tried are retried if the attempt fails."""
        if self._services is not None:
            self._services.activate(uids)

    def announce(self, event: ClusterEvent) -> None:
        """Report an event that only the plugin knows of: for unschedulable pods whose plugins register this kind of
        event, ``queueing_hint`` is called, see ``Plugin.events_to_register``."""
        if self._services is not None:
            self._services.announce(event)

    def unusable_score(self, plugin: str, subject: str, score: int) -> None:
        """See ScoreReports."""
        if self._services is not None:
            self._services.unusable_score(plugin, subject, score)

    def set_pseudo_pod(self, pod: Pod) -> None:
        """Add or update a pod that no API server has, such as the reserve pod of a reservation. Without a node it is
        scheduled like any other; with one it counts there. Takes effect after the present decision, or event. No status
        is written and no event is recorded for it: see FailureHandler and BindPlugin."""
        if self._services is not None:
            self._services.set_pseudo_pod(pod)

    def remove_pseudo_pod(self, pod: Pod) -> None:
        """Remove the pseudo-pod, as if it had been deleted."""
        if self._services is not None:
            self._services.remove_pseudo_pod(pod)

    def pod_event(self, pod: Pod, event_type: EventType, reason: str, action: str, note: str) -> None:
        """Record an event about a pod under the scheduler name of the profile that handles it."""
        if self._services is not None:
            self._services.pod_event(pod, event_type, reason, action, note)

    def object_event(
        self,
        kind: Kind[Any],
        obj: Object,
        event_type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        """Record an event about an object of another kind under the scheduler name of this profile."""
        if self._services is not None:
            name = self.profile.scheduler_name
            self._services.object_event(name, kind, obj, event_type, reason, action, note, modification=modification)
