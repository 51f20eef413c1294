"""Memory that nothing has touched for a while, and what is used without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from koordinator.koordlet.collectors.host_applications import HostApplication
from koordinator.koordlet.collectors.scan import Scan
from koordinator.koordlet.metric_cache.kinds import MEMORY_COLD_PAGE_SIZE, MEMORY_WITH_HOT_PAGE_USAGE, Series
from koordinator.koordlet.pods.node_pod import NodePod
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
    """What cgroups use is taken from the last scan, which is a second old at most."""

    def __init__(self, layout: CgroupLayout) -> None:
        self._layout = layout

    def collect(
        self, scan: Scan, pods: Iterable[NodePod], applications: Iterable[HostApplication]
    ) -> ColdPagesRound | Unavailable:
        """One round over the node and over what the scan could read; Unavailable on cgroup version 2."""
        result = ColdPagesRound()
        cold = self._cold(_ROOT, result)
        if isinstance(cold, Unavailable):
            return cold
        if cold is not None and scan.node is not None:
            self._add(result, "node", {}, cold, scan.node.memory.usage_with_page_cache)
        for pod in pods:
            self._cgroup(scan, result, "pod", {"pod_uid": pod.uid}, pod.cgroup)
            for container in pod.containers:
                self._cgroup(scan, result, "container", {"container_id": container.id}, container.cgroup)
        for application in applications:
            label = {"host_app_name": application.spec.name}
            self._cgroup(scan, result, "host_application", label, application.cgroup)
        return result

    def _cgroup(self, scan: Scan, result: ColdPagesRound, level: str, label: dict[str, str], folder: str) -> None:
        reading = scan.cgroups.get(folder)
        cold = None if reading is None else self._cold(folder, result)
        if reading is not None and isinstance(cold, int):
            self._add(result, level, label, cold, reading.usage.memory.usage_with_page_cache)

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
