"""Who has to leave one node so that a pod fits: as few as possible, the least important first, budgets respected where
that is possible at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from koordinator.api.workload import PodDisruptionBudget
from koordinator.model.label_selector import compile_selector
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt

_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SHIFT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and those who would have to leave it, the most important first."""

    row: int
    victims: tuple[PodInfo, ...]
    violations: int
    """How many of them a disruption budget protects."""
    harm: tuple[int, int, int, int, float]
    """The less, the better: see ``harm_of``."""


def select_victims(
    attempt: FailedAttempt, row: int, potential: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> Candidate | None:
    """Take all of ``potential`` off, then let them back one by one, protected ones and important ones first, as long as
    the pod still fits. None when it does not even fit without all of them."""
    protected, others = by_protection(sorted(potential, key=importance), budgets)
    victims = attempt.reprieve(row, (*protected, *others))
    if victims is None:
        return None
    violating = {pod.uid for pod in protected}
    violations = sum(1 for pod in victims if pod.uid in violating)
    return Candidate(row, tuple(sorted(victims, key=importance)), violations, harm_of(victims, violations))


def harm_of(victims: Sequence[PodInfo], violations: int) -> tuple[int, int, int, int, float]:
    """What counts, the most important first: protected victims, how important the most important victim is, the sum of
    all priorities, the number of victims, and last for how long the most important ones have run: the shorter, the
    better."""
    if not victims:
        return violations, 0, 0, 0, 0.0
    priorities = [victim.priority for victim in victims]
    highest = max(priorities)
    # Priorities may be negative: shifted, so that many of them never weigh less than few.
    total = sum(priorities) + _SHIFT * len(priorities)
    started = min([start_of(victim) for victim in victims if victim.priority == highest])
    return violations, highest, total, len(priorities), -started.timestamp()


def importance(pod: PodInfo) -> tuple[int, datetime]:
    """Sorts the most important first: higher priority, then earlier start; what has not started counts as last."""
    return -pod.priority, start_of(pod)


def start_of(pod: PodInfo) -> datetime:
    """When the pod began to run; the end of time if it has not."""
    return pod.pod.status.start_time or _LAST


def by_protection(
    pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """Those whose eviction a budget would not allow any more when the earlier ones had gone, and all others."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        violated = False
        for index in _budgets_of(pod, budgets):
            allowed[index] -= 1
            violated |= allowed[index] < 0
        (protected if violated else others).append(pod)
    return protected, others


def _budgets_of(pod: PodInfo, budgets: Sequence[PodDisruptionBudget]) -> list[int]:
    """The budgets that the pod counts against: not those that know of its eviction already."""
    metadata = pod.pod.metadata
    if not metadata.labels:
        return []
    return [
        index
        for index, budget in enumerate(budgets)
        if budget.metadata.namespace == metadata.namespace
        and metadata.name not in budget.status.disrupted_pods
        and protects(budget, pod)
    ]


def protects(budget: PodDisruptionBudget, pod: PodInfo) -> bool:
    """Whether the budget's selector matches; an empty one, or one that cannot be read, matches nothing."""
    selector = budget.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    try:
        return compile_selector(selector).matches(pod.pod.metadata.labels)
    except ValueError:
        return False
