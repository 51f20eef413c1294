"""analysis.koordinator.sh Recommendation: what a workload's containers should request."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.meta import Condition, LabelSelector, Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
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

APPLIED: Final = "analysis.koordinator.sh/recommendation-applied"
"""The annotation of a pod with what was made of its Recommendation: an AppliedRecommendation. Ours."""
BY_ADMISSION: Final = "admission"
BY_RESIZE: Final = "resize"
"""What changed the pod: the webhook when it was created, or a resize in place."""
DETAILS: Final = "analysis.koordinator.sh/recommendation-details"
"""The annotation with what the status has no field for: a map of containers to ContainerDetails. Ours."""
CHECKPOINT: Final = "analysis.koordinator.sh/checkpoint"
"""The label, "true", of the ConfigMaps in which the recommender stores what it has learned. Ours."""

AUTO: Final = "Auto"
OFF: Final = "Off"
"""The modes of a container: with a recommendation or without."""
INITIAL: Final = "Initial"
IN_PLACE_OR_RECREATE: Final = "InPlaceOrRecreate"
UPDATE_MODES: Final = (OFF, INITIAL, AUTO, IN_PLACE_OR_RECREATE)
"""The modes of a Recommendation, by the words of the vertical pod autoscaler: nothing acts on it; pods get it when they
are created; pods that run are resized in place, too; and those that cannot be resized are evicted."""
REQUESTS_AND_LIMITS: Final = "RequestsAndLimits"
REQUESTS_ONLY: Final = "RequestsOnly"
CONTROLLED_VALUES: Final = (REQUESTS_AND_LIMITS, REQUESTS_ONLY)
"""Whether limits stay in proportion to requests, or stay as they are."""


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
    """How the recommendation is used, the same fields as for one container for all of them, and ``containers`` by
    name, or ``*`` for those that are not named."""

    update_mode: str = OFF
    controlled_values: str = REQUESTS_AND_LIMITS
    low_confidence: bool = False
    """Whether it is used before there is enough history."""
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


class AmountChange(WireStruct):
    """Of one resource of one container. ``before`` is None where there was no amount."""

    before: Quantity | None = None
    after: Quantity | None = None


class ContainerChange(WireStruct):
    """Resource name -> what became of it."""

    requests: dict[str, AmountChange] = {}
    limits: dict[str, AmountChange] = {}


class AppliedRecommendation(WireStruct):
    """What the pod got from its Recommendation, at its creation or by the last resize in place."""

    recommendation: str = ""
    """The name of the Recommendation, which is in the pod's namespace."""
    by: str = ""
    """BY_ADMISSION or BY_RESIZE."""
    at: Time | None = None
    containers: dict[str, ContainerChange] = {}
    """The changed ones."""
    skipped: str = ""
    """Why nothing was changed at its creation."""
    restarts: dict[str, int] = {}
    """How often its containers had been restarted before the resize, with the restart that the resize makes."""
    undone: str = ""
    """Why the resize was undone."""
    undos: int = 0
    """How many resizes were undone, one after the other."""


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
