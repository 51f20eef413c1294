"""The metrics of Reservations.

The gauges are computed at each scrape, so that a deleted Reservation leaves none behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from koordinator.api.quantity import Quantity
from koordinator.api.reservation import AVAILABLE, FAILED, PENDING, SUCCEEDED, Reservation
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.instruments import Counter, Histogram, Scraped
from koordinator.base.metrics import exponential_buckets

_PHASES: Final = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_GIBIBYTE: Final = 1 << 30
_CANDIDATES: Final = exponential_buckets(1, 2, 16)


def reservation_gauges(reservations: Callable[[], Iterable[Reservation]]) -> tuple[Collector, ...]:
    """By the statuses of the Reservations; the names, labels and units are the original's."""
    return (
        Scraped(
            "scheduler_reservation_status_phase",
            "[ALPHA] The current number of reservations in each status phase "
            "(e.g. Pending, Available, Succeeded, Failed)",
            ("name", "phase"),
            lambda: [
                ((each.metadata.name, phase), float(phase == (each.status.phase or PENDING)))
                for each in reservations()
                for phase in _PHASES
            ],
        ),
        Scraped(
            "scheduler_reservation_resource",
            "[ALPHA] Resource metrics for a reservation, including allocatable, allocated, and utilization with unit.",
            ("type", "name", "resource", "unit"),
            lambda: [amount for each in reservations() for amount in _amounts(each)],
        ),
    )


class SelectorIndexMetrics(Collector):
    """How often the selector index was used, and how many nodes it left; names, labels and buckets are the
    original's."""

    def __init__(self) -> None:
        self._queries = Counter(
            "scheduler_reservation_selector_index_query_total",
            "[ALPHA] Look-ups in the index of Reservations by their labels, by whether the selector has such a label.",
            ("result",),
        )
        self._candidates = Histogram(
            "scheduler_reservation_selector_index_candidates_count",
            "[ALPHA] The nodes that a look-up in the index of Reservations by their labels has left.",
            (),
            _CANDIDATES,
        )
        self._candidates.labels()

    def looked_up(self, nodes: Sequence[str] | None) -> None:
        """A selector has left these nodes; None: it has no label that is indexed."""
        self._queries.labels("miss" if nodes is None else "hit").inc()
        if nodes:
            self._candidates.labels().observe(len(nodes))

    def collect(self) -> Iterable[Metric]:
        return [*self._queries.collect(), *self._candidates.collect()]


def _amounts(reservation: Reservation) -> Iterator[tuple[Sequence[str], float]]:
    name, status = reservation.metadata.name, reservation.status
    for resource, held in status.allocatable.items():
        unit, allocatable = _measured(resource, held)
        taken = status.allocated.get(resource)
        allocated = _measured(resource, taken)[1] if taken is not None else 0.0
        yield ("allocatable", name, resource, unit), allocatable
        yield ("allocated", name, resource, unit), allocated
        if allocatable > 0:
            yield ("utilization", name, resource, "ratio"), allocated / allocatable


def _measured(resource: str, amount: Quantity) -> tuple[str, float]:
    """The unit and the amount in it."""
    if resource == CPU:
        return "core", amount.milli / 1000
    if resource == MEMORY:
        return "Gi", amount.value / _GIBIBYTE
    return "raw", float(amount.value)
