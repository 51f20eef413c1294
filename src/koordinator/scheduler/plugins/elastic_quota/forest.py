"""The quota trees with what each quota requests, uses and may use: sums go upwards, shares downwards.

Sums are updated as pods are added and removed. Shares are computed when they are read, and only for parents below which
something has changed since. Whatever the order of events was, the amounts equal those of a forest that is rebuilt from
the same quotas and pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from koordinator.scheduler.plugins.elastic_quota.amounts import (
    NOTHING,
    AccountSettings,
    Amounts,
    Claim,
    QuotaSpecification,
    add,
    larger,
    limited,
    masked,
    scaled_min,
    share,
    summed,
    without_zeros,
)

OUTSIDE: Final = (DEFAULT_QUOTA, SYSTEM_QUOTA)
"""The quotas that do not take part in sharing: what they use is subtracted from what the others share."""

_BOUNDLESS: Final = 1 << 60
"""No cluster has so much of a resource; the original's own max of both is 1.6 times that, MaxInt64 / 5."""


@dataclass(slots=True, eq=False)
class Counts:
    """The summed requests of pods by resource. ``used`` sums assigned pods only."""

    request: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    non_preemptible_request: Amounts = field(default_factory=dict)
    non_preemptible_used: Amounts = field(default_factory=dict)

    def add(self, other: Counts, times: int = 1) -> None:
        """In place. Most pods have no part in some of the sums."""
        if other.request:
            add(self.request, other.request, times)
        if other.used:
            add(self.used, other.used, times)
        if other.non_preemptible_request:
            add(self.non_preemptible_request, other.non_preemptible_request, times)
        if other.non_preemptible_used:
            add(self.non_preemptible_used, other.non_preemptible_used, times)

    def masked(self, names: Mapping[str, int]) -> Counts:
        """Of these resources alone."""
        return Counts(
            masked(self.request, names) if self.request else {},
            masked(self.used, names) if self.used else {},
            masked(self.non_preemptible_request, names) if self.non_preemptible_request else {},
            masked(self.non_preemptible_used, names) if self.non_preemptible_used else {},
        )


@dataclass(slots=True, eq=False)
class QuotaNode:
    """One quota in its tree. ``own`` counts its own pods, ``total`` also those of its descendants."""

    specification: QuotaSpecification
    parent: QuotaNode | None = None
    children: list[QuotaNode] = field(default_factory=list)
    """The children that take part in sharing, in the order of their names."""
    own: Counts = field(default_factory=Counts)
    total: Counts = field(default_factory=Counts)
    child_request: Amounts = field(default_factory=dict)
    """The request of its pods and its children, before it is raised to the min of a quota that lends nothing."""
    keys: frozenset[str] = frozenset()
    """The resources that its children share."""
    detached: str = ""
    """Why the quota belongs to no tree; empty if it does."""
    version: int = 0
    """Increases whenever the shares of its children may have changed."""
    _shares: tuple[int, Mapping[str, int], dict[str, Amounts]] | None = None

    @property
    def name(self) -> str:
        return self.specification.name

    @property
    def is_outside(self) -> bool:
        return self.name in OUTSIDE

    @property
    def is_boundless(self) -> bool:
        """Whether it is the default or the system quota, and no cluster has as much as it may use."""
        most, least = self.specification.max.values(), self.specification.min
        return self.is_outside and not self.detached and not least and min(most, default=_BOUNDLESS) >= _BOUNDLESS

    @property
    def request(self) -> Amounts:
        """The request by which shares are computed; that of a quota that lends nothing is at least its min."""
        return self.total.request

    @property
    def limited_request(self) -> Amounts:
        """The request, limited to the quota's max."""
        return limited(self.total.request, self.specification.max)

    def ancestors(self) -> Iterator[QuotaNode]:
        """The ancestors from its parent up to the root, the root included."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def touch(self) -> None:
        """Invalidate the shares of its children."""
        self.version += 1


class Forest:
    """All quota trees. ``own``: quota name -> counts of its own pods, including resources that its max does not
    name."""

    def __init__(
        self,
        specifications: Iterable[QuotaSpecification],
        own: Mapping[str, Counts],
        settings: AccountSettings,
    ) -> None:
        self._settings = settings
        self.nodes: dict[str, QuotaNode] = {}
        """Every quota but the roots, by name."""
        self.roots: dict[str, QuotaNode] = {}
        """The roots by tree id; "" is the default tree."""
        self.available: Mapping[str, int] = NOTHING
        """The summed allocatable of all nodes."""
        self._guaranteed: dict[str, Amounts] = {}
        self._allocated: dict[str, Amounts] = {}
        self._is_guarantee_stale = True
        for specification in sorted(specifications, key=lambda each: each.name):
            if specification.name != ROOT_QUOTA:
                self.nodes[specification.name] = QuotaNode(specification)
        self._root("")
        for node in self.nodes.values():
            self._link(node)
        self._set_keys()
        self.boundless = frozenset(name for name, node in self.nodes.items() if node.is_boundless)
        """The quotas that admit every pod."""
        for name, counts in own.items():
            node = self.nodes[name]
            node.own.add(counts.masked(node.specification.max))
        for root in self.roots.values():
            self._sum_up(root, [node for node in self.nodes.values() if node.parent is root and node.is_outside])
        for node in self.nodes.values():
            if node.detached:
                self._sum_up(node)

    # Structure.

    def tree_of(self, specification: QuotaSpecification) -> str:
        """The id of the tree that the quota belongs to."""
        return specification.tree if self._settings.by_tree else ""

    def _root(self, tree: str) -> QuotaNode:
        root = self.roots.get(tree)
        if root is None:
            root = self.roots[tree] = QuotaNode(QuotaSpecification(ROOT_QUOTA, "", tree, is_parent=True, lends=False))
        return root

    def _link(self, node: QuotaNode) -> None:
        node.detached = self._why_detached(node)
        if node.detached:
            return
        specification = node.specification
        if specification.parent == ROOT_QUOTA:
            node.parent = self._root(self.tree_of(specification))
        else:
            node.parent = self.nodes[specification.parent]
        if not node.is_outside:
            node.parent.children.append(node)

    def _why_detached(self, node: QuotaNode) -> str:
        seen = [node.name]
        while (parent := self.nodes[seen[-1]].specification.parent) != ROOT_QUOTA:
            if parent in seen:
                return f"its parents form a cycle: {' -> '.join([*seen, parent])}"
            if parent not in self.nodes:
                return f"there is no quota {parent}, the parent of {seen[-1]}"
            seen.append(parent)
        return ""

    def _set_keys(self) -> None:
        for root in self.roots.values():
            root.keys = frozenset().union(*(node.specification.max for node in self._below(root)))
        for node in self.nodes.values():
            node.keys = frozenset(node.specification.max)

    def _below(self, node: QuotaNode) -> Iterator[QuotaNode]:
        for child in node.children:
            yield child
            yield from self._below(child)

    # Sums.

    def _sum_up(self, node: QuotaNode, outside: Iterable[QuotaNode] = ()) -> None:
        children = (*node.children, *outside)
        for child in children:
            self._sum_up(child)
        total = Counts()
        total.add(node.own)
        for child in children:
            add(total.request, child.limited_request)
            add(total.used, child.total.used)
            add(total.non_preemptible_request, child.total.non_preemptible_request)
            add(total.non_preemptible_used, child.total.non_preemptible_used)
        node.total = total
        if node.parent is not None:
            node.child_request, total.request = total.request, self._requested(node, total.request)
        node.touch()

    def _requested(self, node: QuotaNode, child_request: Mapping[str, int]) -> Amounts:
        return dict(child_request) if self.lends(node) else larger(child_request, node.specification.min)

    def lends(self, node: QuotaNode) -> bool:
        """Whether other quotas may use the part of the quota's min that it does not request."""
        return node.specification.lends and not self._settings.guarantees_usage

    def count(self, name: str, change: Counts, times: int = 1) -> None:
        """Add ``times`` (1 or -1) ``change`` to the counts of the quota and of its ancestors."""
        node = self.nodes[name]
        change = change.masked(node.specification.max)
        node.own.add(change, times)
        if change.used:
            self._is_guarantee_stale = True
        # What ancestors have of the request depends on the limits in between.
        request: Mapping[str, int] = change.request
        change.request = {}
        if times != 1:
            request = {name: times * amount for name, amount in request.items()}
        at: QuotaNode | None = node
        while at is not None:
            at.total.add(change, times)
            if request:
                request = self._pass_up(at, request)
            at = at.parent

    def _pass_up(self, node: QuotaNode, change: Mapping[str, int]) -> Mapping[str, int]:
        """Add ``change`` to the node's request. Return by how much its limited request, which the parent sums,
        changed, without zeros."""
        request = node.total.request
        if node.parent is None:
            add(request, change)
            return change
        add(node.child_request, change)
        limit, least = node.specification.max, NOTHING if self.lends(node) else node.specification.min
        seen: Amounts = {}
        for name in change:
            before, after = request.get(name, 0), node.child_request[name]
            if name in least and least[name] > after:
                after = least[name]
            request[name] = after
            if name in limit:
                most = limit[name]
                before, after = before if before < most else most, after if after < most else most
            if after != before:
                seen[name] = after - before
        if seen:
            node.parent.touch()
        return seen

    # Shares.

    def total_of(self, tree: str) -> Amounts:
        """What the quotas of a tree share: for the default tree the cluster's allocatable minus the totals of other
        trees, and minus what the default and the system quota use."""
        if tree:
            of_tree = [each for each in self._tree_roots() if self.tree_of(each) == tree]
            return dict(of_tree[0].tree_total or {}) if of_tree else {}
        total = dict(self.available)
        if self._settings.by_tree:
            for each in self._tree_roots():
                if each.tree and each.takes_from_default:
                    add(total, without_zeros(each.tree_total or {}), -1)
        for name in OUTSIDE:
            if name in self.nodes:
                add(total, without_zeros(self.nodes[name].total.used), -1)
        return total

    def _tree_roots(self) -> Iterator[QuotaSpecification]:
        specifications = (node.specification for node in self.nodes.values())
        return (each for each in specifications if each.tree_total is not None)

    def runtime(self, node: QuotaNode) -> Mapping[str, int]:
        """The runtime of the quota: what it and its descendants may use now, of the resources that its parent shares;
        for the default and the system quota their max; empty for a quota that belongs to no tree."""
        if node.parent is None:
            return NOTHING if node.detached else self.total_of(node.specification.tree)
        if node.is_outside:
            return node.specification.max
        return self._shares(node.parent)[node.name]

    def limit(self, node: QuotaNode) -> Amounts:
        """``runtime``, and the max of resources that the parent does not share."""
        return {**node.specification.max, **self.runtime(node)}

    def floor(self, node: QuotaNode) -> Amounts:
        """The current min: the full min, or scaled down if the parent has less than its children's mins together."""
        parent = node.parent
        if parent is None or not self._settings.scales_min:
            return dict(node.specification.min)
        together = summed(child.specification.min for child in parent.children)
        return scaled_min(node.specification.min, together, self.runtime(parent))

    def _shares(self, parent: QuotaNode) -> dict[str, Amounts]:
        available = self.runtime(parent)
        if self._settings.guarantees_usage:
            self._refresh_guarantees()
        known = parent._shares
        if known is not None and known[0] == parent.version and known[1] == available:
            return known[2]
        shares = self._share(parent, available)
        parent._shares = parent.version, available, shares
        return shares

    def _share(self, parent: QuotaNode, available: Mapping[str, int]) -> dict[str, Amounts]:
        together = summed(child.specification.min for child in parent.children)
        wanted = []
        for child in parent.children:
            own = child.specification.min
            floor = scaled_min(own, together, available) if self._settings.scales_min else own
            wanted.append((child, child.limited_request, floor, self._guaranteed.get(child.name, NOTHING)))
        shares: dict[str, Amounts] = {child.name: {} for child in parent.children}
        for key in sorted(parent.keys):
            claims = [
                Claim(
                    child.name,
                    request.get(key, 0),
                    max(floor.get(key, 0), guaranteed.get(key, 0)),
                    child.specification.weight.get(key, 0),
                    self.lends(child),
                )
                for child, request, floor, guaranteed in wanted
            ]
            for name, amount in share(available.get(key, 0), claims).items():
                shares[name][key] = amount
        return shares

    # What is guaranteed (gate ElasticQuotaGuaranteeUsage).

    def guaranteed(self, node: QuotaNode) -> Amounts:
        """The larger of the quota's min and what is allocated; empty without the gate."""
        self._refresh_guarantees()
        return self._guaranteed.get(node.name, {})

    def allocated(self, node: QuotaNode) -> Amounts:
        """What its own pods use plus what its children are guaranteed; empty without the gate."""
        self._refresh_guarantees()
        return self._allocated.get(node.name, {})

    def _refresh_guarantees(self) -> None:
        if not self._settings.guarantees_usage or not self._is_guarantee_stale:
            return
        self._is_guarantee_stale = False
        for root in self.roots.values():
            for child in root.children:
                self._guarantee(child)
            root.touch()

    def _guarantee(self, node: QuotaNode) -> Amounts:
        allocated = dict(node.own.used)
        for child in node.children:
            add(allocated, self._guarantee(child))
        node.touch()
        self._allocated[node.name] = allocated
        self._guaranteed[node.name] = guaranteed = larger(allocated, node.specification.min)
        return guaranteed
