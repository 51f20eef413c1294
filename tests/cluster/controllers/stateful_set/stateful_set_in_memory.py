"""A StatefulSet and its pods in memory, moved along by the decisions of the controller alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod, PodCondition, PodStatus
from koordinator.cluster.controllers.revision_history import REVISION_HASH
from koordinator.cluster.controllers.stateful_set.identity import pod_name
from koordinator.cluster.controllers.stateful_set.pod_plan import PodPlan, PodsOfSet, by_ordinal, plan_pods
from koordinator.cluster.controllers.stateful_set.status import new_status
from koordinator.cluster.controllers.stateful_set.types import (
    Ordinals,
    PartitionedUpdate,
    StatefulSet,
    StatefulSetSpec,
    StatefulSetUpdateStrategy,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def stateful_set_with(
    replicas: int, *, start: int = 0, partition: int = 0, max_unavailable: int | str | None = None, **spec: Any
) -> StatefulSet:
    update = PartitionedUpdate(partition=partition, max_unavailable=max_unavailable)
    given: dict[str, Any] = {
        "replicas": replicas,
        "ordinals": Ordinals(start=start),
        "update_strategy": StatefulSetUpdateStrategy(rolling_update=update),
        "selector": LabelSelector(match_labels={"app": "web"}),
        "service_name": "web",
    }
    metadata = ObjectMeta(name="web", namespace="default", uid="web", generation=1)
    return StatefulSet(metadata=metadata, spec=StatefulSetSpec(**(given | spec)))


def pod_of_set(stateful_set: StatefulSet, ordinal: int, revision: str = "first", phase: str = "Pending") -> Pod:
    name = pod_name(stateful_set, ordinal)
    metadata = ObjectMeta(name=name, namespace="default", uid=f"{name}-{revision}", labels={REVISION_HASH: revision})
    ready = PodCondition(type="Ready", status=str(phase == "Running"), last_transition_time=START)
    return Pod(metadata=metadata, status=PodStatus(phase=phase, conditions=(ready,)))


class StatefulSetInMemory:
    def __init__(self, stateful_set: StatefulSet) -> None:
        self.stateful_set = stateful_set
        self.pods: dict[str, Pod] = {}
        self.current = self.update = "first"

    def state(self) -> PodsOfSet:
        pods = by_ordinal(self.stateful_set, list(self.pods.values()))
        return PodsOfSet(self.stateful_set, pods, self.current, self.update, START)

    @property
    def names(self) -> list[str]:
        return sorted(self.pods)

    def scale(self, replicas: int) -> None:
        self.stateful_set = replace(self.stateful_set, spec=replace(self.stateful_set.spec, replicas=replicas))

    def run_pass(self) -> PodPlan:
        state = self.state()
        plan = plan_pods(state)
        for ordinal in plan.create:
            pod = pod_of_set(self.stateful_set, ordinal, state.revision_for(ordinal))
            assert pod.metadata.name not in self.pods
            self.pods[pod.metadata.name] = pod
        for pod in plan.delete:
            leaving = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=START))
            self.pods[pod.metadata.name] = leaving
        status = new_status(self.state(), 0)
        self.stateful_set = replace(self.stateful_set, status=status)
        self.current = status.current_revision
        return plan

    def run_pods(self, only: int | None = None) -> None:
        """Deleted pods are gone, and the others get ready; or what happens to one of them."""
        names = self.names
        for name in names if only is None else names[only % len(names) : only % len(names) + 1] if names else []:
            pod = self.pods[name]
            if pod.metadata.deletion_timestamp is not None:
                del self.pods[name]
            else:
                self.set_phase(name, "Running")

    def set_phase(self, name: str, phase: str) -> None:
        ready = PodCondition(type="Ready", status=str(phase == "Running"), last_transition_time=START)
        self.pods[name] = replace(self.pods[name], status=PodStatus(phase=phase, conditions=(ready,)))

    def settle(self) -> None:
        """Until nothing is left to do."""
        for _ in range(60):
            self.run_pass()
            self.run_pods()
