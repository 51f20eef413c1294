"""The feature gates of koord-manager, with the original's stages and defaults."""

from __future__ import annotations

from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage

WEBHOOK_FRAMEWORK: Final = "WebhookFramework"
POD_MUTATING_WEBHOOK: Final = "PodMutatingWebhook"
POD_VALIDATING_WEBHOOK: Final = "PodValidatingWebhook"
ELASTIC_MUTATING_WEBHOOK: Final = "ElasticMutatingWebhook"
ELASTIC_VALIDATING_WEBHOOK: Final = "ElasticValidatingWebhook"
NODE_MUTATING_WEBHOOK: Final = "NodeMutatingWebhook"
NODE_VALIDATING_WEBHOOK: Final = "NodeValidatingWebhook"
CONFIG_MAP_VALIDATING_WEBHOOK: Final = "ConfigMapValidatingWebhook"
RESERVATION_MUTATING_WEBHOOK: Final = "ReservationMutatingWebhook"
BINDING_ADMISSION_WEBHOOK: Final = "BindingAdmissionWebhook"
COLOCATION_PROFILE_SKIP_MUTATING_RESOURCES: Final = "ColocationProfileSkipMutatingResources"
COLOCATION_PROFILE_SKIP_VALIDATING_PRIORITY: Final = "ColocationProfileSkipValidatingPriority"
COLOCATION_PROFILE_CONTROLLER: Final = "ColocationProfileController"
DISABLE_EXTENDED_RESOURCE_SPEC: Final = "DisableExtendedResourceSpec"
DISABLE_DEVICE_RESOURCE_SPEC: Final = "DisableDeviceResourceSpec"
VALIDATE_POD_DEVICE_RESOURCE: Final = "ValidatePodDeviceResource"
ENABLE_POD_ENHANCED_VALIDATOR: Final = "EnablePodEnhancedValidator"
MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
SUPPORT_PARENT_QUOTA_SUBMIT_POD: Final = "SupportParentQuotaSubmitPod"
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
ELASTIC_QUOTA_GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
ELASTIC_QUOTA_ENABLE_UPDATE_RESOURCE_KEY: Final = "ElasticQuotaEnableUpdateResourceKey"
ELASTIC_QUOTA_EVALUATION_TRANSFORM_POD: Final = "ElasticQuotaEvaluationTransformPod"
ENABLE_QUOTA_ADMISSION: Final = "EnableQuotaAdmission"
ENABLE_QUOTA_ADMISSION_ON_UPDATE: Final = "EnableQuotaAdmissionOnUpdate"
REPLACE_RESOURCES_TRANSFORMER: Final = "ReplaceResourcesTransformer"
ENABLE_SYNC_GPU_SHARED_RESOURCE: Final = "EnableSyncGPUSharedResource"
RECOMMENDER: Final = "Recommender"
"""Ours: the original defines Recommendations and has no controller for them."""
STRICT_CONFIG_MAP_VALIDATION: Final = "StrictConfigMapValidation"
"""Ours: keys and fields of the SLO ConfigMap that no program knows are refused, not only warned of."""
FREE_RESOURCE: Final = "FreeResource"
"""Ours: koord-free pods request what all others leave of a node, which is computed as batch capacity is."""
POD_TEMPLATE_VALIDATING_WEBHOOK: Final = "PodTemplateValidatingWebhook"
"""Ours: warnings of typing mistakes in the templates of workloads."""

_ON: Final = (
    WEBHOOK_FRAMEWORK,
    POD_MUTATING_WEBHOOK,
    POD_VALIDATING_WEBHOOK,
    ELASTIC_MUTATING_WEBHOOK,
    ELASTIC_VALIDATING_WEBHOOK,
    # Off in the original. The pod webhook adds gpu.shared to every pod that requests GPUs, and such a pod fits on no
    # node without the resource.
    ENABLE_SYNC_GPU_SHARED_RESOURCE,
)
_OFF: Final = (
    NODE_MUTATING_WEBHOOK,
    NODE_VALIDATING_WEBHOOK,
    CONFIG_MAP_VALIDATING_WEBHOOK,
    RESERVATION_MUTATING_WEBHOOK,
    BINDING_ADMISSION_WEBHOOK,
    COLOCATION_PROFILE_SKIP_MUTATING_RESOURCES,
    COLOCATION_PROFILE_SKIP_VALIDATING_PRIORITY,
    COLOCATION_PROFILE_CONTROLLER,
    DISABLE_EXTENDED_RESOURCE_SPEC,
    DISABLE_DEVICE_RESOURCE_SPEC,
    VALIDATE_POD_DEVICE_RESOURCE,
    ENABLE_POD_ENHANCED_VALIDATOR,
    MULTI_QUOTA_TREE,
    SUPPORT_PARENT_QUOTA_SUBMIT_POD,
    DISABLE_DEFAULT_QUOTA,
    ELASTIC_QUOTA_GUARANTEE_USAGE,
    ELASTIC_QUOTA_ENABLE_UPDATE_RESOURCE_KEY,
    ELASTIC_QUOTA_EVALUATION_TRANSFORM_POD,
    ENABLE_QUOTA_ADMISSION,
    ENABLE_QUOTA_ADMISSION_ON_UPDATE,
    REPLACE_RESOURCES_TRANSFORMER,
    RECOMMENDER,
    STRICT_CONFIG_MAP_VALIDATION,
    FREE_RESOURCE,
    POD_TEMPLATE_VALIDATING_WEBHOOK,
)

_SCHEDULER: Final = "only the scheduler reads it"
_DESCHEDULER: Final = "only the descheduler reads it"
_WITHOUT_EFFECT: Final = {
    "ElasticQuotaIgnorePodOverhead": Feature(default=False, without_effect=_SCHEDULER),
    "PreemptionPolicyTransformer": Feature(default=False, without_effect=_SCHEDULER),
    "PriorityTransformer": Feature(default=False, without_effect=_SCHEDULER),
    "DisablePVCReservation": Feature(default=False, stage=Stage.BETA, without_effect=_DESCHEDULER),
}
"""Gates that the original's manager accepts, since one table serves all of its programs, and never reads."""


def make_features() -> FeatureGates:
    """All gates that koord-manager accepts, at their defaults."""
    gates = FeatureGates({name: Feature(default=True, stage=Stage.BETA) for name in _ON})
    gates.add({name: Feature(default=False) for name in _OFF})
    gates.add(_WITHOUT_EFFECT)
    return gates
