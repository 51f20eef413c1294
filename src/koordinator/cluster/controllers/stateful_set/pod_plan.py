"""Which pods of a StatefulSet to create and to delete next. Pure.

With the policy OrderedReady, pods are created from the lowest ordinal and deleted from the highest, one at a time, and
each has to be available before the next one's turn comes. A rolling update replaces them from the highest ordinal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.pod_state import available_in, is_available, is_ready
from koordinator.cluster.controllers.stateful_set.identity import ordinal_of, revision_of
from koordinator.cluster.controllers.stateful_set.types import StatefulSet
from koordinator.cluster.controllers.workloads import number_of_pods

_PARALLEL: Final = "Parallel"


@dataclass(frozen=True, slots=True)
class PodsOfSet:
    """A StatefulSet and its pods."""

    stateful_set: StatefulSet
    pods: Mapping[int, Pod]
    """By ordinal."""
    current_revision: str
    """The name of the revision from which an update starts."""
    update_revision: str
    now: datetime

    @property
    def condemned(self) -> Sequence[Pod]:
        """The pods beyond the replicas, those with the highest ordinal first."""
        wanted = self.stateful_set.ordinals
        return [self.pods[ordinal] for ordinal in sorted(self.pods, reverse=True) if ordinal not in wanted]

    @property
    def to_update(self) -> range:
        """The ordinals whose pods are replaced when the template has changed, the highest first."""
        strategy = self.stateful_set.spec.update_strategy
        partition = (strategy.rolling_update.partition or 0) if strategy.rolling_update is not None else 0
        return self.stateful_set.ordinals[partition:][::-1] if strategy.type == "RollingUpdate" else range(0)

    @property
    def is_ordered(self) -> bool:
        return self.stateful_set.spec.pod_management_policy != _PARALLEL

    def is_available(self, pod: Pod) -> bool:
        """Whether the pod runs and has been ready for long enough."""
        seconds = self.stateful_set.spec.min_ready_seconds
        return is_running_and_ready(pod) and is_available(pod, seconds, self.now)

    def revision_for(self, ordinal: int) -> str:
        """The revision of a pod that is created now."""
        update = self.stateful_set.spec.update_strategy.rolling_update
        start = self.stateful_set.spec.ordinals.start
        boundary = self.stateful_set.status.current_replicas if update is None else update.partition or 0
        return self.current_revision if ordinal < start + boundary else self.update_revision


@dataclass(slots=True)
class PodPlan:
    """``create`` has ordinals."""

    create: list[int] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    ended: list[Pod] = field(default_factory=list)
    """Of the deleted pods, those that have ended by themselves."""
    look_again: float | None = None
    """Seconds until a pod that is awaited has been ready for long enough."""


def by_ordinal(stateful_set: StatefulSet, pods: Sequence[Pod]) -> Mapping[int, Pod]:
    """The pods by the ordinals in their names."""
    found = ((ordinal_of(stateful_set, pod.metadata.name), pod) for pod in pods)
    return {ordinal: pod for ordinal, pod in found if ordinal is not None}


def is_running_and_ready(pod: Pod) -> bool:
    return pod.status.phase == "Running" and is_ready(pod)


def _is_healthy(pod: Pod) -> bool:
    return is_running_and_ready(pod) and not _is_leaving(pod)


def _is_leaving(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def plan_pods(state: PodsOfSet) -> PodPlan:
    """The next step."""
    plan = PodPlan()
    if state.stateful_set.metadata.deletion_timestamp is not None:
        return plan
    for step in (_plan_replicas, _plan_condemned, _plan_update):
        if not step(state, plan):
            break
    return plan


def _plan_replicas(state: PodsOfSet, plan: PodPlan) -> bool:
    """Each step returns whether the next one may follow."""
    for ordinal in state.stateful_set.ordinals:
        pod = state.pods.get(ordinal)
        if pod is None:
            plan.create.append(ordinal)
        elif is_finished(pod):
            # The next pod of this name comes when this one is gone.
            if not _is_leaving(pod):
                plan.delete.append(pod)
                plan.ended.append(pod)
        elif state.is_available(pod) and not _is_leaving(pod):
            continue
        else:
            _await(state, pod, plan)
        if state.is_ordered:
            return False
    return True


def _plan_condemned(state: PodsOfSet, plan: PodPlan) -> bool:
    if not state.is_ordered:
        plan.delete += [pod for pod in state.condemned if not _is_leaving(pod)]
        return True
    if not state.condemned:
        return True
    last = state.condemned[0]
    first_unhealthy = next((pod for pod in reversed(state.condemned) if not _is_healthy(pod)), None)
    if _is_leaving(last):
        return False
    if state.is_available(last) or last is first_unhealthy:
        plan.delete.append(last)
    else:
        _await(state, last, plan)
    return False


def _plan_update(state: PodsOfSet, plan: PodPlan) -> bool:
    """Delete the pods of earlier revisions, as long as not too many are unavailable."""
    left = most_unavailable(state.stateful_set)
    for ordinal in state.to_update:
        pod = state.pods.get(ordinal)
        is_old = pod is not None and revision_of(pod) != state.update_revision and not _is_leaving(pod)
        if pod is not None and is_old and pod not in plan.delete:
            plan.delete.append(pod)
        elif pod is not None and state.is_available(pod) and not _is_leaving(pod):
            continue
        elif pod is not None:
            _await(state, pod, plan)
        left -= 1
        if left <= 0:
            return False
    return True


def most_unavailable(stateful_set: StatefulSet) -> int:
    """How many pods an update may take away at a time; shares are rounded down, one at least."""
    update = stateful_set.spec.update_strategy.rolling_update
    limit = update.max_unavailable if update is not None else None
    return max(1, number_of_pods(limit, len(stateful_set.ordinals), math.floor))


def _await(state: PodsOfSet, pod: Pod, plan: PodPlan) -> None:
    wait = available_in(pod, state.stateful_set.spec.min_ready_seconds, state.now)
    if wait:
        seconds = wait.total_seconds()
        plan.look_again = seconds if plan.look_again is None else min(seconds, plan.look_again)
