"""scheduling.k8s.io/v1alpha1 Workload (Kubernetes 1.35, gate GenericWorkload): which pods are scheduled together.

A pod refers to one of its pod groups in ``spec.workloadRef``, with a replica key where the group has several replicas
that are scheduled each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.constraints import Int32
from koordinator.api.meta import Object, WireStruct


class GangPolicy(WireStruct):
    min_count: Int32 = 0
    """How many pods of the group must be scheduled at the same time."""


class PodGroupPolicy(WireStruct):
    """Exactly one of ``basic``, which is pods one by one, and ``gang``; ``basic`` has no fields."""

    gang: GangPolicy | None = None


class WorkloadPodGroup(WireStruct):
    name: str = ""
    policy: PodGroupPolicy = PodGroupPolicy()


class GenericWorkloadSpec(WireStruct):
    pod_groups: Sequence[WorkloadPodGroup] = ()


class GenericWorkload(Object):
    spec: GenericWorkloadSpec = GenericWorkloadSpec()
