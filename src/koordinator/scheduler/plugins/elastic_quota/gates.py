"""The feature gates of ElasticQuota. They are a separate module for the command line, which loads no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
IGNORE_TERMINATING: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
IGNORE_OVERDUE: Final = "ElasticQuotaIgnoreTerminatingPod"
IGNORE_OVERHEAD: Final = "ElasticQuotaIgnorePodOverhead"
GATES: Final[Mapping[str, str]] = {
    MULTI_QUOTA_TREE: "quotas with the same tree id form a tree of their own, with the total that its root states",
    DISABLE_DEFAULT_QUOTA: "pods that name no existing quota count against none",
    GUARANTEE_USAGE: "no quota lends, and none gets less than it uses",
    IGNORE_TERMINATING: "a pod stops counting as soon as it is terminating",
    IGNORE_OVERDUE: "a terminating pod stops counting when its deletionTimestamp is older than its grace period",
    IGNORE_OVERHEAD: "the overhead of pods does not count",
}
"""Name -> what it does."""
