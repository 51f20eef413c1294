"""Memory that nothing has touched for a while, and what is used without it."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordinator.koordlet.observe.metric_cache.kinds import MEMORY_COLD_PAGE_SIZE, MEMORY_WITH_HOT_PAGE_USAGE, Series
from koordinator.koordlet.observe.usage_table import NEVER, CgroupRow, UsageTable
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.errors import FileError, Unavailable
from koordinator.node.kidled import read_cold_bytes

_ROOT = ""


@dataclass(slots=True)
class ColdPagesRound:
    """``errors`` by file says of what could not be read why."""

    samples: dict[Series, float] = field(default_factory=dict)
    errors: dict[str, FileError] = field(default_factory=dict)


class ColdPagesCollector:
    """What cgroups use is taken from the usage table."""

    def __init__(self, layout: CgroupLayout) -> None:
        self._layout = layout

    def collect(self, table: UsageTable) -> ColdPagesRound | Unavailable:
        """One round over what has a known use of memory; Unavailable on cgroup version 2."""
        result = ColdPagesRound()
        cold = self._cold(_ROOT, result)
        if isinstance(cold, Unavailable):
            return cold
        if cold is not None and table.node.at != NEVER:
            self._add(result, "node", {}, cold, table.node.memory.usage_with_page_cache)
        for uid, pod in table.pods.items():
            self._cgroup(result, "pod", {"pod_uid": uid}, pod)
            for identifier, container in pod.containers.items():
                self._cgroup(result, "container", {"container_id": identifier}, container)
        for name, application in table.host_applications.items():
            self._cgroup(result, "host_application", {"host_app_name": name}, application)
        return result

    def _cgroup(self, result: ColdPagesRound, level: str, label: dict[str, str], row: CgroupRow) -> None:
        cold = None if row.memory_at == NEVER else self._cold(row.cgroup, result)
        if isinstance(cold, int):
            self._add(result, level, label, cold, row.memory.usage_with_page_cache)

    def _cold(self, folder: str, result: ColdPagesRound) -> int | Unavailable | None:
        try:
            return read_cold_bytes(self._layout, folder)
        except FileError as error:
            result.errors[error.path] = error
            return None

    @staticmethod
    def _add(result: ColdPagesRound, level: str, label: dict[str, str], cold: int, used: int) -> None:
        result.samples[MEMORY_COLD_PAGE_SIZE[level].series(**label)] = cold
        # The two are read one after the other, so that more may be cold than was used.
        result.samples[MEMORY_WITH_HOT_PAGE_USAGE[level].series(**label)] = max(used - cold, 0)
