"""Pods on nodes grouped by namespace and labels, so that a selector is matched once against each distinct set of
labels.

Replicas have equal labels: thousands of pods are a handful of groups. A group has the number of its pods by row, a row
has the number of pods by group, and an index from label to groups finds the candidates of a selector without matching
the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from koordinator.scheduler.engine.pod_info import PodInfo

K = TypeVar("K")
_Key = tuple[str, bool, frozenset[tuple[str, str]]]


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
    """Kept current by ClusterState: ``add`` and ``remove`` for each pod that counts on a row."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, LabelGroup] = {}
        self._by_number: dict[int, LabelGroup] = {}
        self._by_namespace: dict[str, dict[int, LabelGroup]] = {}
        self._by_label: dict[tuple[str, str, str], dict[int, LabelGroup]] = {}
        self._of_pod: dict[str, LabelGroup] = {}
        self._on_row: dict[int, dict[int, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def group(self, number: int) -> LabelGroup:
        return self._by_number[number]

    def on_row(self, row: int) -> Mapping[int, int]:
        """Group number -> pods of it on ``row``."""
        return self._on_row.get(row, {})

    def candidates(self, namespaces: Collection[str] | None, required: Mapping[str, str]) -> Iterable[LabelGroup]:
        """Groups in ``namespaces`` (None: in all) that have the labels ``required`` with these values. The caller
        checks the other requirements of its selector."""
        found: list[LabelGroup] = []
        for namespace in self._by_namespace if namespaces is None else namespaces:
            pools = [self._by_label.get((namespace, key, value), {}) for key, value in required.items()]
            smallest = min(pools, key=len) if pools else self._by_namespace.get(namespace, {})
            found.extend(
                group
                for group in smallest.values()
                if all(group.labels.get(key) == value for key, value in required.items())
            )
        return found

    def add(self, row: int, pod: PodInfo) -> None:
        """The pod counts on ``row`` from now on."""
        group = self._group_of(pod)
        self._of_pod[pod.uid] = group
        group.rows[row] = group.rows.get(row, 0) + 1
        on_row = self._on_row.setdefault(row, {})
        on_row[group.number] = on_row.get(group.number, 0) + 1

    def remove(self, row: int, uid: str) -> None:
        """The pod no longer counts on ``row``."""
        group = self._of_pod.pop(uid)
        on_row = self._on_row[row]
        _take_one(group.rows, row)
        _take_one(on_row, group.number)
        if not on_row:
            del self._on_row[row]
        if not group.rows:
            self._drop(group)

    def _group_of(self, pod: PodInfo) -> LabelGroup:
        metadata = pod.pod.metadata
        terminating = metadata.deletion_timestamp is not None
        key = metadata.namespace, terminating, frozenset(metadata.labels.items())
        group = self._by_key.get(key)
        if group is None:
            self._next += 1
            group = LabelGroup(self._next, metadata.namespace, metadata.labels, terminating)
            self._by_key[key] = self._by_number[group.number] = group
            self._by_namespace.setdefault(group.namespace, {})[group.number] = group
            for label in metadata.labels.items():
                self._by_label.setdefault((group.namespace, *label), {})[group.number] = group
        return group

    def _drop(self, group: LabelGroup) -> None:
        del self._by_key[(group.namespace, group.terminating, frozenset(group.labels.items()))]
        del self._by_number[group.number]
        _forget(self._by_namespace, group.namespace, group.number)
        for label in group.labels.items():
            _forget(self._by_label, (group.namespace, *label), group.number)


def _take_one(counts: dict[int, int], key: int) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1


def _forget(index: dict[K, dict[int, LabelGroup]], key: K, number: int) -> None:
    del index[key][number]
    if not index[key]:
        del index[key]
