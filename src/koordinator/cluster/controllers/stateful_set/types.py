"""StatefulSets as their controller reads them: with the whole templates, which become pods and claims unchanged."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Condition, FreeForm, LabelSelector, Object, WireStruct
from koordinator.cluster.controllers.workloads import RequiredCount


class PartitionedUpdate(WireStruct):
    partition: int | None = None
    """Pods with a lower ordinal stay as they are."""
    max_unavailable: int | str | None = None


class StatefulSetUpdateStrategy(WireStruct):
    type: str = "RollingUpdate"
    rolling_update: PartitionedUpdate | None = None


class Ordinals(WireStruct):
    start: int = 0


class ClaimRetentionPolicy(WireStruct):
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetSpec(WireStruct):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: FreeForm = {}
    volume_claim_templates: list[FreeForm] = []
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int | None = None
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    ordinals: Ordinals = Ordinals()


class StatefulSetStatus(WireStruct):
    observed_generation: int = 0
    replicas: RequiredCount = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: list[Condition] = []
    available_replicas: RequiredCount = 0


class StatefulSet(Object):
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()

    @property
    def ordinals(self) -> range:
        """Those of the pods that there should be."""
        start = self.spec.ordinals.start
        return range(start, start + (1 if self.spec.replicas is None else self.spec.replicas))


STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
