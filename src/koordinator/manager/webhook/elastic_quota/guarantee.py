"""Whether what a quota is to keep for its pods is guaranteed at some level above it."""

from __future__ import annotations

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.elastic_quota.refusal import QuotaRefused
from koordinator.model.quota_tree.amounts import added, exact, fits, larger
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree


def check_guarantee(tree: QuotaTree, quota: Quota) -> None:
    """Raises QuotaRefused when not even the top of its tree has enough.

    Each level needs what its children need together, and no less than its own min; the first level that has that
    guaranteed covers everything below it.
    """
    if quota.allows_force_update or not quota.tree or quota.is_tree_root:
        return
    need, guaranteed = exact(quota.min), exact(quota.guaranteed)
    if fits(need, guaranteed):
        return
    need, below = larger(need, guaranteed), quota
    for level in tree.ancestors(quota):
        others = tree.guaranteed_below(level.name, but_for=below.name)
        need, guaranteed = larger(exact(level.min), added(need, others)), exact(level.guaranteed)
        if fits(need, guaranteed):
            return
        below = level
    if below.parent == ROOT_QUOTA:
        raise QuotaRefused(f"tree root quota {below.name} can't guarantee for min {quota.name}")
    raise QuotaRefused(f"parent {below.parent} not found {quota.name}")
