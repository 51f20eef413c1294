"""The feature gates that change how quotas count. They stand apart for the command line, which loads no plugin."""

from __future__ import annotations

from typing import Final

MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
"""Quotas of one tree id form a tree of their own, with the total that its root names."""
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
"""Only pods that name a known quota have one."""
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
"""Nothing is lent, and no quota gets less than it uses."""
IGNORE_TERMINATING: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
"""A pod counts no more as soon as it is being deleted."""
IGNORE_OVERDUE: Final = "ElasticQuotaIgnoreTerminatingPod"
"""A pod counts no more once it should have been gone for as long as its grace period."""
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
