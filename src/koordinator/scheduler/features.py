"""The feature gates of koord-scheduler, with the original's stages and defaults: those that work here, and why each
other one that the original accepts has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.model.transformers import POD_GATES
from koordinator.scheduler.kubernetes_gates import KUBERNETES_GATES
from koordinator.scheduler.plugins.device_share import gates as device_share_gates
from koordinator.scheduler.plugins.elastic_quota import gates as elastic_quota_gates
from koordinator.scheduler.plugins.reservation import gates as reservation_gates

CROSS_SCHEDULER_NOMINATION: Final = "CrossSchedulerNomination"
OF_THE_VIEW: Final[Mapping[str, str]] = {
    **elastic_quota_gates.GATES,
    **device_share_gates.GATES,
    **reservation_gates.GATES,
    **POD_GATES,
}
"""Those that plugins and informers read from the view, and what they do; all are off unless they are switched on."""
WORKING: Final[Mapping[str, str]] = {
    CROSS_SCHEDULER_NOMINATION: "pods that other schedulers have nominated to nodes count there",
    **OF_THE_VIEW,
}
"""All that work."""

_CAPACITIES: Final = "CSIStorageCapacities are watched in version v1, and only where the API server has them"
_BUDGETS: Final = "PodDisruptionBudgets are watched in version v1, and only where the API server has them"
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "CleanExpiredReservationAllocated": "owners keep the annotation reservation-allocated of a Reservation that is "
    "gone; it counts for nothing then",
    "CompatibleCSIStorageCapacity": _CAPACITIES,
    "CompatiblePodDisruptionBudget": _BUDGETS,
    "DisableCSIStorageCapacityInformer": _CAPACITIES,
    "DisableDynamicResourceAllocationInformer": "objects of dynamic resource allocation are never watched",
    "DisablePodDisruptionBudgetInformer": _BUDGETS,
    "EnableInlineBatchSchedule": "the members of a gang with a plan are always placed right after each other",
    "LazyReservationRestore": "only the nodes of Reservations that a pod owns are ever adjusted for it",
    "SkipFilterWithNominatedPods": "there is no second pass: nominated pods count where a pod is about to go",
    "SkipReservationFitsNode": "it saves the original one of two equal comparisons, and changes no decision",
    "SupportParentQuotaSubmitPod": "only the webhooks of koord-manager read it",
    "SyncBarrier": "the sync barrier is not built yet",
}
"""Gates of Koordinator that are off in the original."""
_WITHOUT_EFFECT_ON: Final[Mapping[str, tuple[Stage, str]]] = {
    "DynamicSchedulerCheck": (
        Stage.ALPHA,
        "the scheduler name of a pod or a Reservation is always looked at when it changes",
    ),
    "EnableBatchScheduleNodeSnapshot": (Stage.BETA, "decisions read the current state; there is no snapshot"),
    "GangPendingPodsConditionPatch": (
        Stage.BETA,
        "every member of a gang that fails is tried, and has a condition of its own",
    ),
}
"""Gates of Koordinator that are on in the original."""


def make_features() -> FeatureGates:
    """All gates that koord-scheduler accepts, at their defaults."""
    gates = FeatureGates({name: Feature(default=False) for name in WORKING})
    gates.add({name: Feature(default=False, without_effect=why) for name, why in _WITHOUT_EFFECT.items()})
    gates.add({name: Feature(True, stage, without_effect=why) for name, (stage, why) in _WITHOUT_EFFECT_ON.items()})
    gates.add(KUBERNETES_GATES)
    return gates
