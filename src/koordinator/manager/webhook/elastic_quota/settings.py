"""The settings of quota checks, and the error with which a quota or a pod is refused."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.base.errors import KoordinatorError
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """The defaults are those of the feature gates."""

    same_resources: bool = True
    """A child's max must name the same resources as its parent's; otherwise it must only name no others."""
    guarantees: bool = False
    """A min must be covered by guarantees further up."""
    by_namespace: bool = True
    """A pod that names no quota counts against its namespace's, or else the default quota."""
    pods_in_parents: bool = False
    """Pods may count against quotas that have children."""

    @classmethod
    def from_gates(cls, gates: FeatureGates) -> QuotaSettings:
        return cls(
            same_resources=not gates.enabled(features.ELASTIC_QUOTA_ENABLE_UPDATE_RESOURCE_KEY),
            guarantees=gates.enabled(features.ELASTIC_QUOTA_GUARANTEE_USAGE),
            by_namespace=not gates.enabled(features.DISABLE_DEFAULT_QUOTA),
            pods_in_parents=gates.enabled(features.SUPPORT_PARENT_QUOTA_SUBMIT_POD),
        )


class QuotaRefused(KoordinatorError):
    """The message names the quota and the violated rule, in the original's words."""
