"""Workloads as their controllers read them: with the whole pod template, which becomes pods unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.kinds import Kind
from koordinator.api.meta import Condition, FreeForm, LabelSelector, Object, WireStruct
from koordinator.api.timestamps import Time

_SHARE: Final = re.compile(r"([0-9]+)%", re.ASCII)
RequiredCount = Annotated[int, Schema(required=True)]
"""Written even where it is zero."""


class ReplicatedSpec(WireStruct):
    """What the specs of ReplicaSets and ReplicationControllers have in common."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    """How long a pod must be ready before it counts as available, in seconds."""
    template: FreeForm = {}


class ReplicaSetSpec(ReplicatedSpec):
    selector: LabelSelector | None = None


class ReplicationControllerSpec(ReplicatedSpec):
    selector: dict[str, str] = {}
    """An empty one selects nothing."""


class ReplicaSetStatus(WireStruct):
    """Of both kinds."""

    replicas: RequiredCount = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    """Of ReplicaSets alone."""
    observed_generation: int = 0
    conditions: list[Condition] = []


class Replicated(Object):
    """A ReplicaSet or a ReplicationController: so many pods of one template."""

    spec: ReplicatedSpec = ReplicatedSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()

    @property
    def wanted(self) -> int:
        """How many pods there should be; one, unless the spec says otherwise."""
        return 1 if self.spec.replicas is None else self.spec.replicas


class ReplicaSet(Replicated):
    spec: ReplicaSetSpec = ReplicaSetSpec()


class ReplicationController(Replicated):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class RollingUpdate(WireStruct):
    """Numbers of pods, or shares of the replicas such as ``25%``."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


def number_of_pods(limit: int | str | None, whole: int, rounded: Callable[[float], int]) -> int:
    """A limit of a rolling update as a number of pods, where shares are those of ``whole``. What is neither a number
    nor a share counts as none; the API server lets nobody write it."""
    if isinstance(limit, int):
        return max(0, limit)
    share = _SHARE.fullmatch(limit or "")
    return rounded(int(share[1]) * whole / 100) if share is not None else 0


class DeploymentStrategy(WireStruct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DeploymentSpec(WireStruct):
    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: FreeForm = {}
    strategy: DeploymentStrategy = DeploymentStrategy()
    paused: bool = False
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None


class DeploymentCondition(WireStruct):
    type: RequiredText = ""
    status: RequiredText = ""
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class DeploymentStatus(WireStruct):
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    collision_count: int | None = None
    conditions: list[DeploymentCondition] = []


class Deployment(Object):
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def wanted(self) -> int:
        """How many pods there should be; one, unless the spec says otherwise."""
        return 1 if self.spec.replicas is None else self.spec.replicas


DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", Deployment)
REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
REPLICATION_CONTROLLERS: Final = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController", ReplicationController
)
