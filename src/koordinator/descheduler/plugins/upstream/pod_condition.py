"""Strategies that look at what has become of a pod: PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Self

from koordinator.api.component_configuration import Strict
from koordinator.api.pod import ContainerStatus, Pod, PodCondition
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import DeschedulePlugin, Eviction, Plan, Snapshot
from koordinator.descheduler.plugins.selection import Strategy, StrategyArguments

_STATES: Final = frozenset(
    (
        *("Running", "Pending", "Succeeded", "Failed", "Unknown"),
        *("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"),
        *("PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "ErrImagePull", "CreateContainerError", "InvalidImageName"),
        *("OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError"),
    )
)
"""Phases and reasons of pods, reasons why containers wait, reasons why they have ended."""
_RESTARTING_STATES: Final = ("Running", "CrashLoopBackOff")


class OwnerKinds(Strict):
    include: list[str] = []
    exclude: list[str] = []


class PodConditionFilter(Strict):
    """What is left out matches everything."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = None

    def matches(self, condition: PodCondition, now: datetime) -> bool:
        if (self.type or condition.type) != condition.type or (self.status or condition.status) != condition.status:
            return False
        if (self.reason or condition.reason) != condition.reason:
            return False
        least = self.min_time_since_last_transition_seconds
        if least is None:
            return True
        changed = condition.last_transition_time
        return changed is not None and int((now - changed).total_seconds()) >= least


class PodLifeTimeArgs(StrategyArguments):
    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: int | None = None
    states: list[str] = []
    conditions: list[PodConditionFilter] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def completed(self, path: str) -> Self:
        super().completed(path)
        kinds = self.owner_kinds
        if kinds is not None and kinds.include and kinds.exclude:
            raise ConfigurationError(f"{path}.ownerKinds", kinds.include, "only one of Include/Exclude can be set")
        for index, state in enumerate(self.states):
            if state not in _STATES:
                raise ConfigurationError(f"{path}.states[{index}]", state, f"one of {', '.join(sorted(_STATES))}")
        for index, condition in enumerate(self.conditions):
            if condition == PodConditionFilter():
                allowed = "at least one of type, status, reason, or minTimeSinceLastTransitionSeconds must be set"
                raise ConfigurationError(f"{path}.conditions[{index}]", {}, allowed)
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            allowed = "at least one of maxPodLifeTimeSeconds, states, conditions, or exitCodes must be given"
            raise ConfigurationError(path, {}, allowed)
        return self


class PodLifeTime(Strategy, DeschedulePlugin):
    """Evicts pods that all given criteria hold for, the oldest first."""

    name = "PodLifeTime"
    args_type = PodLifeTimeArgs
    args: PodLifeTimeArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        found = [
            pod
            for node in snapshot.nodes
            for pod in snapshot.pods_by_node.get(node.metadata.name, ())
            if self._matches(pod, snapshot.now) and self._allows(pod)
        ]
        for pod in sorted(found, key=lambda pod: _created(pod, snapshot.now)):
            yield Eviction(pod, self._reason(pod, snapshot.now))

    def _matches(self, pod: Pod, now: datetime) -> bool:
        args = self.args
        if args.max_pod_life_time_seconds is not None and _age(pod, now) <= args.max_pod_life_time_seconds:
            return False
        kinds = args.owner_kinds or OwnerKinds()
        owners = {owner.kind for owner in pod.metadata.owner_references}
        if (kinds.include and owners.isdisjoint(kinds.include)) or not owners.isdisjoint(kinds.exclude):
            return False
        if args.states and self._states(pod).isdisjoint(args.states):
            return False
        if args.conditions and not any(
            wanted.matches(condition, now) for wanted in args.conditions for condition in pod.status.conditions
        ):
            return False
        return not args.exit_codes or not _exit_codes(_statuses(pod, args.including_init_containers)).isdisjoint(
            args.exit_codes
        )

    def _states(self, pod: Pod) -> set[str]:
        statuses = list(_statuses(pod, self.args.including_init_containers))
        if self.args.including_ephemeral_containers:
            statuses += pod.status.ephemeral_container_statuses
        return {pod.status.phase, pod.status.reason} | _reasons(statuses)

    def _reason(self, pod: Pod, now: datetime) -> str:
        age = f"pod is {_age(pod, now)}s old"
        states = sorted(self._states(pod).intersection(self.args.states))
        return f"{age} and in state {', '.join(states)}" if states else age


class RemoveFailedPodsArgs(StrategyArguments):
    exclude_owner_kinds: list[str] = []
    min_pod_lifetime_seconds: int = 3600
    reasons: list[str] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False


class RemoveFailedPods(Strategy, DeschedulePlugin):
    name = "RemoveFailedPods"
    args_type = RemoveFailedPodsArgs
    args: RemoveFailedPodsArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        for node in snapshot.nodes:
            for pod in snapshot.pods_by_node.get(node.metadata.name, ()):
                if self._matches(pod, snapshot.now) and self._allows(pod):
                    yield Eviction(pod, f"pod has failed: {', '.join(sorted(self._why_failed(pod))) or 'no reason'}")

    def _matches(self, pod: Pod, now: datetime) -> bool:
        args = self.args
        if pod.status.phase != "Failed" or _age(pod, now) < args.min_pod_lifetime_seconds:
            return False
        if any(owner.kind in args.exclude_owner_kinds for owner in pod.metadata.owner_references):
            return False
        if args.reasons and self._why_failed(pod).isdisjoint(args.reasons):
            return False
        return not args.exit_codes or not _exit_codes(_statuses(pod, args.including_init_containers)).isdisjoint(
            args.exit_codes
        )

    def _why_failed(self, pod: Pod) -> set[str]:
        reasons = _reasons(_statuses(pod, self.args.including_init_containers))
        return reasons | {pod.status.reason} if pod.status.reason else reasons


class RemovePodsHavingTooManyRestartsArgs(StrategyArguments):
    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: list[str] = []

    def completed(self, path: str) -> Self:
        super().completed(path)
        if self.pod_restart_threshold < 1:
            raise ConfigurationError(f"{path}.podRestartThreshold", self.pod_restart_threshold, "at least 1")
        for index, state in enumerate(self.states):
            if state not in _RESTARTING_STATES:
                raise ConfigurationError(f"{path}.states[{index}]", state, " or ".join(_RESTARTING_STATES))
        return self


class RemovePodsHavingTooManyRestarts(Strategy, DeschedulePlugin):
    """Evicts the most restarted pods of each node first."""

    name = "RemovePodsHavingTooManyRestarts"
    args_type = RemovePodsHavingTooManyRestartsArgs
    args: RemovePodsHavingTooManyRestartsArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        for node in snapshot.nodes:
            pods = snapshot.pods_by_node.get(node.metadata.name, ())
            found = [pod for pod in pods if self._matches(pod) and self._allows(pod)]
            for pod in sorted(found, key=lambda pod: -self._restarts(pod)):
                yield Eviction(pod, f"containers of the pod have restarted {self._restarts(pod)} times")

    def _matches(self, pod: Pod) -> bool:
        if self._restarts(pod) < self.args.pod_restart_threshold:
            return False
        if not self.args.states:
            return True
        statuses = _statuses(pod, self.args.including_init_containers)
        waiting = {each.state.waiting.reason for each in statuses if each.state.waiting is not None}
        return not {pod.status.phase, *waiting}.isdisjoint(self.args.states)

    def _restarts(self, pod: Pod) -> int:
        return sum(status.restart_count for status in _statuses(pod, self.args.including_init_containers))


def _statuses(pod: Pod, with_init_containers: bool) -> Sequence[ContainerStatus]:
    if not with_init_containers:
        return pod.status.container_statuses
    return [*pod.status.container_statuses, *pod.status.init_container_statuses]


def _reasons(statuses: Iterable[ContainerStatus]) -> set[str]:
    """Why containers wait, or have ended."""
    states = (state for status in statuses for state in (status.state.waiting, status.state.terminated))
    return {state.reason for state in states if state is not None and state.reason}


def _exit_codes(statuses: Iterable[ContainerStatus]) -> set[int]:
    return {status.state.terminated.exit_code for status in statuses if status.state.terminated is not None}


def _created(pod: Pod, now: datetime) -> datetime:
    return pod.metadata.creation_timestamp or now


def _age(pod: Pod, now: datetime) -> int:
    """Whole seconds."""
    return int((now - _created(pod, now)).total_seconds())
