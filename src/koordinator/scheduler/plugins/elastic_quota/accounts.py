"""All that quotas know: which pod counts against which quota, and the trees with their sums.

A pod's quota follows from its label and its namespace alone, so pods are kept in groups that have both in common. When
quotas come, go or claim namespaces, it is the groups that find their quota anew, not each pod; the trees are built anew
once, when somebody asks next, however many quotas have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.pod_quota import namespace_quota
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree
from koordinator.scheduler.plugins.elastic_quota.amounts import NOTHING, Amounts, add
from koordinator.scheduler.plugins.elastic_quota.forest import OUTSIDE, Counts, Forest, QuotaNode
from koordinator.scheduler.plugins.elastic_quota.specification import (
    QuotaSpecification,
    built_in,
    specification_of,
)

GroupKey = tuple[str, str]
"""The quota that pods name, and their namespace."""


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """What the numbers follow from beside quotas, pods and nodes."""

    default_max: Mapping[str, int] = field(default_factory=dict)
    system_max: Mapping[str, int] = field(default_factory=dict)
    scales_min: bool = True
    guarantees_usage: bool = False
    by_tree: bool = False
    """Every tree id has a tree of its own (gate MultiQuotaTree)."""
    has_default: bool = True
    """A pod whose quota is not known counts against the default quota (not with gate DisableDefaultQuota)."""


@dataclass(slots=True)
class CountedPod:
    """A pod as its quota counts it."""

    uid: str
    key: str
    group: GroupKey
    request: Mapping[str, int]
    priority: int = 0
    is_non_preemptible: bool = False
    is_assigned: bool = False
    """It has a node, or one was chosen for it."""

    @property
    def counts(self) -> Counts:
        request = dict(self.request)
        used = request if self.is_assigned else {}
        if self.is_non_preemptible:
            return Counts(request, dict(used), dict(request), dict(used))
        return Counts(request, dict(used), {}, {})


@dataclass(slots=True, eq=False)
class _Group:
    quota: str = ""
    """The quota that the pods count against; empty for none."""
    pods: dict[str, CountedPod] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the assigned pods that may be preempted."""

    def rank(self, pod: CountedPod, times: int) -> None:
        """Count the pod's priority."""
        if pod.is_assigned and not pod.is_non_preemptible:
            self.priorities[pod.priority] += times
            if not self.priorities[pod.priority]:
                del self.priorities[pod.priority]


def group_of(pod: ObjectMeta) -> GroupKey:
    """Pods with equal ones count against the same quota."""
    return pod.labels.get(QUOTA_NAME, ""), pod.namespace


class Accounts:
    """Told of quotas, pods and nodes in any order; answers with the numbers that follow from them."""

    def __init__(self, settings: AccountSettings) -> None:
        self.settings = settings
        self._tree = QuotaTree()
        self._objects: dict[str, ElasticQuota] = {}
        self._specifications: dict[str, QuotaSpecification] = {}
        """By ``namespace/name`` of the object."""
        self._pods: dict[str, CountedPod] = {}
        self._groups: dict[GroupKey, _Group] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._available: Amounts = {}
        self._forest: Forest | None = None
        self._members: dict[str, list[_Group]] = {}
        """The groups of each quota, valid as long as the forest."""

    # Events.

    def set_quota(self, quota: ElasticQuota) -> bool:
        """A quota is new or has changed; whether in anything that counts."""
        key, specification, known = quota.metadata.key, specification_of(quota), self._objects.get(quota.metadata.key)
        shape = Quota.of(quota)
        before = self._tree.object(key)
        unchanged = (
            known is not None
            and self._specifications[key] == specification
            and before is not None
            and (before.namespaces, before.created) == (shape.namespaces, shape.created)
        )
        self._objects[key] = quota
        if unchanged:
            return False
        self._specifications[key] = specification
        self._tree.put(shape)
        self._forest = None
        return True

    def remove_quota(self, key: str) -> None:
        """The object of this ``namespace/name`` is gone; its pods count where they would without it."""
        if self._objects.pop(key, None) is not None:
            del self._specifications[key]
            self._tree.discard(key)
            self._forest = None

    def set_node(self, name: str, allocatable: Mapping[str, int]) -> bool:
        """A node is new or has changed; whether it has more or less than before."""
        before = self._allocatable.get(name, {})
        if before == allocatable:
            return False
        self._allocatable[name] = dict(allocatable)
        add(self._available, before, -1)
        add(self._available, allocatable)
        self._forget_total()
        return True

    def remove_node(self, name: str) -> None:
        add(self._available, self._allocatable.pop(name, {}), -1)
        self._forget_total()

    def set_pod(self, pod: CountedPod) -> None:
        """A pod is new, or counts otherwise than before."""
        known = self._pods.get(pod.uid)
        if known == pod:
            return
        self._pods[pod.uid] = pod
        if known is not None and known.group == pod.group:
            self._recount(self._groups[pod.group], known, pod)
            return
        if known is not None:
            self._count(known, -1)
        self._count(pod, 1)

    def remove_pod(self, uid: str) -> CountedPod | None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._count(known, -1)
        return known

    def _count(self, pod: CountedPod, times: int) -> None:
        group = self._groups.get(pod.group)
        if group is None:
            group = self._groups[pod.group] = _Group()
            if self._forest is not None:
                self._join(pod.group, group)
        if times > 0:
            group.pods[pod.uid] = pod
        else:
            group.pods.pop(pod.uid)
        group.rank(pod, times)
        self._add(group, pod.counts, times)
        if not group.pods:
            self._drop(pod.group, group)

    def _recount(self, group: _Group, before: CountedPod, after: CountedPod) -> None:
        """The same pod; mostly it has only got its node, so that nobody's share changes."""
        change = after.counts
        change.add(before.counts, -1)
        group.pods[after.uid] = after
        group.rank(before, -1)
        group.rank(after, 1)
        self._add(group, change, 1)

    def _add(self, group: _Group, counts: Counts, times: int) -> None:
        group.counts.add(counts, times)
        if self._forest is not None and group.quota:
            self._forest.count(group.quota, counts, times)

    def _drop(self, key: GroupKey, group: _Group) -> None:
        """Nobody is in it any more: namespaces come and go."""
        del self._groups[key]
        if self._forest is not None and group.quota:
            self._members[group.quota].remove(group)

    def _forget_total(self) -> None:
        if self._forest is not None:
            self._forest.available = dict(self._available)

    # The trees.

    @property
    def forest(self) -> Forest:
        """Current."""
        if self._forest is None:
            self._forest = self._grown()
        return self._forest

    def _grown(self) -> Forest:
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
        forest = Forest(
            specifications.values(),
            own,
            scales_min=settings.scales_min,
            guarantees_usage=settings.guarantees_usage,
            by_tree=settings.by_tree,
        )
        forest.available = dict(self._available)
        return forest

    def _join(self, key: GroupKey, group: _Group) -> None:
        group.quota = self._quota_of(key)
        if group.quota:
            self._members.setdefault(group.quota, []).append(group)

    def _quota_of(self, key: GroupKey) -> str:
        """The quota of pods that name one, or else of their namespace; an unknown one counts as the default."""
        named, namespace = key
        if not self.settings.has_default:
            return named if self._is_known(named) else ""
        name = named or namespace_quota(namespace, self._tree)
        return name if self._is_known(name) else DEFAULT_QUOTA

    def _is_known(self, name: str) -> bool:
        return name != ROOT_QUOTA and (name in OUTSIDE or self._tree.get(name) is not None)

    # Questions.

    def node_of(self, pod: ObjectMeta) -> QuotaNode | None:
        """The quota that the pod counts against, whether it is counted yet or not; None for none."""
        forest, key = self.forest, group_of(pod)
        group = self._groups.get(key)
        name = group.quota if group is not None else self._quota_of(key)
        return forest.nodes[name] if name else None

    def pod(self, uid: str) -> CountedPod | None:
        return self._pods.get(uid)

    def pods_of(self, quota: str) -> Iterator[CountedPod]:
        """The pods that count against the quota itself."""
        _ = self.forest
        for group in self._members.get(quota, ()):
            yield from group.pods.values()

    def lowest_priority(self, quota: str) -> int | None:
        """The lowest priority of the quota's assigned pods that may be preempted."""
        _ = self.forest
        groups = self._members.get(quota, ())
        return min((min(group.priorities) for group in groups if group.priorities), default=None)

    def objects(self) -> Iterable[ElasticQuota]:
        """All quotas, also those that do not count because another one has their name."""
        return self._objects.values()

    def object(self, name: str) -> ElasticQuota | None:
        """The object that counts for the name."""
        quota = self._tree.get(name)
        return self._objects[quota.key] if quota is not None else None

    def limit(self, node: QuotaNode, asked: Mapping[str, int] = NOTHING) -> Amounts:
        """What the quota may use at present. With ``asked``, as if a pod that is not counted requested that, too."""
        if not asked:
            return self.forest.limit(node)
        change = Counts(request=dict(asked))
        self.forest.count(node.name, change)
        try:
            return self.forest.limit(node)
        finally:
            self.forest.count(node.name, change, -1)
