"""How much of the level 3 caches and of the memory bandwidth each class of pods uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.observe.metric_cache.kinds import RESCTRL_LLC, RESCTRL_MEMORY_BANDWIDTH, Series
from koordinator.node.errors import MissingFileError
from koordinator.node.host import Host
from koordinator.node.resctrl import CacheMonitor, read_monitors

_GROUPS: Final = ("LSR", "LS", "BE")


@dataclass(frozen=True, slots=True)
class ResctrlRound:
    """By class of pods."""

    monitors: Mapping[str, Sequence[CacheMonitor]] = field(default_factory=dict)

    def samples(self) -> dict[Series, float]:
        samples: dict[Series, float] = {
            RESCTRL_LLC.series(qos=qos, cache_id=cache): value for (cache, qos), value in self.occupancy_rows()
        }
        for (cache, qos, kind), value in self.bandwidth_rows():
            samples[RESCTRL_MEMORY_BANDWIDTH.series(qos=qos, cache_id=cache, resctrl_mb_type=kind)] = value
        return samples

    def occupancy_rows(self) -> Rows:
        for qos, monitor in self._each():
            if monitor.occupancy is not None:
                yield (str(monitor.cache_id), qos), monitor.occupancy

    def bandwidth_rows(self) -> Rows:
        for qos, monitor in self._each():
            for kind, value in (
                ("mbm_local_bytes", monitor.local_bandwidth),
                ("mbm_total_bytes", monitor.total_bandwidth),
            ):
                if value is not None:
                    yield (str(monitor.cache_id), qos, kind), value

    def _each(self) -> Iterable[tuple[str, CacheMonitor]]:
        return ((qos, monitor) for qos, monitors in self.monitors.items() for monitor in monitors)


class ResctrlCollector:
    """Reads the enabled sources once; ``latest`` is what the metrics show."""

    def __init__(self, host: Host, metrics: AgentMetrics) -> None:
        self._host = host
        self.latest = ResctrlRound()
        metrics.latest(
            "resctrl_llc_occupancy",
            "resctrl llc occupancy collected by koordlet",
            ("cache_id", "qos"),
            lambda: self.latest.occupancy_rows(),
            external=True,
        )
        metrics.latest(
            "resctrl_memory_bandwidth",
            "resctrl memory bandwidth collected by koordlet",
            ("cache_id", "qos", "mb_type"),
            lambda: self.latest.bandwidth_rows(),
            external=True,
        )

    def collect(self) -> ResctrlRound:
        """One round; a class that has no group yet is left out."""
        monitors = {}
        for group in _GROUPS:
            try:
                monitors[group] = read_monitors(self._host, group)
            except MissingFileError:
                continue
        self.latest = ResctrlRound(monitors)
        return self.latest
