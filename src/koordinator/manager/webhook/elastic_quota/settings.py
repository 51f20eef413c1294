"""Which rules for quotas are in force, and the error with which a quota or a pod is refused."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.base.errors import KoordinatorError
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Defaults are those of the feature gates."""

    same_resources: bool = True
    """Children name the same resources in max as their parents; otherwise only no others."""
    guarantees: bool = False
    """A min has to be covered by what is guaranteed further up."""
    by_namespace: bool = True
    """Pods that name no quota count against that of their namespace, or the default one."""
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
    """The text names the quota and what stands against it, in the words of the original."""
