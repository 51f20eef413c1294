"""Deployments, ReplicaSets and pods as tests need them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.workloads import (
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdate,
)

NOW = ManualClock().now().replace(microsecond=0)
LABELS = {"app": "web"}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def template(image: str = "one") -> dict[str, Any]:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}


def pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: datetime | None = None,
    cost: str | None = None,
    restarts: int = 0,
    created: datetime = NOW,
) -> Pod:
    """``ready``: since when it is; None if it is not."""
    condition = PodCondition(type="Ready", status="False" if ready is None else "True", last_transition_time=ready)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            labels=LABELS,
            creation_timestamp=created,
            annotations={} if cost is None else {"controller.kubernetes.io/pod-deletion-cost": cost},
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase, conditions=[condition], container_statuses=[ContainerStatus(restart_count=restarts)]
        ),
    )


def replica_set(
    name: str = "web",
    replicas: int = 1,
    *,
    image: str = "one",
    available: int = 0,
    annotations: dict[str, str] | None = None,
    created: datetime = NOW,
    **status: Any,
) -> ReplicaSet:
    return ReplicaSet(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            generation=1,
            creation_timestamp=created,
            annotations=annotations or {},
        ),
        spec=ReplicaSetSpec(replicas=replicas, selector=LabelSelector(match_labels=LABELS), template=template(image)),
        status=ReplicaSetStatus(
            **{
                "replicas": replicas,
                "ready_replicas": available,
                "available_replicas": available,
                "observed_generation": 1,
                **status,
            }
        ),
    )


def deployment(
    replicas: int = 1,
    *,
    image: str = "one",
    surge: int | str = "25%",
    unavailable: int | str = "25%",
    strategy: str = "RollingUpdate",
    status: DeploymentStatus | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Deployment:
    rolling = RollingUpdate(max_surge=surge, max_unavailable=unavailable)
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default", uid="deployment", annotations=annotations or {}),
        spec=DeploymentSpec(
            replicas=replicas,
            selector=LabelSelector(match_labels=LABELS),
            template=template(image),
            strategy=DeploymentStrategy(type=strategy, rolling_update=rolling),
            **{"progress_deadline_seconds": 600, "revision_history_limit": 10, **spec},
        ),
        status=status or DeploymentStatus(),
    )
