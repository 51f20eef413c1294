"""What is used without the memory that nothing has touched for a while."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import Series
from koordinator.koordlet.observe.usage_table import NEVER, UsageTable
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_meter import MemoryUsage
from koordinator.node.errors import FileError, Unavailable
from koordinator.node.kidled import read_cold_bytes
from koordinator.node.memory import MachineMemory


@dataclass(slots=True)
class ColdPagesRound:
    """``errors`` by file says of what could not be read why."""

    samples: dict[Series, float] = field(default_factory=dict)
    errors: dict[str, FileError] = field(default_factory=dict)


def read_hot_pages(layout: CgroupLayout, table: UsageTable) -> ColdPagesRound | Unavailable:
    """One round over what has a known use of memory, which is the table's; Unavailable on cgroup version 2."""
    result = ColdPagesRound()
    for series, folder, memory in _measured(table):
        try:
            cold = read_cold_bytes(layout, folder)
        except FileError as error:
            result.errors[error.path] = error
            continue
        if isinstance(cold, Unavailable):
            return cold
        # The two are read one after the other, so that more may be cold than was used.
        result.samples[series] = max(memory.usage_with_page_cache - cold, 0)
    return result


def _measured(table: UsageTable) -> Iterable[tuple[Series, str, MemoryUsage | MachineMemory]]:
    """The relative folder of each, and what it uses."""
    if table.node.at != NEVER:
        yield kinds.NODE_MEMORY_WITH_HOT_PAGE_USAGE.series(), "", table.node.memory
    for uid, pod in table.pods.items():
        if pod.memory_at != NEVER:
            yield Series(kinds.POD_MEMORY_WITH_HOT_PAGE_USAGE, (uid,)), pod.cgroup, pod.memory
    for name, row in table.host_applications.items():
        if row.memory_at != NEVER:
            yield Series(kinds.HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE, (name,)), row.cgroup, row.memory
