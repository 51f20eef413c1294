"""What the node is made of: CPUs, NUMA nodes and disks. It changes rarely, and others go by what was read last."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.node.block_devices import BlockDevices, read_block_devices
from koordinator.node.cpu_topology import CPUTopology, read_cpu_topology
from koordinator.node.errors import FileError, OddRowError
from koordinator.node.host import Host
from koordinator.node.memory import NUMANodeMemory, read_numa_memory

logger = logging.getLogger(__name__)

_SUCCEEDED = "succeeded"
_FAILED = "failed"


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
        odd: list[OddRowError] = []
        with self._said.round():
            try:
                self.topology = read_cpu_topology(self._host, odd.append)
            except FileError as error:
                self._cpu_status.inc(_FAILED)
                self._said.say(f"the topology of the CPUs stays as it was: {error}", error.path)
            else:
                self._cpu_status.inc(_SUCCEEDED)
            try:
                self.numa_memory = read_numa_memory(self._host, odd.append, with_huge_pages=self._with_huge_pages)
            except FileError as error:
                self._numa_status.inc(_FAILED)
                self._said.say(f"the NUMA nodes stay as they were: {error}", error.path)
            else:
                self._numa_status.inc(_SUCCEEDED)
            self._report(self._said, odd)

    def refresh_storage(self) -> None:
        """Read disks and what is mounted."""
        odd: list[OddRowError] = []
        with self._said_of_storage.round():
            try:
                self.block_devices = read_block_devices(self._host, odd.append)
            except FileError as error:
                self._storage_status.inc(_FAILED)
                self._said_of_storage.say(f"the disks stay as they were: {error}", error.path)
            else:
                self._storage_status.inc(_SUCCEEDED)
            self._report(self._said_of_storage, odd)

    def _report(self, said: SaidOnce, odd: Sequence[OddRowError]) -> None:
        self._metrics.count_odd_rows(odd)
        for row in odd:
            said.say(f"left out: {row}", row.path)
