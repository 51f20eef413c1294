"""The feature gates of koord-descheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.model.gang_declaration import GENERIC_WORKLOAD
from koordinator.model.transformers import POD_GATES

NODE_DRAIN: Final = "NodeDrain"
"""Whether DrainNodes and DrainNodeGroups are carried out."""
DISABLE_PVC_RESERVATION: Final = "DisablePVCReservation"
"""Whether Reservations for migrations leave out volumes that would have to be claimed."""
_DRAINING: Final = "MigrationController"
GATES: Final[Mapping[str, Feature]] = {
    NODE_DRAIN: Feature(default=False, stage=Stage.ALPHA),
    DISABLE_PVC_RESERVATION: Feature(default=False, stage=Stage.BETA),
    GENERIC_WORKLOAD: Feature(default=False, stage=Stage.ALPHA),
    **{name: Feature(default=False) for name in POD_GATES},
}
"""Those that work."""
WORKING: Final[Mapping[str, str]] = {
    NODE_DRAIN: "DrainNodes and DrainNodeGroups are carried out",
    DISABLE_PVC_RESERVATION: "Reservations for migrations leave claims out",
    GENERIC_WORKLOAD: "with gangPolicy Whole, Workloads of scheduling.k8s.io declare gangs, too",
    **POD_GATES,
}
"""What they do."""
_MANAGER: Final = "only koord-manager reads it"
_QUOTAS: Final = "only koord-manager and koord-scheduler read it"
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("BindingAdmissionWebhook", "ColocationProfileController", "ColocationProfileSkipMutatingResources"),
            *("ColocationProfileSkipValidatingPriority", "ConfigMapValidatingWebhook", "DisableDeviceResourceSpec"),
            *("DisableExtendedResourceSpec", "ElasticQuotaEnableUpdateResourceKey"),
            *("ElasticQuotaEvaluationTransformPod", "EnablePodEnhancedValidator", "EnableQuotaAdmission"),
            *("EnableQuotaAdmissionOnUpdate", "EnableSyncGPUSharedResource", "NodeMutatingWebhook"),
            *("NodeValidatingWebhook", "ReservationMutatingWebhook", "SupportParentQuotaSubmitPod"),
            "ValidatePodDeviceResource",
        ),
        _MANAGER,
    ),
    **dict.fromkeys(("DisableDefaultQuota", "ElasticQuotaGuaranteeUsage", "MultiQuotaTree"), _QUOTAS),
    "ElasticQuotaIgnorePodOverhead": "only koord-scheduler reads it",
}
"""Gates that the original's descheduler accepts, since one table serves all of its programs."""
_WITHOUT_EFFECT_ON: Final = (
    "ElasticMutatingWebhook",
    "ElasticValidatingWebhook",
    "PodMutatingWebhook",
    "PodValidatingWebhook",
    "WebhookFramework",
)
"""Those of them that are on by default; koord-manager reads them."""


def make_features() -> FeatureGates:
    """All gates that koord-descheduler accepts, at their defaults."""
    gates = FeatureGates(GATES)
    gates.add({name: Feature(default=False, without_effect=why) for name, why in _WITHOUT_EFFECT.items()})
    gates.add({name: Feature(True, Stage.BETA, without_effect=_MANAGER) for name in _WITHOUT_EFFECT_ON})
    return gates


def enabled_gates(gates: FeatureGates) -> frozenset[str]:
    """The gates that are on, of those that work."""
    return frozenset(name for name in GATES if gates.enabled(name))


def remarks(gates: Collection[str], plugins: Collection[str]) -> list[str]:
    """What the gates that are on will not do with these plugins, in sentences."""
    if NODE_DRAIN not in gates or _DRAINING in plugins:
        return []
    return [f"feature gate {NODE_DRAIN} has no effect: no profile has {_DRAINING}, which carries DrainNodes out"]
