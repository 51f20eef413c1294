"""Measures once a second: one scan of the machine, all collectors on it, their samples into the metric cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from koordinator.api.qos import KubernetesQoS
from koordinator.koordlet.collectors.best_effort import BestEffortCollector, BestEffortUsage
from koordinator.koordlet.collectors.gpu import GPUCollector, GPUUsage
from koordinator.koordlet.collectors.host_applications import (
    HostApplication,
    HostApplicationsCollector,
    HostApplicationsUsage,
    host_applications,
)
from koordinator.koordlet.collectors.node import NodeCollector, NodeUsage
from koordinator.koordlet.collectors.pods import PodsCollector, PodsUsage, ThrottledCollector, page_cache_samples
from koordinator.koordlet.collectors.scan import Scan, Scanner, ScanTarget
from koordinator.koordlet.collectors.system import Share, system_samples
from koordinator.koordlet.metric_cache.kinds import Series
from koordinator.koordlet.metric_cache.samples import MetricCache
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.states import StatesInformer
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.errors import FileError, MissingFileError, OddRowError

logger = logging.getLogger(__name__)

_LIFETIMES = 20
"""A previous reading counts for so many intervals."""


_QUIET = 300.0
"""Seconds without a failure after which a file counts as readable again: one that fails now and then is named once."""
_NAMED = 5


@dataclass(slots=True)
class ScanErrors:
    """Says once what cannot be read, and once that it can be again; of many files, which some are.

    What is missing is not reported: a container may end between two readings.
    """

    failed_at: dict[str, float] = field(default_factory=dict)
    """The second of the latest failure, by path."""

    def observe(self, scan: Scan) -> None:
        now = scan.at.monotonic
        errors: dict[str, FileError] = {row.path: row for row in scan.odd_rows}
        errors |= {path: error for path, error in scan.errors.items() if not isinstance(error, MissingFileError)}
        new = [error for path, error in errors.items() if path not in self.failed_at]
        for error in new[:_NAMED]:
            logger.warning("not measured: %s", error)
        if len(new) > _NAMED:
            logger.warning("not measured: %d more files", len(new) - _NAMED)
        self.failed_at.update(dict.fromkeys(errors, now))
        over = [path for path, at in self.failed_at.items() if now - at > _QUIET]
        for path in over:
            del self.failed_at[path]
        if over:
            logger.info("can be read again: %d files, such as %s", len(over), over[0])


@dataclass(frozen=True, slots=True)
class Usage:
    """What one round has found; a part that could not be measured is None."""

    node: NodeUsage | None = None
    best_effort: BestEffortUsage | None = None
    host_applications: HostApplicationsUsage = field(default_factory=HostApplicationsUsage)
    unreadable: int = 0
    """Files that could not be read."""
    scan_seconds: float = 0.0


class MetricsAdvisor:
    """Call ``measure`` at a fixed interval."""

    def __init__(
        self,
        scanner: Scanner,
        cache: MetricCache,
        states: StatesInformer,
        layout: CgroupLayout,
        *,
        interval: float,
        ticks_per_second: int,
        with_page_cache: bool,
        topology: Callable[[], CPUTopology | None],
        count_odd_rows: Callable[[Iterable[OddRowError]], None],
        gpus: GPUCollector | None = None,
    ) -> None:
        self._scanner = scanner
        self._cache = cache
        self._states = states
        self._layout = layout
        self._with_page_cache = with_page_cache
        self._topology = topology
        self._count_odd_rows = count_odd_rows
        self._gpus = gpus
        lifetime = interval * _LIFETIMES
        self._node = NodeCollector(ticks_per_second, lifetime)
        self._pods = PodsCollector(lifetime)
        self._throttled = ThrottledCollector(lifetime)
        self._best_effort = BestEffortCollector(lifetime)
        self._host_applications = HostApplicationsCollector(lifetime)
        self._errors = ScanErrors()
        self.latest = Usage()
        self.last_scan: Scan | None = None

    def pods(self) -> Sequence[NodePod]:
        """Those that have not finished."""
        return [pod for pod in self._states.pods if not pod.has_finished]

    def host_applications(self) -> Sequence[HostApplication]:
        """Those that the NodeSLO lists; none without a NodeSLO."""
        slo = self._states.node_slo_spec
        return host_applications(slo.host_applications, self._layout) if slo else ()

    def measure(self) -> None:
        """One round. Raises nothing for what cannot be read: it is left out of the round."""
        pods, applications = self.pods(), self.host_applications()
        scan = self._scanner.scan(
            ScanTarget(
                pods=pods,
                host_applications=[application.cgroup for application in applications],
                best_effort=self._layout.qos(KubernetesQoS.BEST_EFFORT),
            )
        )
        self._errors.observe(scan)
        self._count_odd_rows(scan.odd_rows)
        self.last_scan = scan
        of_pods = self._pods.collect(scan, pods)
        of_gpus = GPUUsage() if self._gpus is None else self._gpus.collect(pods)
        usage = Usage(
            node=self._node.collect(scan, self._topology()),
            best_effort=self._best_effort.collect(scan, pods),
            host_applications=self._host_applications.collect(scan, applications),
            unreadable=len(scan.errors),
            scan_seconds=scan.seconds,
        )
        self.latest = usage
        at = scan.at.wall
        if usage.node is not None:
            self._cache.append(at, usage.node.samples() | of_gpus.node)
        self._cache.append(at, of_pods.samples | of_gpus.pods)
        self._cache.append(at, self._throttled.collect(scan, pods))
        if usage.best_effort is not None:
            self._cache.append(at, usage.best_effort.samples())
        self._cache.append(at, usage.host_applications.samples())
        if self._with_page_cache:
            self._cache.append(at, page_cache_samples(scan, pods))
        if usage.node is not None and self._states.has_synced_pods:
            self._cache.append(at, _system_samples(usage.node, of_pods, usage.host_applications))


def _system_samples(node: NodeUsage, pods: PodsUsage, applications: HostApplicationsUsage) -> dict[Series, float]:
    # All three without page cache: the original takes host applications' by the NodeMetric's policy, the node's not.
    return system_samples(
        node, Share(pods.cpu, pods.memory, pods.numa_memory), Share(applications.cpu, applications.memory)
    )
