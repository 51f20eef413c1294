"""The state of all quotas: which pod counts against which quota, and the quota trees with their sums.

A pod's quota follows from its label and its namespace alone, so pods are kept in groups that have both in common. When
quotas are created, deleted or claim namespaces, the quota of each group is looked up again, not that of each pod. The
trees are rebuilt once, at the next read, however many quotas have changed; they are told then what pods add, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_NAME, QUOTA_PARENT
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.pod_quota import namespace_quota
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree
from koordinator.scheduler.plugins.elastic_quota.amounts import (
    NOTHING,
    AccountSettings,
    Amounts,
    QuotaSpecification,
    add,
    built_in,
    specification_of,
)
from koordinator.scheduler.plugins.elastic_quota.forest import OUTSIDE, Counts, Forest, QuotaNode

GroupKey = tuple[str, str]
"""The quota name in the pods' label, empty without one, and their namespace."""


@dataclass(slots=True)
class PodKind:
    """What a quota counts of a pod. The pods of a workload share one, so that to count one more of them is to add 1."""

    group: GroupKey
    request: Mapping[str, int]
    priority: int = 0
    is_non_preemptible: bool = False
    pending: int = field(default=0, compare=False)
    """How many more such pods there are than the group counts."""
    pending_used: int = field(default=0, compare=False)
    """The same of those that are assigned."""
    is_pending: bool = field(default=False, compare=False)
    """Whether the accounts know of these."""


class CountedPod(msgspec.Struct):
    """A pod as its quota counts it."""

    uid: str
    key: str
    kind: PodKind
    is_assigned: bool = False
    """It is bound to a node, or assumed on one."""


@dataclass(slots=True, eq=False)
class _Group:
    quota: str = ""
    """The name of the quota that the pods count against; empty for none."""
    pods: dict[str, CountedPod] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    """What the trees count of the pods."""
    priorities: dict[int, int] = field(default_factory=dict)
    """Priority -> how many assigned preemptible pods have it."""

    def add(self, kind: PodKind, total: Counts) -> None:
        """Count what is pending of the kind, also in ``total``, which the trees are to count."""
        _add(total.request, total.non_preemptible_request, kind, kind.pending)
        _add(total.used, total.non_preemptible_used, kind, kind.pending_used)
        if kind.pending_used and not kind.is_non_preemptible:
            count = self.priorities.get(kind.priority, 0) + kind.pending_used
            if count:
                self.priorities[kind.priority] = count
            else:
                del self.priorities[kind.priority]
        kind.pending = kind.pending_used = 0
        kind.is_pending = False


def _add(all_pods: Amounts, non_preemptible: Amounts, kind: PodKind, times: int) -> None:
    if times:
        add(all_pods, kind.request, times)
        if kind.is_non_preemptible:
            add(non_preemptible, kind.request, times)


def group_of(pod: ObjectMeta) -> GroupKey:
    """The pod's group; all pods of a group count against the same quota."""
    return pod.labels.get(QUOTA_NAME, ""), pod.namespace


class Accounts:
    """Counts pods against quotas. Events of quotas, pods and nodes may come in any order; the results do not depend on
    it."""

    def __init__(self, settings: AccountSettings) -> None:
        self.settings = settings
        self.on_rules: Callable[[], None] = lambda: None
        """Called when the result of ``admits_all`` may have changed."""
        self.clear()

    def clear(self) -> None:
        """Forget all quotas, pods and nodes."""
        self._tree = QuotaTree()
        self._objects: dict[str, ElasticQuota] = {}
        self._specifications: dict[str, QuotaSpecification] = {}
        """By ``namespace/name`` of the object."""
        self.pods: dict[str, CountedPod] = {}
        """By uid, to be read only."""
        self._groups: dict[GroupKey, _Group] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._available: Amounts = {}
        self._nodes_with: Counter[str] = Counter()
        """Resource -> how many nodes have it in their allocatable."""
        self._forest: Forest | None = None
        self._changed: list[PodKind] = []
        """The kinds with pending counts."""
        self._members: dict[str, list[_Group]] = {}
        """Quota -> its groups; valid as long as ``_forest`` is set."""

    # Events.

    def set_quota(self, quota: ElasticQuota) -> bool:
        """A quota was added or updated. Return whether this affects any amount."""
        key, specification, shape = quota.metadata.key, specification_of(quota), Quota.of(quota)
        self._objects[key] = quota
        before = self._tree.object(key)
        is_same = before is not None and (before.namespaces, before.created) == (shape.namespaces, shape.created)
        if is_same and self._specifications[key] == specification:
            return False
        self._specifications[key] = specification
        self._tree.put(shape)
        self._forget_trees()
        return True

    def remove_quota(self, key: str) -> None:
        """The quota ``namespace/name`` was deleted. Its pods count against the default quota, or that of their
        namespace."""
        if self._objects.pop(key, None) is not None:
            del self._specifications[key]
            self._tree.discard(key)
            self._forget_trees()

    def set_node(self, name: str, allocatable: Mapping[str, int]) -> bool:
        """A node was added or updated. Return whether its allocatable differs."""
        before = self._allocatable.get(name, {})
        if before == allocatable:
            return False
        self._allocatable[name] = dict(allocatable)
        self._add_allocatable(before, -1)
        self._add_allocatable(allocatable, 1)
        self._refresh_total()
        return True

    def remove_node(self, name: str) -> None:
        self._add_allocatable(self._allocatable.pop(name, {}), -1)
        self._refresh_total()

    def _add_allocatable(self, allocatable: Mapping[str, int], times: int) -> None:
        """Add ``times`` (1 or -1) a node's allocatable. A resource that no node has any more is removed, not kept at 0:
        an unknown resource is not limited."""
        add(self._available, allocatable, times)
        for name in allocatable:
            self._nodes_with[name] += times
            if not self._nodes_with[name]:
                del self._nodes_with[name], self._available[name]

    def set_pod(self, pod: CountedPod) -> None:
        """A pod was added, or what counts of it has changed."""
        known = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        # The new one first, so that a group that it stays in is not dropped in between.
        key = pod.kind.group
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
            if self._forest is not None:
                self._join(key, group)
        group.pods[pod.uid] = pod
        self._count(pod, 1)
        if known is not None:
            self._remove(known)

    def assign(self, pod: CountedPod, is_assigned: bool) -> None:
        """A pod that is counted was put on a node, or taken off."""
        pod.is_assigned, kind = is_assigned, pod.kind
        kind.pending_used += 1 if is_assigned else -1
        if not kind.is_pending:
            kind.is_pending = True
            self._changed.append(kind)

    def remove_pod(self, uid: str) -> CountedPod | None:
        known = self.pods.pop(uid, None)
        if known is not None:
            self._remove(known)
        return known

    def _remove(self, pod: CountedPod) -> None:
        key = pod.kind.group
        group = self._groups[key]
        if group.pods[pod.uid] is pod:
            del group.pods[pod.uid]
        self._count(pod, -1)
        if not group.pods:
            self._drop(key, group)

    def _count(self, pod: CountedPod, times: int) -> None:
        """Count the pod (``times`` 1), or count it no more (-1)."""
        kind = pod.kind
        kind.pending += times
        if pod.is_assigned:
            kind.pending_used += times
        if not kind.is_pending:
            kind.is_pending = True
            self._changed.append(kind)

    def _settle(self) -> None:
        """Count what is pending, and pass it on to the trees, if there are any."""
        changes: dict[_Group, Counts] = {}
        for kind in self._changed:
            group = self._groups[kind.group]
            group.add(kind, changes.setdefault(group, Counts()))
        self._changed.clear()
        for group, change in changes.items():
            group.counts.add(change)
            if self._forest is not None and group.quota:
                self._forest.count(group.quota, change)

    def _drop(self, key: GroupKey, group: _Group) -> None:
        """Remove an empty group, so that deleted namespaces leave none behind."""
        self._settle()
        del self._groups[key]
        if self._forest is not None and group.quota:
            self._members[group.quota].remove(group)

    def _refresh_total(self) -> None:
        if self._forest is not None:
            self._forest.available = dict(self._available)

    # The trees.

    @property
    def forest(self) -> Forest:
        """The current trees; rebuilt if quotas have changed since the last read."""
        if self._changed:
            self._settle()
        if self._forest is None:
            self._forest = self._built()
            self.on_rules()
        return self._forest

    def _forget_trees(self) -> None:
        self._forest = None
        self.on_rules()

    def _built(self) -> Forest:
        settings = self.settings
        specifications = {
            DEFAULT_QUOTA: built_in(DEFAULT_QUOTA, settings.default_max),
            SYSTEM_QUOTA: built_in(SYSTEM_QUOTA, settings.system_max),
        }
        for quota in self._tree:
            specifications[quota.name] = self._specifications[quota.key]
        own: dict[str, Counts] = {}
        self._members = {}
        for key, group in self._groups.items():
            group.quota = self._quota_of(key)
            if group.quota:
                self._members.setdefault(group.quota, []).append(group)
                own.setdefault(group.quota, Counts()).add(group.counts)
        forest = Forest(specifications.values(), own, settings)
        forest.available = dict(self._available)
        return forest

    def _join(self, key: GroupKey, group: _Group) -> None:
        group.quota = self._quota_of(key)
        if group.quota:
            self._members.setdefault(group.quota, []).append(group)

    def _quota_of(self, key: GroupKey) -> str:
        """The name of the group's quota: that of the label, else that of the namespace, else the default quota; empty
        for none."""
        named, namespace = key
        if not self.settings.has_default:
            return named if self._is_known(named) else ""
        name = named or namespace_quota(namespace, self._tree)
        return name if self._is_known(name) else DEFAULT_QUOTA

    def _is_known(self, name: str) -> bool:
        return name != ROOT_QUOTA and (name in OUTSIDE or self._tree.get(name) is not None)

    # Reads.

    def node_of(self, pod: ObjectMeta) -> QuotaNode | None:
        """The quota of the pod, whether the pod is counted yet or not; None for none."""
        forest, key = self.forest, group_of(pod)
        group = self._groups.get(key)
        name = group.quota if group is not None else self._quota_of(key)
        return forest.nodes[name] if name else None

    def admits_all(self, pod: ObjectMeta) -> bool:
        """Whether the pod's quota is known to have no limit, whatever is counted: so it is in a cluster without
        quotas."""
        forest, group = self._forest, self._groups.get(group_of(pod))
        return forest is not None and group is not None and group.quota in forest.boundless

    def pods_of(self, quota: str) -> Iterator[CountedPod]:
        """The pods that count against the quota itself, without those of its descendants."""
        _ = self.forest
        for group in self._members.get(quota, ()):
            yield from group.pods.values()

    def lowest_priority(self, quota: str) -> int | None:
        """The lowest priority of the quota's assigned preemptible pods; None if it has none."""
        _ = self.forest
        groups = self._members.get(quota, ())
        return min((min(group.priorities) for group in groups if group.priorities), default=None)

    def objects(self) -> Iterable[ElasticQuota]:
        """All quota objects, also those that have no effect because another one has their name."""
        return self._objects.values()

    def object(self, name: str) -> ElasticQuota | None:
        """The quota object in effect for the name; None if there is none."""
        quota = self._tree.get(name)
        return self._objects[quota.key] if quota is not None else None

    def faults(self, quota: ElasticQuota) -> tuple[str, ...]:
        """The errors in the object, each with the field, its value and the value used instead."""
        specification, counting = self._specifications[quota.metadata.key], self.object(quota.metadata.name)
        if counting is not None and counting.metadata.key != quota.metadata.key:
            return (f"metadata.name: the older quota {counting.metadata.key} has this name, too, and counts instead",)
        node = self.forest.nodes.get(quota.metadata.name)
        if node is None or not node.detached:
            return specification.faults
        label = f"metadata.labels[{QUOTA_PARENT}]: {specification.parent!r}: {node.detached}"
        return (*specification.faults, f"{label}: no pod of this quota is admitted")

    def limit(self, node: QuotaNode, requested: Mapping[str, int] = NOTHING) -> Amounts:
        """What the quota may use now. ``requested``: the request of a pod that is not counted yet, to be included."""
        if not requested:
            return self.forest.limit(node)
        change = Counts(request=dict(requested))
        self.forest.count(node.name, change)
        try:
            return self.forest.limit(node)
        finally:
            self.forest.count(node.name, change, -1)
