"""What must hold between a quota, its parent and its children.

The checks run in the order of the original, and stop at the first that fails; names that several objects could give
are taken in alphabetical order, where the original takes any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.elastic_quota.guarantee import check_guarantee
from koordinator.manager.webhook.elastic_quota.refusal import QuotaRefused
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.model.quota_tree.amounts import exact, fits, total
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

_KEYS = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "
_SUM = "checkMinQuotaSum all "


@dataclass(frozen=True, slots=True)
class Change:
    """A quota as it is to be, and as it was; ``tree`` still has it as it was."""

    tree: QuotaTree
    new: Quota
    old: Quota | None
    """None when it is created."""
    children: Sequence[Quota]

    @classmethod
    def of(cls, tree: QuotaTree, new: Quota, old: Quota | None) -> Change:
        return cls(tree, new, old, tree.children(new.name))

    @property
    def parent(self) -> Quota | None:
        """None at the top, and where the parent is unknown."""
        return None if self.at_top else self.tree.get(self.new.parent)

    @property
    def at_top(self) -> bool:
        return self.new.parent == ROOT_QUOTA


def check_topology(change: Change, has_pods: Callable[[], bool], settings: QuotaSettings) -> None:
    """Raises QuotaRefused. ``has_pods`` tells of pods bound to the quota, and is asked only if that matters."""
    if change.new.name == ROOT_QUOTA:
        return
    _check_is_parent(change, has_pods)
    _check_tree(change)
    if change.at_top and not change.new.is_parent:
        return
    _check_parent(change)
    _check_resources(change, same=settings.same_resources)
    _check_min_sums(change)
    if settings.guarantees:
        check_guarantee(change.tree, change.new)


def _check_is_parent(change: Change, has_pods: Callable[[], bool]) -> None:
    old, new = change.old, change.new
    if old is None or old.is_parent == new.is_parent:
        return
    if change.children and not new.is_parent:
        raise QuotaRefused(f"quota has children, isParent is forbidden to modify as false, quotaName:{old.name}")
    if new.is_parent and has_pods():
        raise QuotaRefused(f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {old.name}")


def _check_tree(change: Change) -> None:
    old, new, parent = change.old, change.new, change.parent
    if old is not None and old.tree != new.tree:
        raise QuotaRefused(f"{new.name} tree id changed [{old.tree}] vs [{new.tree}]")
    if parent is not None and parent.tree != new.tree:
        raise QuotaRefused(
            f"{new.name} tree id is different from parent {parent.name}, [{new.tree}] vs [{parent.tree}]"
        )
    for child in change.children:
        if child.tree != new.tree:
            raise QuotaRefused(
                f"{new.name} tree id is different from child {child.name}, [{new.tree}] vs [{child.tree}]"
            )


def _check_parent(change: Change) -> None:
    new, parent = change.new, change.parent
    if change.at_top:
        return
    if parent is None:
        raise QuotaRefused(f"{new.name} has parentName {new.parent} but not find parentInfo in quotaInfoMap")
    if not parent.is_parent:
        raise QuotaRefused(f"{new.name} has parentName {parent.name} but the parentQuotaInfo's IsParent is false")
    if parent.name == new.name or any(each.name == new.name for each in change.tree.ancestors(parent)):
        raise QuotaRefused(f"{new.name} has parentName {parent.name} but {parent.name} is {new.name} or below it")


def _check_resources(change: Change, *, same: bool) -> None:
    new, parent = change.new, change.parent
    if parent is not None:
        _check_max_keys(new, parent, f"{parent.name}'s max keys are not the same with {new.name}'s" if same else "")
        _check_min_keys(new, parent)
    for child in change.children:
        _check_max_keys(child, new, f"{child.name}'s max keys are not the same with {new.name}'s" if same else "")
        _check_min_keys(child, new)


def _check_max_keys(child: Quota, parent: Quota, not_same: str) -> None:
    """``not_same`` is what to say where both must name the same resources; empty where the parent may name more."""
    if not_same and child.max.keys() != parent.max.keys():
        raise QuotaRefused(f"{_KEYS}{not_same}")
    if not child.max.keys() <= parent.max.keys():
        raise QuotaRefused(f"{_KEYS}{child.name}'s max keys are not all included in {parent.name}'s")


def _check_min_keys(child: Quota, parent: Quota) -> None:
    if not child.min.keys() <= parent.min.keys():
        raise QuotaRefused(f"{_KEYS}{child.name}'s min keys are not all included in {parent.name}'s")


def _check_min_sums(change: Change) -> None:
    new, parent = change.new, change.parent
    if new.allows_force_update or new.is_tree_root:
        return
    if parent is not None:
        brothers = [each.min for each in change.tree.children(parent.name) if each.name != new.name]
        if not fits(total([*brothers, new.min]), exact(parent.min)):
            raise QuotaRefused(f"{_SUM}brothers' MinQuota > parent MinQuota, parent: {parent.name}")
    if change.children and not fits(total(child.min for child in change.children), exact(new.min)):
        raise QuotaRefused(f"{_SUM}children's MinQuota > current MinQuota, current: {new.name}")
