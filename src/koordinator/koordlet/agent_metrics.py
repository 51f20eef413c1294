"""The agent's own metrics, in the original's two registries, under the original's names.

Nearly all of them are the last measurements. Their samples are made when the metrics are scraped: a scrape every half
minute then costs what it reads, and what has ended is absent from the next one without being removed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordinator.base.clock import Clock
from koordinator.base.instruments import CounterSeries
from koordinator.base.metrics import Metrics
from koordinator.node.errors import OddRowError

PREFIX: Final = "koordlet_"
Rows = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, in their order, and the value."""


class AgentMetrics:
    """``internal`` is about the agent itself, ``external`` about the node for those who size it; all have ``node``."""

    def __init__(self, internal: Metrics, node_name: str) -> None:
        self.internal = internal
        self.external = Metrics()
        both = CollectorRegistry(auto_describe=False)
        both.register(internal.registry)
        both.register(self.external.registry)
        self.both = Metrics(both)
        """The internal ones followed by the external ones."""
        self._node_name = node_name
        self._odd_rows = self.counter(
            "kernel_file_odd_rows", "Rows of kernel files that were left out, as they make no sense.", ("file",)
        )

    def count_odd_rows(self, rows: Iterable[OddRowError]) -> None:
        """What readers left out in a round, by the name of the file: paths of cgroups are as many as containers."""
        for row in rows:
            self._odd_rows.inc(posixpath.basename(row.path))

    def latest(
        self, name: str, help_text: str, labels: Sequence[str], rows: Callable[[], Rows], *, external: bool = False
    ) -> None:
        """Add a gauge whose series are what ``rows`` yields at a scrape; a counter if its name ends in _total.

        Names are without ``koordlet_``, labels without ``node``.
        """
        kind = "counter" if name.endswith("_total") else "gauge"
        self._register(_Latest(name, help_text, kind, ("node", *labels), self._node_name, rows), external)

    def value(self, name: str, help_text: str, read: Callable[[], float | None]) -> None:
        """As ``latest``, of one series without labels; of none while ``read`` returns None."""

        def rows() -> Rows:
            value = read()
            return () if value is None else [((), value)]

        self.latest(name, help_text, (), rows)

    def counter(
        self, name: str, help_text: str, labels: Sequence[str], expiry: Expiry | None = None
    ) -> CounterByLabels:
        """Add a counter under a name of the original's, which does not end in ``_total``."""
        counter = CounterByLabels(expiry)
        # The library calls a counter NAME_total. What says no type has the name that it is given.
        self._register(
            _Latest(name, help_text, "unknown", ("node", *labels), self._node_name, counter.rows), external=False
        )
        return counter

    def _register(self, collector: Collector, external: bool) -> None:
        (self.external if external else self.internal).register(collector)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Series that have not grown for so many seconds are forgotten."""

    clock: Clock
    seconds: float


class CounterByLabels:
    """Counts that only grow, by the values of the labels."""

    def __init__(self, expiry: Expiry | None = None) -> None:
        self._expiry = expiry
        self._counts: dict[tuple[str, ...], CounterSeries] = {}
        self._grown_at: dict[tuple[str, ...], float] = {}

    def inc(self, *values: str) -> None:
        self._forget()
        self._counts.setdefault(values, CounterSeries()).inc()
        if self._expiry is not None:
            self._grown_at[values] = self._expiry.clock.monotonic()

    def rows(self) -> Rows:
        self._forget()
        return [(values, count.value) for values, count in self._counts.items()]

    def _forget(self) -> None:
        if self._expiry is None:
            return
        oldest = self._expiry.clock.monotonic() - self._expiry.seconds
        for values in [values for values, at in self._grown_at.items() if at < oldest]:
            del self._counts[values], self._grown_at[values]


class _Latest(Collector):
    def __init__(
        self, name: str, help_text: str, kind: str, labels: Sequence[str], node_name: str, rows: Callable[[], Rows]
    ) -> None:
        self._sample = f"{PREFIX}{name}"
        self._family = self._sample.removesuffix("_total"), f"[ALPHA] {help_text}", kind
        self._labels = labels
        self._node_name = node_name
        self._rows = rows

    def describe(self) -> Iterable[Metric]:
        return (Metric(*self._family),)

    def collect(self) -> Iterable[Metric]:
        family = Metric(*self._family)
        for values, value in self._rows():
            labels = dict(zip(self._labels, (self._node_name, *values), strict=True))
            family.add_sample(self._sample, labels, value)
        return (family,)
