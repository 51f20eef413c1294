"""Measures once a second: reads the kernel into the usage table, and keeps what the table shows in the metric cache.

Of pods, containers and host applications CPU is read each time, memory every few seconds: it is in a file of its own,
the longest of all, and what decides within a second goes by the memory of the node, which is read each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from koordinator.api.qos import KubernetesQoS
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.observe.gpu import GPUCollector, GPUUsage
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.observe.usage_table import NEVER, CgroupRow, HostApplicationRow, PodRow
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cpu_time import read_cpu_times
from koordinator.node.errors import FileError, MissingFileError, OddRowError
from koordinator.node.memory import read_machine_memory, read_numa_memory

logger = logging.getLogger(__name__)

_QUIET: Final = 300.0
"""Seconds without a failure after which a file counts as readable again: one that fails now and then is named once."""
_NAMED: Final = 5
_CGROUPS_IN_A_STEP: Final = 32
"""A millisecond or two: container runtimes wait for an answer meanwhile."""


class MetricsAdvisor:
    """Go through ``steps`` at a fixed interval."""

    def __init__(
        self,
        context: AgentContext,
        meter: CgroupMeter,
        layout: CgroupLayout,
        info: NodeInfo,
        gpus: GPUCollector | None = None,
    ) -> None:
        self._table = context.table
        self._host = context.options.host
        self._cache = context.cache
        self._states = context.states
        self._clock = clock = context.given.clock
        self._metrics = context.metrics
        self._meter = meter
        self._layout = layout
        self._info = info
        self._gpus = gpus
        self._best_effort = layout.qos(KubernetesQoS.BEST_EFFORT)
        self._best_effort_cgroups = [self._best_effort]
        self._said = SaidOnce(
            logger,
            clock,
            quiet_seconds=_QUIET,
            most=_NAMED,
            over=lambda paths: f"can be read again: {len(paths)} files, such as {paths[0]}",
        )
        self._memory_at = NEVER
        self._measured: tuple[object, object] = (None, None)
        """The pods and the policy that the rows of the table are of."""
        self._errors: dict[str, FileError] = {}
        self._odd_rows: list[OddRowError] = []
        self.unreadable = 0
        """Files that the last round could not read."""
        self.seconds = 0.0
        """How long it took to read."""

    def steps(self) -> Iterator[None]:
        """One round, in steps between which others may have their turn; what the round has found is the table's when it
        ends. Raises nothing for what cannot be read: it is left out of the round."""
        table, wall = self._table, round(self._clock.now().timestamp() * 1000)
        began = self._clock.monotonic()
        # The loop's rounds are a little early or late.
        has_memory = began - self._memory_at >= table.memory_interval - table.interval / 2
        if has_memory:
            self._memory_at = began
        self._errors, self._odd_rows = {}, []
        self._update_rows()
        yield from self._read_cgroups(began, with_memory=has_memory)
        self._read_node(with_numa_memory=has_memory)
        self._read_best_effort()
        table.at, table.rounds = began, table.rounds + 1
        self.unreadable, self.seconds = len(self._errors), self._clock.monotonic() - began
        self._report()
        pods = [row.pod for row in table.pods.values()]
        of_gpus = GPUUsage() if self._gpus is None else self._gpus.collect(pods)
        if table.node.at >= began:
            system = table.system_samples() if self._states.has_synced_pods else {}
            self._cache.append(wall, table.node_samples() | system | of_gpus.node)
        yield
        self._cache.append(wall, table.cpu_samples() | of_gpus.pods)
        if has_memory:
            yield
            self._cache.append(wall, table.memory_samples())

    def _update_rows(self) -> None:
        """Rows for what there is to measure; the files of everything else are closed."""
        pods, slo = self._states.pods, self._states.node_slo_spec
        if self._measured[0] is pods and self._measured[1] is slo:
            return
        self._measured = pods, slo
        self._table.set_pods([pod for pod in pods if not pod.has_finished])
        self._table.set_host_applications(slo.host_applications if slo else (), self._layout)
        inside = [row for row in self._table.pods.values() if row.cgroup.startswith(f"{self._best_effort}/")]
        self._best_effort_cgroups = [
            self._best_effort,
            *(each.cgroup for row in inside for each in row.containers.values()),
        ]
        self._meter.keep_only({self._best_effort, *(row.cgroup for row in self._table.cgroups)})

    def _read_node(self, *, with_numa_memory: bool) -> None:
        numa_nodes = self._info.numa_memory or ()
        has_several = len(numa_nodes) > 1
        node, odd, at = self._table.node, self._odd_rows.append, self._clock.monotonic()
        with self._noted():
            if has_several and with_numa_memory:
                # Most machines have no huge pages, and need not be looked through for them.
                with_huge_pages = node.memory.huge_pages > 0
                node.read_numa_memory(read_numa_memory(self._host, odd, with_huge_pages=with_huge_pages), at)
        with self._noted():
            ticks = read_cpu_times(self._host, odd, with_each=has_several)
            topology = self._info.topology if has_several else None
            node.read(ticks, read_machine_memory(self._host), at, self._table.lifetime, topology)
            if len(numa_nodes) == 1 and node.at >= at:
                node.read_only_numa_node(numa_nodes[0].number)

    def _read_cgroups(self, began: float, *, with_memory: bool) -> Iterator[None]:
        meter, monotonic, lifetime = self._meter, self._clock.monotonic, self._table.lifetime
        for number, row in enumerate(tuple(self._table.cgroups)):
            if number and number % _CGROUPS_IN_A_STEP == 0:
                yield
            try:
                row.read(meter.cpu(row.cgroup), monotonic(), lifetime)
                # What is new need not wait for its turn to be known, if not to be kept.
                if with_memory or row.memory_at == NEVER:
                    self._read_memory(row, began)
            except FileError as error:
                self._errors[error.path] = error

    def _read_memory(self, row: CgroupRow, began: float) -> None:
        if isinstance(row, HostApplicationRow):
            row.charged = self._meter.memory_usage(row.cgroup)
        row.memory, row.memory_at = self._meter.memory(row.cgroup), began
        if isinstance(row, PodRow) and len(self._table.node.numa) > 1:
            row.numa_memory = self._meter.numa_memory(row.cgroup, self._odd_rows.append)

    def _read_best_effort(self) -> None:
        """The folder of all BestEffort pods; nothing while kubelet has made none, or it could not be read."""
        row, meter = self._table.best_effort, self._meter
        with self._noted():
            counters, read_at = meter.cpu(self._best_effort), self._clock.monotonic()
            quota, period = meter.cpu_bandwidth(self._best_effort)
            # Without cpusets pods may use all CPUs: kubelet does not switch the controller on for every QoS class.
            topology = self._info.topology
            cpus = min(self._cpu_counts(), default=len(topology.cpus) if topology else 0)
            if cpus:
                row.read(counters.nanoseconds, read_at, self._table.lifetime)
                row.real_limit = cpus * 1000 if quota < 0 or period <= 0 else min(cpus * 1000, quota * 1000 // period)

    def _cpu_counts(self) -> list[int]:
        """Sizes of the cpusets of BestEffort pods, those that are empty left out."""
        counts = []
        for cgroup in self._best_effort_cgroups:
            try:
                counts.append(self._meter.cpu_count(cgroup))
            except FileError as error:
                # A container that has just ended has no cpuset, and does not narrow that of its pod.
                self._errors[error.path] = error
        return [count for count in counts if count]

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Around what is left out where it cannot be read."""
        try:
            yield
        except FileError as error:
            self._errors[error.path] = error

    def _report(self) -> None:
        """What is missing is not reported: a container may end between two readings."""
        self._metrics.count_odd_rows(self._odd_rows)
        with self._said.round():
            for error in (*self._odd_rows, *self._errors.values()):
                if not isinstance(error, MissingFileError):
                    self._said.say(f"not measured: {error}", error.path)
