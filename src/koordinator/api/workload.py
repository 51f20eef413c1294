"""Workloads, read as owners of pods, and the disruption budgets over them."""

from __future__ import annotations

from koordinator.api.meta import LabelSelector, Object, WireStruct


class ScalableSpec(WireStruct):
    """What Deployments, ReplicaSets, StatefulSets and ReplicationControllers have in common."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class Workload(Object):
    spec: ScalableSpec = ScalableSpec()


class ReplicationControllerSpec(WireStruct):
    replicas: int | None = None
    selector: dict[str, str] = {}


class ReplicationController(Object):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class ServiceSpec(WireStruct):
    selector: dict[str, str] = {}


class Service(Object):
    spec: ServiceSpec = ServiceSpec()


class PodDisruptionBudgetSpec(WireStruct):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(WireStruct):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
