"""Which pods of a ReplicaSet go first when there are too many.

The criteria, in this order: not assigned to a node; pending, then of an unknown phase; not ready; of a lower deletion
cost; on a node with more pods of the same workload; ready for a shorter time; with more container restarts; newer.
Ages are compared by their order of magnitude, so that not always the newest pods go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cmp_to_key
from typing import Final

from koordinator.api.pod import Pod
from koordinator.cluster.controllers.pod_state import ready_since

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_LOWEST_COST, _HIGHEST_COST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Ranked:
    pod: Pod
    precedence: tuple[int, ...]
    """What is compared first: lower goes first."""
    ready: datetime | None


def pods_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now: datetime) -> list[Pod]:
    """``count`` of ``pods``, the first to go first. ``related``: the active pods of the same workload, of this
    ReplicaSet or another one, that are counted by node."""
    if count >= len(pods):
        return list(pods)
    on_node = Counter(pod.spec.node_name for pod in related if pod.spec.node_name)
    ranked = [_ranked(pod, on_node) for pod in pods]
    ranked.sort(key=cmp_to_key(lambda one, other: _compare(one, other, now)))
    return [each.pod for each in ranked[:count]]


def deletion_cost(pod: Pod) -> int:
    """The cost in the annotation; 0 if there is none or it is not a 32-bit number as Kubernetes writes it."""
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0")) and text != "-0"
    cost = int(text) if plain and len(digits) <= 10 else 0
    return cost if _LOWEST_COST <= cost <= _HIGHEST_COST else 0


def _ranked(pod: Pod, on_node: Counter[str]) -> _Ranked:
    since = ready_since(pod)
    precedence = (
        int(bool(pod.spec.node_name)),
        _PHASES.get(pod.status.phase, 0),
        int(since is not None),
        deletion_cost(pod),
        -on_node[pod.spec.node_name],
    )
    return _Ranked(pod, precedence, since)


def _compare(one: _Ranked, other: _Ranked, now: datetime) -> int:
    if one.precedence != other.precedence:
        return -1 if one.precedence < other.precedence else 1
    if one.ready is not None and other.ready is not None and one.ready != other.ready:
        return _compare_ages(one, other, one.ready, other.ready, now)
    restarts = _restarts(other.pod) - _restarts(one.pod)
    if restarts:
        return restarts
    created, other_created = (each.pod.metadata.creation_timestamp or now for each in (one, other))
    return 0 if created == other_created else _compare_ages(one, other, created, other_created, now)


def _compare_ages(one: _Ranked, other: _Ranked, since: datetime, other_since: datetime, now: datetime) -> int:
    """The younger goes first; of pods whose ages have the same order of magnitude, that with the lower UID."""
    difference = _magnitude(since, now) - _magnitude(other_since, now)
    if difference:
        return difference
    return -1 if one.pod.metadata.uid < other.pod.metadata.uid else 1


def _magnitude(since: datetime, now: datetime) -> int:
    """The binary logarithm of the age in nanoseconds; -1 of none."""
    nanoseconds = (now - since).total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds >= 1 else -1


def _restarts(pod: Pod) -> int:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return max((status.restart_count for status in statuses), default=0)
