"""analysis.koordinator.sh Recommendation: what a workload's containers should request."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.meta import Condition, LabelSelector, Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.timestamps import Time

WORKLOAD: Final = "workload"
POD_SELECTOR: Final = "podSelector"

LOW_CONFIDENCE: Final = "LowConfidence"
NO_OBJECTS_MATCHED: Final = "NoObjectsMatched"
FETCHING_HISTORY: Final = "FetchingHistory"
CONFIG_DEPRECATED: Final = "ConfigDeprecated"
CONFIG_UNSUPPORTED: Final = "ConfigUnsupported"
"""The condition types."""

POLICY: Final = "analysis.koordinator.sh/recommendation-policy"
"""The annotation by which the owner of a Recommendation tunes it: a RecommendationPolicy. Ours."""

DETAILS: Final = "analysis.koordinator.sh/recommendation-details"
"""The annotation with what the status has no field for: a map of containers to ContainerDetails. Ours."""
CHECKPOINT: Final = "analysis.koordinator.sh/checkpoint"
"""The label, "true", of the ConfigMaps in which the recommender stores what it has learned. Ours."""

AUTO: Final = "Auto"
OFF: Final = "Off"
"""The modes of a container: with a recommendation or without."""


class ContainerPolicy(WireStruct):
    """What may be tuned for one container. A field that is absent is as for all containers, or as the flags say."""

    mode: str = AUTO
    target_percentile: dict[str, float] = {}
    """cpu, memory -> a fraction from 0 to 1."""
    margin_fraction: float | None = None
    min_allowed: ResourceList = {}
    max_allowed: ResourceList = {}
    controlled_resources: list[str] | None = None


class RecommendationPolicy(WireStruct):
    """The same fields for all containers, and ``containers`` by name, or ``*`` for those that are not named."""

    target_percentile: dict[str, float] = {}
    margin_fraction: float | None = None
    min_allowed: ResourceList = {}
    max_allowed: ResourceList = {}
    controlled_resources: list[str] | None = None
    containers: dict[str, ContainerPolicy] = {}


class ContainerDetails(WireStruct):
    """More about the recommendation for one container."""

    lower_bound: ResourceList = {}
    """With less than this, the container is likely to be short of the resource."""
    upper_bound: ResourceList = {}
    """More than this is likely to be wasted. A resource that is absent is unbounded as yet."""
    uncapped_target: ResourceList = {}
    """The target without the policy's minAllowed and maxAllowed."""
    confidence: float = 0.0
    """The length of the history in units of --recommender-confidence-interval."""
    samples: int = 0
    """The number of samples of CPU usage."""
    first_sample: Time | None = None
    last_sample: Time | None = None


class CrossVersionObjectReference(WireStruct):
    """A workload by its kind and name."""

    kind: RequiredText = ""
    """The kind of the workload, such as Deployment."""
    name: RequiredText = ""
    """The name of the workload."""
    api_version: str = ""
    """The API version of the workload."""


class RecommendationTarget(WireStruct):
    """The pods that are looked at."""

    type: RequiredText = ""
    """workload or podSelector."""
    workload: CrossVersionObjectReference | None = None
    """The workload, when type is workload."""
    pod_selector: LabelSelector | None = None
    """The labels of the pods, when type is podSelector."""


class RecommendationSpec(WireStruct):
    """What the recommendation is for."""

    target: Annotated[RecommendationTarget, Schema(required=True)] = RecommendationTarget()
    """The workload or the pods that are looked at."""


class RecommendedContainerStatus(WireStruct):
    """The recommendation for one container."""

    container_name: str = ""
    """The name of the container."""
    resources: ResourceList = {}
    """What it should request."""


class RecommendedPodStatus(WireStruct):
    """The recommendation for a pod."""

    container_statuses: list[RecommendedContainerStatus] = []
    """One entry for each container."""


class RecommendationStatus(WireStruct):
    """What is recommended."""

    pod_status: RecommendedPodStatus | None = None
    """The recommendation for a pod."""
    update_time: Time | None = None
    """When it was last worked out."""
    conditions: list[Condition] = []
    """What stands in the way of a good recommendation."""


class Recommendation(Object):
    """What the containers of a workload should request, by what they use."""

    spec: RecommendationSpec = RecommendationSpec()
    status: RecommendationStatus = RecommendationStatus()
