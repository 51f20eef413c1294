"""How much of the level 3 caches and of the memory bandwidth each class of pods uses."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.node.errors import MissingFileError
from koordinator.node.host import Host
from koordinator.node.resctrl import CacheMonitor, read_monitors

_GROUPS: Final = ("LSR", "LS", "BE")


class ResctrlCollector:
    """Reads the enabled sources once, for the metrics."""

    def __init__(self, host: Host, metrics: AgentMetrics) -> None:
        self._host = host
        self._latest: list[tuple[str, CacheMonitor]] = []
        """The class of pods, and what one cache shows of it."""
        metrics.latest(
            "resctrl_llc_occupancy",
            "resctrl llc occupancy collected by koordlet",
            ("cache_id", "qos"),
            self._occupancies,
            external=True,
        )
        metrics.latest(
            "resctrl_memory_bandwidth",
            "resctrl memory bandwidth collected by koordlet",
            ("cache_id", "qos", "mb_type"),
            self._bandwidths,
            external=True,
        )

    def collect(self, *, is_there: bool = True) -> None:
        """One round, of nothing where the kernel lacks it; a class that has no group yet is left out."""
        self._latest = []
        for group in _GROUPS if is_there else ():
            with suppress(MissingFileError):
                self._latest += [(group, monitor) for monitor in read_monitors(self._host, group)]

    def _occupancies(self) -> Rows:
        for qos, monitor in self._latest:
            if monitor.occupancy is not None:
                yield (str(monitor.cache_id), qos), monitor.occupancy

    def _bandwidths(self) -> Rows:
        for qos, monitor in self._latest:
            for kind, value in (
                ("mbm_local_bytes", monitor.local_bandwidth),
                ("mbm_total_bytes", monitor.total_bandwidth),
            ):
                if value is not None:
                    yield (str(monitor.cache_id), qos, kind), value
