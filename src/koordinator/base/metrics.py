"""Metrics with upstream's names, in a registry per program, so that programs and tests do not share counters.

Upstream names metrics ``<subsystem>_<name>`` and begins the help text with the metric's stability.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

import koordinator
from koordinator.base.instruments import Counter, Histogram

# Upstream exports no _created series; they would double the size of every scrape.
metrics.disable_created_metrics()  # type: ignore[no-untyped-call]

Stability = Literal["INTERNAL", "ALPHA", "BETA", "STABLE"]

Own = TypeVar("Own", Counter, Histogram, Gauge)

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return ``count`` upper bounds, each ``factor`` times the previous one, as Go's client library does."""
    return tuple(start * factor**exponent for exponent in range(count))


class Metrics:
    """The metrics of one program. Creating a metric whose name exists returns the existing one."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry(auto_describe=True)
        self._known: dict[str, tuple[Any, tuple[str, ...]]] = {}

    def counter(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, stability: Stability = "ALPHA"
    ) -> Counter:
        """A counter that only grows; ``name`` ends in ``_total``, as upstream's do."""
        if not name.endswith("_total"):
            raise ValueError(f"{name}: a counter's name ends in _total")
        return self._own(Counter, name, labels, lambda: Counter(name, f"[{stability}] {help_text}", tuple(labels)))

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = (), *, stability: Stability = "ALPHA") -> Gauge:
        """A value that goes up and down."""
        return self._own(
            Gauge, name, labels, lambda: Gauge(name, f"[{stability}] {help_text}", tuple(labels), registry=None)
        )

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = DEFAULT_BUCKETS,
        stability: Stability = "ALPHA",
    ) -> Histogram:
        """A histogram with fixed bucket bounds."""
        text = f"[{stability}] {help_text}"
        return self._own(Histogram, name, labels, lambda: Histogram(name, text, tuple(labels), tuple(buckets)))

    def register(self, collector: Collector) -> None:
        """Add a collector, which produces its samples when scraped."""
        self.registry.register(collector)

    def add_process_metrics(self) -> None:
        """Add CPU, memory, start time and open files of this process, under the usual ``process_`` names, and how many
        tasks its event loop has."""
        ProcessCollector(registry=self.registry)
        self.gauge("process_asyncio_tasks", "Tasks of the event loop that have not ended").set_function(_tasks)

    def add_build_info(self, program: str) -> None:
        """Add what runs here, as labels of a gauge that is 1."""
        info = self.gauge(
            "koordinator_build_info", "What runs here; always 1", ("program", "version", "python_version")
        )
        info.labels(program, koordinator.__version__, platform.python_version()).set(1)

    def content_type(self, accept: str = "") -> str:
        """Return the content type of the text format that the scraper accepts."""
        return choose_encoder(accept)[1]

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the text format that the scraper accepts, and the content type."""
        encoder, content_type = choose_encoder(accept)
        encode = cast("Callable[[CollectorRegistry], bytes]", encoder)
        return encode(self.registry), content_type

    def _own(self, kind: type[Own], name: str, labels: Sequence[str], make: Callable[[], Own]) -> Own:
        known: Own | None = self._known_as(kind, name, labels)
        if known is not None:
            return known
        created = make()
        self.registry.register(created)
        self._known[name] = (created, tuple(labels))
        return created

    def _known_as(self, kind: type[Any], name: str, labels: Sequence[str]) -> Any:
        known = self._known.get(name)
        if known is None:
            return None
        metric, known_labels = known
        if type(metric) is not kind or known_labels != tuple(labels):
            raise ValueError(f"metric {name} exists with another type or other labels {known_labels}")
        return metric


def _tasks() -> int:
    """0 outside an event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
