"""The cases of the scheduler benchmark: what is in the cluster, what has to be scheduled, and what is required."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import pod_mixes
from benchmarks.pod_mixes import Document


@dataclass(frozen=True, slots=True)
class Requirement:
    """Ours ÷ original, but for the last. None where nothing is required."""

    rate_at_least: float
    cpu_at_most: float | None = None
    memory_at_most: float | None = None
    of_binding_at_least: float | None = None
    """Ours ÷ the client that only binds and writes each event before the next binding, in pods a second."""


@dataclass(frozen=True, slots=True)
class Case:
    """``pods`` makes the documents of the pods to schedule; ``running`` pods are on the nodes before."""

    name: str
    title: str
    nodes: int
    pods: Callable[[], list[Document]]
    requirement: Requirement
    running: int = 0
    quotas: Callable[[], list[Document]] | None = None
    """What is in the cluster before; the profile has ElasticQuota then."""
    pod_groups: Callable[[], list[Document]] | None = None
    """What is in the cluster before; the profile has Coscheduling then."""
    reservations: Callable[[], list[Document]] | None = None
    """What is in the cluster before, with its status; the profile has Reservation then."""


def _table(rate: float, cpu: float) -> Requirement:
    return Requirement(rate, cpu, memory_at_most=1.0, of_binding_at_least=0.8)


CASES: Final = {
    case.name: case
    for case in (
        Case("100-equal", "100 nodes, 1,000 equal pods", 100, lambda: pod_mixes.equal(1000), _table(2, 1 / 3)),
        Case("1000-equal", "1,000 nodes, 3,000 equal pods", 1000, lambda: pod_mixes.equal(3000), _table(4, 1 / 6)),
        Case("5000-equal", "5,000 nodes, 3,000 equal pods", 5000, lambda: pod_mixes.equal(3000), _table(6, 1 / 10)),
        Case("5000-mixed", "5,000 nodes, 3,000 mixed pods", 5000, lambda: pod_mixes.mixed(3000), _table(6, 1 / 10)),
        Case(
            "5000-mixed-all-plugins",
            "5,000 nodes, 3,000 mixed pods; ElasticQuota, Coscheduling and Reservation in the profile",
            5000,
            lambda: pod_mixes.mixed(3000),
            _table(6, 1 / 10),
            quotas=list,
            pod_groups=list,
            reservations=list,
        ),
        Case(
            "5000-different",
            "5,000 nodes with 50,000 pods, 1,000 more, all different",
            5000,
            lambda: pod_mixes.different(1000),
            Requirement(1),
            running=50_000,
        ),
        Case(
            "5000-apart",
            "5,000 nodes, 2,000 pods that keep off each other's nodes",
            5000,
            lambda: pod_mixes.apart(2000),
            Requirement(1),
        ),
        Case(
            "1000-quotas",
            "1,000 nodes, 3,000 pods over 50 quotas in three levels",
            1000,
            lambda: pod_mixes.in_quotas(3000),
            _table(5, 1 / 6),
            quotas=pod_mixes.quotas,
        ),
        Case(
            "1000-gangs",
            "1,000 nodes, 100 gangs of 20 pods",
            1000,
            lambda: pod_mixes.in_gangs(100, 20),
            _table(5, 1 / 6),
            pod_groups=lambda: pod_mixes.pod_groups(100, 20),
        ),
        Case(
            "1000-reservations",
            "1,000 nodes, 500 Reservations, 2,000 pods of which half consume them",
            1000,
            lambda: pod_mixes.with_consumers(2000),
            _table(4, 1 / 4),
            reservations=lambda: pod_mixes.reservations(500),
        ),
    )
}
