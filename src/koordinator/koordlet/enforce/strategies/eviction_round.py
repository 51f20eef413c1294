"""One round of evictions: which pod to evict next, until every task of a plan has what it needs.

The tasks share what victims release, so that no pod is evicted for what another one has released already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.koordlet.enforce.strategies.eviction import Amounts, Basis, Feature, Task, requested_of
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage

_Released = dict[Basis, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that is to be evicted, and for what."""

    usage: PodUsage
    feature: Feature
    reason: str


@dataclass(frozen=True, slots=True)
class Prospects:
    """What is known of candidates from earlier rounds: their UIDs."""

    going: frozenset[str] = frozenset()
    """They go already: what they hold counts as released."""
    stuck: frozenset[str] = frozenset()
    """They should be gone, and are not: they release nothing, and to evict them once more would not, either."""
    behind: frozenset[str] = frozenset()
    """Their turn is after that of all others."""


class EvictionRound:
    """Works through the tasks of a plan: call ``next_victim``, try to evict it, ``count`` it if that succeeded."""

    def __init__(self, tasks: Sequence[Task], prospects: Prospects) -> None:
        behind = prospects.behind
        self._tasks = [
            replace(task, candidates=tuple(sorted(task.candidates, key=lambda usage: usage.pod.uid in behind)))
            for task in tasks
        ]
        self._prospects = prospects
        self._released: _Released = {basis: {} for basis in Basis}
        self._counted: set[str] = set()
        self._tried: set[tuple[Feature, str]] = set()

    def next_victim(self) -> Victim | None:
        """None when every task has what it needs, or no candidate is left."""
        for task in self._tasks:
            for usage in task.candidates:
                if self._is_satisfied(task):
                    break
                uid = usage.pod.uid
                if uid in self._counted or uid in self._prospects.stuck or (task.feature, uid) in self._tried:
                    continue
                if uid in self._prospects.going:
                    self.count(usage)
                elif not usage.pod.is_terminating and self._helps(task, usage):
                    self._tried.add((task.feature, uid))
                    return Victim(usage, task.feature, task.reason)
        return None

    def _is_satisfied(self, task: Task) -> bool:
        released = self._released[task.basis]
        return all(amount <= released.get(name, 0) for name, amount in task.need.items())

    def _helps(self, task: Task, usage: PodUsage) -> bool:
        released = self._released[task.basis]
        offers = _contribution(task, usage)
        return any(offers.get(name, 0) > 0 and need > released.get(name, 0) for name, need in task.need.items())

    def count(self, usage: PodUsage) -> None:
        """The pod goes; what it releases counts for every task."""
        self._counted.add(usage.pod.uid)
        for basis in Basis:
            most: dict[str, int] = {}
            for task in self._tasks:
                if task.basis is basis:
                    for name, amount in _contribution(task, usage).items():
                        most[name] = max(most.get(name, 0), amount)
            for name, amount in most.items():
                self._released[basis][name] = self._released[basis].get(name, 0) + amount


def _contribution(task: Task, usage: PodUsage) -> Amounts:
    if task.basis is Basis.USAGE:
        used = {CPU: math.trunc((usage.cpu or 0.0) * 1000), MEMORY: math.trunc(usage.memory or 0.0)}
        return {name: used[name] for name in task.need}
    return {name: requested_of(usage.pod, name) for name in task.need}
