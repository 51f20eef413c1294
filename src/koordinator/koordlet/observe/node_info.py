"""What the node is made of: CPUs, NUMA nodes and disks. It changes rarely, and others go by what was read last."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_metrics import AgentMetrics, CounterByLabels
from koordinator.node.block_devices import BlockDevices, read_block_devices
from koordinator.node.cpu_topology import CPUTopology, read_cpu_topology
from koordinator.node.errors import FileError, OddRowError, Skipped
from koordinator.node.host import Host
from koordinator.node.memory import NUMANodeMemory, read_numa_memory

logger = logging.getLogger(__name__)


class NodeInfo:
    """``refresh`` and ``refresh_storage`` now and then. What cannot be read stays as it was; None before that."""

    def __init__(self, host: Host, metrics: AgentMetrics, *, with_huge_pages: bool) -> None:
        self._host = host
        self._metrics = metrics
        self._said, self._said_of_storage = SaidOnce(logger), SaidOnce(logger)
        self._with_huge_pages = with_huge_pages
        self.topology: CPUTopology | None = None
        self.numa_memory: tuple[NUMANodeMemory, ...] | None = None
        self.block_devices: BlockDevices | None = None
        self._cpu_status, self._numa_status, self._storage_status = (
            metrics.counter(f"collect_node_{what}_info_status", f"the count of Collect{name}Info status", ("status",))
            for what, name in (("cpu", "NodeCPU"), ("numa", "NodeNUMA"), ("local_storage", "NodeLocalStorage"))
        )

    def refresh(self) -> None:
        """Read CPUs and NUMA nodes."""
        with self._round(self._said) as odd:
            with self._counted(self._cpu_status, self._said, "the topology of the CPUs stays as it was"):
                self.topology = read_cpu_topology(self._host, odd)
            with self._counted(self._numa_status, self._said, "the NUMA nodes stay as they were"):
                self.numa_memory = read_numa_memory(self._host, odd, with_huge_pages=self._with_huge_pages)

    def refresh_storage(self) -> None:
        """Read disks and what is mounted."""
        said = self._said_of_storage
        with self._round(said) as odd, self._counted(self._storage_status, said, "the disks stay as they were"):
            self.block_devices = read_block_devices(self._host, odd)

    @contextmanager
    def _round(self, said: SaidOnce) -> Iterator[Skipped]:
        """Gives what takes the rows that are left out."""
        odd: list[OddRowError] = []
        with said.round():
            yield odd.append
            self._metrics.count_odd_rows(odd)
            for row in odd:
                said.say(f"left out: {row}", row.path)

    @contextmanager
    def _counted(self, status: CounterByLabels, said: SaidOnce, stays: str) -> Iterator[None]:
        try:
            yield
        except FileError as error:
            status.inc("failed")
            said.say(f"{stays}: {error}", error.path)
        else:
            status.inc("succeeded")
