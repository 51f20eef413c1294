"""Workloads as their controllers read them: with the whole pod template, which becomes pods unchanged."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Schema
from koordinator.api.kinds import Kind
from koordinator.api.meta import Condition, FreeForm, LabelSelector, Object, WireStruct

RequiredCount = Annotated[int, Schema(required=True)]
"""Written even where it is zero."""


class ReplicaSetSpec(WireStruct):
    replicas: int | None = None
    min_ready_seconds: int = 0
    """How long a pod must be ready before it counts as available, in seconds."""
    selector: LabelSelector | None = None
    template: FreeForm = {}


class ReplicaSetStatus(WireStruct):
    replicas: RequiredCount = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: list[Condition] = []


class ReplicaSet(Object):
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()

    @property
    def wanted(self) -> int:
        """How many pods there should be; one, unless the spec says otherwise."""
        return 1 if self.spec.replicas is None else self.spec.replicas


REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
