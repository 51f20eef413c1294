"""For what share of the time pods wait for a CPU, where the kernel has no pressure of their cgroups: version 1.

Each thread's own counters are added up. They say nothing of memory and block I/O, and a thread that begins and ends
between two rounds is not seen; but the share is that of the threads that are seen, so that it hardly depends on how
many there are, nor on how much the pod has to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import FileError
from koordinator.node.host import Host
from koordinator.node.scheduling_delay import SchedulingDelay, read_scheduling_delay

THREADS: Final = 1024
"""The most that are looked at in one round, of all pods together: some 10 ms of work."""
THREADS_OF_POD: Final = 64
_LEAST_ACTIVITY: Final = 1_000_000
"""Nanoseconds for each second of the round: below that a few wake-ups would make the share."""


class CPUWaits:
    """``measure`` once a round; two rounds make a reading."""

    def __init__(self, host: Host, reader: CgroupReader) -> None:
        self._host = host
        self._reader = reader
        self._known: dict[str, dict[int, SchedulingDelay]] = {}
        """By uid of a pod, then by thread."""
        self._at = 0.0

    def measure(self, pods: Iterable[NodePod], now: float) -> dict[str, float]:
        """By uid of a pod, the percentage of the time in which its threads waited for a CPU, of that in which they
        wanted one. A pod that was not measured in the last round, or that hardly wants to run, has none. ``now`` in
        monotonic seconds."""
        given = list(pods)
        each = min(THREADS_OF_POD, max(THREADS // max(len(given), 1), 1))
        present = {pod.uid: self._delays(pod, each) for pod in given[:THREADS]}
        least = _LEAST_ACTIVITY * (now - self._at)
        shares: dict[str, float] = {}
        for uid, delays in present.items():
            before = self._known.get(uid, {})
            pairs = [(before[thread], delay) for thread, delay in delays.items() if thread in before]
            # A number that another thread has got since counts from lower values.
            ran = sum(max(new.ran - old.ran, 0) for old, new in pairs)
            waited = sum(max(new.waited - old.waited, 0) for old, new in pairs)
            if ran + waited > least:
                shares[uid] = 100 * waited / (ran + waited)
        self._known, self._at = present, now
        return shares

    def _delays(self, pod: NodePod, most: int) -> dict[int, SchedulingDelay]:
        """Of the threads with the lowest numbers, which are mostly the same ones from round to round."""
        threads: list[int] = []
        for container in pod.containers:
            # Containers and threads end all the time.
            with suppress(FileError):
                threads += self._reader.tasks(container.cgroup)
        delays: dict[int, SchedulingDelay] = {}
        for thread in sorted(threads)[:most]:
            with suppress(FileError):
                delays[thread] = read_scheduling_delay(self._host, thread)
        return delays
