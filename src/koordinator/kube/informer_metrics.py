"""What informers count, made into samples when scraped, so that the hot path only adds integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.base.clock import Clock
from koordinator.kube.informer import Informer

_LABELS = ["kind", "selection"]

_COUNTERS: list[tuple[str, str, Callable[[Informer[Any]], int]]] = [
    ("added", "Objects that appeared", lambda informer: informer.statistics.added),
    ("updated", "Objects that changed", lambda informer: informer.statistics.updated),
    ("deleted", "Objects that vanished", lambda informer: informer.statistics.deleted),
    ("ignored", "Late, repeated or reordered events", lambda informer: informer.statistics.ignored),
    ("malformed", "Object versions that could not be read", lambda informer: informer.statistics.malformed),
    ("handler_errors", "Handlers that raised", lambda informer: informer.handler_errors),
    ("lists", "Lists made", lambda informer: informer.reflector_statistics.lists),
    ("watches", "Watches opened", lambda informer: informer.reflector_statistics.watches),
    ("failures", "Lists and watches that failed", lambda informer: informer.reflector_statistics.failures),
]


class InformerCollector(Collector):
    """Samples of all informers of a set."""

    def __init__(self, informers: Iterable[Informer[Any]], clock: Clock) -> None:
        self._informers = informers
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        informers = [([informer.kind.qualified, str(informer.selection)], informer) for informer in self._informers]
        for name, help_text, read in _COUNTERS:
            counter = CounterMetricFamily(f"informer_{name}", f"[ALPHA] {help_text}", labels=_LABELS)
            for labels, informer in informers:
                counter.add_metric(labels, read(informer))
            yield counter
        objects = GaugeMetricFamily("informer_objects", "[ALPHA] Objects held", labels=_LABELS)
        silence = GaugeMetricFamily(
            "informer_seconds_since_contact", "[ALPHA] Seconds since the API server was last heard", labels=_LABELS
        )
        for labels, informer in informers:
            objects.add_metric(labels, len(informer))
            silence.add_metric(labels, self._clock.monotonic() - informer.reflector_statistics.last_contact)
        yield objects
        yield silence
