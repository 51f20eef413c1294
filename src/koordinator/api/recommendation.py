"""analysis.koordinator.sh Recommendation: what a workload's containers should ask for."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.meta import Condition, LabelSelector, Object, WireStruct
from koordinator.api.pod import ResourceList

WORKLOAD: Final = "workload"
POD_SELECTOR: Final = "podSelector"

LOW_CONFIDENCE: Final = "LowConfidence"
NO_OBJECTS_MATCHED: Final = "NoObjectsMatched"
FETCHING_HISTORY: Final = "FetchingHistory"
CONFIG_DEPRECATED: Final = "ConfigDeprecated"
CONFIG_UNSUPPORTED: Final = "ConfigUnsupported"
"""The condition types."""


class CrossVersionObjectReference(WireStruct):
    kind: RequiredText = ""
    name: RequiredText = ""
    api_version: str = ""


class RecommendationTarget(WireStruct):
    type: RequiredText = ""
    """workload or podSelector."""
    workload: CrossVersionObjectReference | None = None
    pod_selector: LabelSelector | None = None


class RecommendationSpec(WireStruct):
    target: Annotated[RecommendationTarget, Schema(required=True)] = RecommendationTarget()


class RecommendedContainerStatus(WireStruct):
    container_name: str = ""
    resources: ResourceList = {}


class RecommendedPodStatus(WireStruct):
    container_statuses: list[RecommendedContainerStatus] = []


class RecommendationStatus(WireStruct):
    pod_status: RecommendedPodStatus | None = None
    update_time: datetime | None = None
    conditions: list[Condition] = []


class Recommendation(Object):
    spec: RecommendationSpec = RecommendationSpec()
    status: RecommendationStatus = RecommendationStatus()
