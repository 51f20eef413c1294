"""Measures once a second: one scan of the machine, all collectors on it, their samples into the metric cache."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from koordinator.koordlet.collectors.node import NodeCollector, NodeUsage
from koordinator.koordlet.collectors.pods import PodsCollector, PodsUsage, ThrottledCollector, page_cache_samples
from koordinator.koordlet.collectors.scan import Scan, Scanner, ScanTarget
from koordinator.koordlet.collectors.system import Share, system_samples
from koordinator.koordlet.metric_cache.samples import MetricCache
from koordinator.koordlet.states import StatesInformer
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.errors import FileError

logger = logging.getLogger(__name__)

_LIFETIMES = 20
"""A previous reading counts for so many intervals."""


@dataclass(slots=True)
class ScanErrors:
    """Says once what cannot be read, and once that it can be again."""

    known: dict[str, FileError] = field(default_factory=dict)

    def told(self, scan: Scan) -> None:
        for path, error in scan.errors.items():
            if path not in self.known:
                logger.debug("not measured: %s", error)
        self.known = scan.errors


class MetricsAdvisor:
    """Call ``measure`` at a fixed interval."""

    def __init__(
        self,
        scanner: Scanner,
        cache: MetricCache,
        states: StatesInformer,
        *,
        interval: float,
        ticks_per_second: int,
        with_page_cache: bool,
    ) -> None:
        self._scanner = scanner
        self._cache = cache
        self._states = states
        self._with_page_cache = with_page_cache
        lifetime = interval * _LIFETIMES
        self._node = NodeCollector(ticks_per_second, lifetime)
        self._pods = PodsCollector(lifetime)
        self._throttled = ThrottledCollector(lifetime)
        self._errors = ScanErrors()
        self.topology: CPUTopology | None = None

    def measure(self) -> None:
        """One round. Raises nothing for what cannot be read: it is left out of the round."""
        pods = [pod for pod in self._states.pods if not pod.has_finished]
        scan = self._scanner.scan(ScanTarget(pods=pods))
        self._errors.told(scan)
        node = self._node.collect(scan, self.topology)
        of_pods = self._pods.collect(scan, pods)
        if node is not None:
            self._cache.append(scan.at.wall, node.samples())
        self._cache.append(scan.at.wall, of_pods.samples)
        self._cache.append(scan.at.wall, self._throttled.collect(scan, pods))
        if self._with_page_cache:
            self._cache.append(scan.at.wall, page_cache_samples(scan, pods))
        if node is not None and self._states.has_synced_pods:
            self._append_system(scan, node, of_pods)

    def _append_system(self, scan: Scan, node: NodeUsage, pods: PodsUsage) -> None:
        share = Share(pods.cpu, pods.memory, pods.numa_memory)
        self._cache.append(scan.at.wall, system_samples(node, share, Share(0.0, 0)))
