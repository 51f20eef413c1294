"""The metric of nodes where secondary devices may not fit although the primary ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class PlanningGauge(Collector):
    """``nodes`` returns the names of the nodes whose Device object is planned so, at each scrape."""

    def __init__(self, nodes: Callable[[], Iterable[str]]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "scheduler_secondary_device_not_well_planned",
            "[ALPHA] Whether the secondary devices of the node are not well planned",
            labels=("node_name",),
        )
        for name in self._nodes():
            family.add_metric((name,), 1)
        return [family]
