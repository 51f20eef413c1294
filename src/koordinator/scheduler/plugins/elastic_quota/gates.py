"""The feature gates of ElasticQuota. They are a separate module for the command line, which loads no plugin."""

from __future__ import annotations

from typing import Final

MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
"""Quotas with the same tree id form a tree of their own, with the total that its root states."""
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
"""Pods that name no existing quota count against none."""
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
"""No quota lends, and none gets less than it uses."""
IGNORE_TERMINATING: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
"""A pod stops counting as soon as it is terminating."""
IGNORE_OVERDUE: Final = "ElasticQuotaIgnoreTerminatingPod"
"""A terminating pod stops counting when its deletionTimestamp is older than its grace period."""
IGNORE_OVERHEAD: Final = "ElasticQuotaIgnorePodOverhead"
"""The overhead of pods does not count."""
GATES: Final = (
    MULTI_QUOTA_TREE,
    DISABLE_DEFAULT_QUOTA,
    GUARANTEE_USAGE,
    IGNORE_TERMINATING,
    IGNORE_OVERDUE,
    IGNORE_OVERHEAD,
)
