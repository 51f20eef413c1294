"""The rules between a quota, its parent and its children, and whether the quota's guarantee is covered above it.

The checks run in the order of the original, and stop at the first that fails; where several objects could be named, the
alphabetically first is, where the original names any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused, QuotaSettings
from koordinator.model.quota_tree.amounts import added, exact, fits, larger
from koordinator.model.quota_tree.quota import Quota, Shape
from koordinator.model.quota_tree.tree import QuotaTree

_KEYS = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "
_SUM = "checkMinQuotaSum all "


def check_guarantee(tree: QuotaTree, quota: Quota) -> None:
    """Raises QuotaRefused when not even the root of the quota's tree guarantees enough.

    Each level needs the sum of its children's needs, and at least its own min; the first level that guarantees that
    much covers everything below it.
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


@dataclass(frozen=True, slots=True)
class Change:
    """A quota before and after a change; ``tree`` still contains the old one."""

    tree: QuotaTree
    new: Quota
    old: Quota | None
    """None for a creation."""

    @property
    def parent(self) -> Quota | None:
        """The parent in the tree; None at the top, and where the parent is unknown."""
        return None if self.at_top else self.tree.get(self.new.parent)

    @property
    def at_top(self) -> bool:
        return self.new.parent == ROOT_QUOTA

    def first_child(self, misfit: Callable[[Shape], bool]) -> Quota | None:
        """The alphabetically first child whose shape does not fit; without a misfit, no child is visited."""
        name = self.new.name
        if not any(misfit(shape) for shape in self.tree.shapes_below(name)):
            return None
        return next(child for child in self.tree.children(name) if misfit(child.shape))


def check_topology(change: Change, has_pods: Callable[[], bool], settings: QuotaSettings) -> None:
    """Raises QuotaRefused. ``has_pods`` returns whether pods are bound to the quota, and is called only where it
    matters."""
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
    if change.tree.child_count(new.name) and not new.is_parent:
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
    if child := change.first_child(lambda shape: shape.tree != new.tree):
        raise QuotaRefused(f"{new.name} tree id is different from child {child.name}, [{new.tree}] vs [{child.tree}]")


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
        _check_keys(new, parent, new, same=same)
    around = new.shape
    if child := change.first_child(lambda shape: not _keys_fit(shape, around, same=same)):
        _check_keys(child, new, new, same=same)


def _keys_fit(child: Shape, parent: Shape, *, same: bool) -> bool:
    return (child.max == parent.max if same else child.max <= parent.max) and child.min <= parent.min


def _check_keys(child: Quota, parent: Quota, new: Quota, *, same: bool) -> None:
    """``new`` is the one of both that is changed; ``same``: both must name the same resources in max."""
    if same and child.max.keys() != parent.max.keys():
        other = parent if child is new else child
        raise QuotaRefused(f"{_KEYS}{other.name}'s max keys are not the same with {new.name}'s")
    for field, below, above in (("max", child.max, parent.max), ("min", child.min, parent.min)):
        if not below.keys() <= above.keys():
            raise QuotaRefused(f"{_KEYS}{child.name}'s {field} keys are not all included in {parent.name}'s")


def _check_min_sums(change: Change) -> None:
    tree, new, parent = change.tree, change.new, change.parent
    if new.allows_force_update or new.is_tree_root:
        return
    least = exact(new.min)
    if parent is not None and not fits(added(tree.min_below(parent.name, but_for=new.name), least), exact(parent.min)):
        raise QuotaRefused(f"{_SUM}brothers' MinQuota > parent MinQuota, parent: {parent.name}")
    if tree.child_count(new.name) and not fits(tree.min_below(new.name), least):
        raise QuotaRefused(f"{_SUM}children's MinQuota > current MinQuota, current: {new.name}")
