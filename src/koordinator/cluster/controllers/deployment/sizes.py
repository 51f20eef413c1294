"""How many replicas the ReplicaSets of a Deployment get: in a rolling update, a recreation, and a change of the number
of replicas in the midst of either.

Each function returns the new sizes by the name of the ReplicaSet; one that is not named keeps its size. One step at a
time: the next step is decided when its results are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.cluster.controllers.deployment.revisions import DESIRED_REPLICAS, MAX_REPLICAS, by_age
from koordinator.cluster.controllers.workloads import Deployment, ReplicaSet, number_of_pods

RECREATE: Final = "Recreate"

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a rolling update, in pods."""

    surge: int
    """So many pods there may be beyond the replicas."""
    unavailable: int
    """So many of the replicas may be unavailable."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The ReplicaSets of a Deployment: that of its current template, if there is one, and the others."""

    new: ReplicaSet | None
    old: Sequence[ReplicaSet]

    @property
    def all(self) -> list[ReplicaSet]:
        return [*self.old, self.new] if self.new is not None else list(self.old)

    @property
    def active(self) -> list[ReplicaSet]:
        """Those that should have pods."""
        return [each for each in self.all if each.wanted > 0]


def limits_of(deployment: Deployment) -> Limits:
    """Shares of the replicas are rounded up for the surge and down for the unavailable, of which there may be one at
    least where there is no surge; a recreation knows neither."""
    strategy, replicas = deployment.spec.strategy, deployment.wanted
    if strategy.type == RECREATE:
        return Limits(0, 0)
    surge = number_of_pods(strategy.rolling_update.max_surge, replicas, math.ceil)
    unavailable = number_of_pods(strategy.rolling_update.max_unavailable, replicas, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Limits(surge, min(unavailable, replicas))


def most_replicas(deployment: Deployment) -> int:
    """How many pods there may be at any time."""
    return deployment.wanted + limits_of(deployment).surge


def least_replicas(deployment: Deployment) -> int:
    """How many pods must be available at any time."""
    return deployment.wanted - limits_of(deployment).unavailable


def new_size(deployment: Deployment, fleet: Fleet, size: int) -> int:
    """The size of the new ReplicaSet, which now is ``size`` and counted in ``fleet`` if it is there."""
    if deployment.spec.strategy.type == RECREATE:
        return deployment.wanted
    free = most_replicas(deployment) - sum(each.wanted for each in fleet.all)
    return size if free <= 0 else size + min(free, deployment.wanted - size)


def rolling_update(deployment: Deployment, fleet: Fleet) -> Sizes:
    """The next step towards the new ReplicaSet, which is there."""
    return _grown(deployment, fleet) or _shrunk(deployment, fleet)


def recreate(deployment: Deployment, fleet: Fleet, *, old_pods_run: bool) -> Sizes:
    """The old pods go first; when none is left, the new ReplicaSet gets its own."""
    if gone := {each.metadata.name: 0 for each in fleet.old if each.wanted > 0}:
        return gone
    if old_pods_run or fleet.new is None or fleet.new.wanted == deployment.wanted:
        return {}
    return {fleet.new.metadata.name: deployment.wanted}


def is_scaling(deployment: Deployment, fleet: Fleet) -> bool:
    """Whether the number of replicas was changed since the ReplicaSets got theirs."""
    desired = (_number(each, DESIRED_REPLICAS) for each in fleet.active)
    return any(number is not None and number != deployment.wanted for number in desired)


def scaled(deployment: Deployment, fleet: Fleet) -> Sizes:
    """The number of replicas was changed, or the Deployment is paused: its pods remain on the ReplicaSets that have
    them, in proportion, so that a rolling update that is under way is no riskier than before."""
    only = _only_active(fleet)
    if only is not None:
        return {only.metadata.name: deployment.wanted} if only.wanted != deployment.wanted else {}
    if _is_saturated(deployment, fleet.new):
        return {each.metadata.name: 0 for each in fleet.old if each.wanted > 0}
    if deployment.spec.strategy.type == RECREATE or not fleet.active:
        return {}
    return _in_proportion(deployment, fleet.active)


def _grown(deployment: Deployment, fleet: Fleet) -> Sizes:
    new = fleet.new
    if new is None or new.wanted == deployment.wanted:
        return {}
    wanted = deployment.wanted if new.wanted > deployment.wanted else new_size(deployment, fleet, new.wanted)
    return {} if wanted == new.wanted else {new.metadata.name: wanted}


def _shrunk(deployment: Deployment, fleet: Fleet) -> Sizes:
    """Of the old ReplicaSets, first the pods that are not available, which nobody misses; then as many as there are
    available beyond the least. A status about another size says neither."""
    old, least = by_age(each for each in fleet.old if each.wanted > 0), least_replicas(deployment)
    starting = fleet.new.wanted - _available(fleet.new) if fleet.new is not None else 0
    surplus = sum(each.wanted for each in fleet.all) - starting - least
    sizes = {each.metadata.name: each.wanted for each in old}
    for each in old:
        if _is_current(each):
            surplus -= _take(sizes, each, min(surplus, each.wanted - _available(each)))
    surplus = min(surplus, sum(map(_available, fleet.all)) - least)
    for each in old:
        surplus -= _take(sizes, each, surplus)
    return {each.metadata.name: sizes[each.metadata.name] for each in old if sizes[each.metadata.name] != each.wanted}


def _take(sizes: Sizes, replica_set: ReplicaSet, most: int) -> int:
    """Reduce its size by at most so many. Returns by how many."""
    taken = max(0, min(most, sizes[replica_set.metadata.name]))
    sizes[replica_set.metadata.name] -= taken
    return taken


def _is_current(replica_set: ReplicaSet) -> bool:
    return replica_set.status.observed_generation >= replica_set.metadata.generation


def _available(replica_set: ReplicaSet) -> int:
    """How many of the wanted pods are certainly available."""
    return min(replica_set.wanted, replica_set.status.available_replicas) if _is_current(replica_set) else 0


def _only_active(fleet: Fleet) -> ReplicaSet | None:
    """The only ReplicaSet that has pods; if none has any, the newest one; None if several have."""
    active = fleet.active
    if len(active) > 1:
        return None
    if active:
        return active[0]
    return fleet.new or (by_age(fleet.old)[-1] if fleet.old else None)


def _is_saturated(deployment: Deployment, new: ReplicaSet | None) -> bool:
    if new is None:
        return False
    counts = (new.wanted, _number(new, DESIRED_REPLICAS), new.status.available_replicas)
    return all(count == deployment.wanted for count in counts)


def _in_proportion(deployment: Deployment, active: Sequence[ReplicaSet]) -> Sizes:
    allowed = most_replicas(deployment) if deployment.wanted > 0 else 0
    added = allowed - sum(each.wanted for each in active)
    if added == 0:
        return {}
    # The rest that rounding leaves is for the first: when growing the largest and newest, else the largest and oldest.
    ordered = by_age(active)[:: -1 if added > 0 else 1]
    ordered.sort(key=lambda each: each.wanted, reverse=True)
    left, sizes = added, Sizes()
    for each in ordered:
        share = _share(deployment, each)
        share = min(share, left) if added > 0 else max(share, left)
        sizes[each.metadata.name] = each.wanted + share
        left -= share
    first = ordered[0].metadata.name
    sizes[first] = max(0, sizes[first] + left)
    return sizes


def _share(deployment: Deployment, replica_set: ReplicaSet) -> int:
    """How many replicas it gains, or loses if negative, when all ReplicaSets grow or shrink alike."""
    if deployment.wanted == 0:
        return -replica_set.wanted
    before = _number(replica_set, MAX_REPLICAS) or deployment.status.replicas
    if before <= 0:
        return 0
    size = replica_set.wanted * most_replicas(deployment) / before
    return math.floor(size + 0.5) - replica_set.wanted


def _number(replica_set: ReplicaSet, annotation: str) -> int | None:
    text = replica_set.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else None
