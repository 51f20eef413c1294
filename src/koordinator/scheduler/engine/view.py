"""The cluster that decisions read: as columns, as pods on rows, and as objects.

Pods on nodes are also grouped by namespace and labels, so that a selector is matched once against each distinct set of
labels. Replicas have equal labels: thousands of pods are a handful of groups. A group has the number of its pods by
row, a row has the number of pods by group, and an index from label to groups finds the candidates of a selector without
matching the others.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.reservation import Reservation
from koordinator.base.groups import Groups
from koordinator.scheduler.engine.allocations import AllocationLedger
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.journal import Journal
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.waiting_pods import WaitingPods

T = TypeVar("T", bound=Object)
Shared = TypeVar("Shared")
_Key = tuple[str, bool, frozenset[tuple[str, str]]]
_REMEMBERED: Final = 4096
_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class LabelGroup:
    """Pods of one namespace with equal labels. ``number`` is never reused for another group."""

    number: int
    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    """Being deleted: topology spread does not count them, pod affinity does."""
    rows: dict[int, int] = field(default_factory=dict)
    """Row -> how many of the group's pods are there."""


class LabelGroups:
    """Kept current by ClusterState, which writes the counts: ``LabelGroup.rows``, and the same in ``on_rows``."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, LabelGroup] = {}
        self._by_number: dict[int, LabelGroup] = {}
        self._by_namespace = Groups[str, int, LabelGroup]()
        self._by_label = Groups[tuple[str, str, str], int, LabelGroup]()
        self.on_rows: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Row -> group number -> pods of it there."""
        self._next = 0
        self.memo = f"labels/{next(_numbers)}"
        """The key under which a pod's memo has its group."""

    def group(self, number: int) -> LabelGroup:
        return self._by_number[number]

    def on_row(self, row: int) -> Mapping[int, int]:
        """Group number -> pods of it on ``row``."""
        return self.on_rows.get(row, {})

    def candidates(self, namespaces: Collection[str] | None, required: Mapping[str, str]) -> Iterable[LabelGroup]:
        """Groups in ``namespaces`` (None: in all) that have the labels ``required`` with these values. The caller
        checks the other requirements of its selector."""
        found: list[LabelGroup] = []
        for namespace in self._by_namespace if namespaces is None else namespaces:
            pools = [self._by_label.of((namespace, key, value)) for key, value in required.items()]
            smallest = min(pools, key=len) if pools else self._by_namespace.of(namespace)
            found.extend(
                group
                for group in smallest.values()
                if all(group.labels.get(key) == value for key, value in required.items())
            )
        return found

    def group_of(self, metadata: ObjectMeta, *, terminating: bool) -> LabelGroup:
        """The group of a pod, which is about to get one there, or to lose one."""
        key = metadata.namespace, terminating, frozenset(metadata.labels.items())
        group = self._by_key.get(key)
        if group is None:
            self._next += 1
            group = LabelGroup(self._next, metadata.namespace, metadata.labels, terminating)
            self._by_key[key] = self._by_number[group.number] = group
            self._by_namespace.put(group.namespace, group.number, group)
            for label in metadata.labels.items():
                self._by_label.put((group.namespace, *label), group.number, group)
        return group

    def drop(self, group: LabelGroup) -> None:
        """Forget the group, which has no pods any more."""
        del self._by_key[(group.namespace, group.terminating, frozenset(group.labels.items()))]
        del self._by_number[group.number]
        self._by_namespace.take(group.namespace, group.number)
        for label in group.labels.items():
            self._by_label.take((group.namespace, *label), group.number)


class MatchingPods:
    """The sum by row of what pods count, ``amount_of`` their group: 1 if it matches a selector, or the weights of the
    terms that match it. ``candidates`` returns the groups that may count anything, each once."""

    def __init__(
        self,
        labels: LabelGroups,
        candidates: Callable[[], Iterable[LabelGroup]],
        amount_of: Callable[[LabelGroup], int],
    ) -> None:
        self._labels = labels
        self._candidates = candidates
        self._amount_of = amount_of
        self._known: dict[int, int] = {}
        """Number of a group -> what each of its pods counts."""

    def on_row(self, row: int) -> int:
        """The amount of ``row``."""
        total, known = 0, self._known
        for number, pods in self._labels.on_row(row).items():
            amount = known.get(number)
            total += (self._of_group(number) if amount is None else amount) * pods
        return total

    def everywhere(self) -> dict[int, int]:
        """Row -> amount, of all rows with pods that count."""
        found: dict[int, int] = {}
        for group in self._candidates():
            amount = self._amount_of(group)
            if amount == 1 and not found:
                found.update(group.rows)
            elif amount:
                for row, pods in group.rows.items():
                    found[row] = found.get(row, 0) + amount * pods
        return found

    def _of_group(self, number: int) -> int:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        amount = self._known[number] = self._amount_of(self._labels.group(number))
        return amount


class ReservationInfo(Protocol):
    """A Reservation, or a pod in operating mode that represents one, as other plugins see it."""

    @property
    def uid(self) -> str:
        """Also the uid of its reserve pod, by which ``view.allocations`` has what it holds."""

    @property
    def name(self) -> str: ...

    @property
    def node_name(self) -> str:
        """Empty while it is on no node."""

    @property
    def reservation(self) -> Reservation:
        """The Reservation; one derived from the pod for a pod in operating mode."""

    @property
    def users(self) -> Mapping[str, PodInfo]:
        """The pods that take from it, by uid."""


def _no_reservations(row: int) -> Sequence[ReservationInfo]:
    return ()


class Nominations:
    """Pods that are nominated to a node: victims are leaving it, and no pod of lower priority may take the capacity. A
    pending pod has at most one nominated node."""

    def __init__(self) -> None:
        self.is_empty = True
        self.on_affinity: Callable[[], None] = lambda: None
        """Called when ``has_affinity`` has changed."""
        self._node_of: dict[str, str] = {}
        self._on_node = Groups[str, str, PodInfo]()
        self._with_affinity: dict[str, PodInfo] = {}
        self._foreign: set[str] = set()

    def node_of(self, uid: str) -> str:
        """The node that the pod is nominated to; empty for none."""
        return self._node_of.get(uid, "")

    def on(self, node_name: str) -> Collection[PodInfo]:
        """The pods nominated to the node, in the order of their nomination."""
        return self._on_node.of(node_name).values()

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes that some pod is nominated to."""
        return self._on_node

    @property
    def has_affinity(self) -> bool:
        """Whether any of them has affinity."""
        return bool(self._with_affinity)

    @property
    def with_affinity(self) -> Iterable[PodInfo]:
        """Those with affinity, which may restrict where other pods are."""
        return self._with_affinity.values()

    def is_foreign(self, uid: str) -> bool:
        """Whether another scheduler handles the pod."""
        return uid in self._foreign

    def set(self, pod: PodInfo, node_name: str, *, foreign: bool = False) -> None:
        """Nominate the pod, or with an empty name clear its nomination."""
        if self._node_of.get(pod.uid) != node_name:
            self.remove(pod.uid)
        if node_name:
            self._node_of[pod.uid], self.is_empty = node_name, False
            self._on_node.put(node_name, pod.uid, pod)
            if pod.pod.spec.affinity is not None:
                is_first = not self._with_affinity
                self._with_affinity[pod.uid] = pod
                if is_first:
                    self.on_affinity()
            if foreign:
                self._foreign.add(pod.uid)

    def remove(self, uid: str) -> PodInfo | None:
        """Remove a pod that is bound or gone. Returns it if it was nominated."""
        self._foreign.discard(uid)
        if self._with_affinity.pop(uid, None) is not None and not self._with_affinity:
            self.on_affinity()
        node_name = self._node_of.pop(uid, "")
        if not node_name:
            return None
        self.is_empty = not self._node_of
        return self._on_node.take(node_name, uid)


class PendingEvictions:
    """Evictions that the view does not show yet, by uid of the pod."""

    def __init__(self) -> None:
        self._expected: dict[str, list[Callable[[], None]]] = {}

    def expect(self, uid: str, on_seen: Callable[[], None]) -> None:
        """Call ``on_seen`` once when the view shows that the pod is terminating or gone."""
        self._expected.setdefault(uid, []).append(on_seen)

    def seen(self, uid: str) -> None:
        """The view shows that the pod is terminating or gone; also called when the view is never going to show it."""
        for on_seen in self._expected.pop(uid, ()):
            on_seen()


@dataclass(slots=True)
class ClusterView:
    """The state that plugins read. The engine owns it; plugins may keep columns of their own beside it (see
    EventHandler)."""

    columns: NodeColumns
    engine_filters: Sequence[Any] = ()
    """FilterPlugins that come before those of every profile, whatever it lists; none while they reject no node. This
    module is below that of plugins. Another sequence, even of the same, has all classes of pods planned anew."""
    pods_on: dict[int, dict[str, PodInfo]] = field(default_factory=dict)
    """Row -> uid -> pod, assumed pods included."""
    labels: LabelGroups = field(default_factory=LabelGroups)
    """The same pods, by namespace and labels."""
    nominations: Nominations = field(default_factory=Nominations)
    """Pending pods that are nominated to a node."""
    pending_evictions: PendingEvictions = field(default_factory=PendingEvictions)
    """Pods that are being evicted."""
    waiting: WaitingPods = field(default_factory=WaitingPods)
    """Pods that are assumed on a node and wait for Permit plugins."""
    allocations: AllocationLedger = field(default_factory=AllocationLedger)
    """The allocations of pods on nodes, by plugin."""
    reservations_on: Callable[[int], Sequence[ReservationInfo]] = _no_reservations
    """The Reservations whose reserve pods count on a row beside the pods that take from them. Set by the plugin that
    manages Reservations."""
    restored: dict[tuple[type, str, int], Any] = field(default_factory=dict)
    """What plugins restore on the rows that are currently adjusted for a pod that may take from Reservations there, or
    take over pods: by extension point, name of the plugin and row. See ReservationRestorePlugin."""
    pseudo_pods: set[str] = field(default_factory=set)
    """The uids of pods that no API server has, see Handle.set_pseudo_pod."""
    objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    """Name of a kind that some plugin watches -> key (``namespace/name``, or the name) -> object."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What plugins derive from all this for every profile at once, by keys that they choose."""
    simulate: Callable[[], Journal] = field(init=False)
    """Opens a block of changes that are all undone at its end. Set by the cluster state."""
    node_of: Callable[[str], str | None] = field(init=False)
    """The name of the node that the pod of a uid is on, or is assumed on; None if there is none. Set likewise."""
    gates: frozenset[str] = frozenset()
    """The feature gates that are on, of those that plugins and informers read."""
    network_topology: bool = False
    """Whether plugins use the network topology (flag ``--enable-network-topology-manager``)."""
    concerns_version: int = 0
    """Grows when something else than pods changes that a plugin's ``concerns`` reads, such as whether there is any
    Reservation. Plugins write it."""
    now: datetime | None = None
    """The time of the decision or the event, set before each one."""

    def __post_init__(self) -> None:
        self.nominations.on_affinity = self._on_affinity

    def _on_affinity(self) -> None:
        self.concerns_version += 1

    def share(self, key: str, make: Callable[[], Shared]) -> Shared:
        """What is ``shared`` by this key; ``make`` is called for the first plugin that asks for it, and only then."""
        if key not in self.shared:
            self.shared[key] = make()
        found: Shared = self.shared[key]
        return found

    def objects_of(self, kind: Kind[T]) -> Mapping[str, T]:
        """All objects of a kind that some plugin ``watches``, by key."""
        found: Mapping[str, Any] = self.objects.get(kind.name, {})
        return found
