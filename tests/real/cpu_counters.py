"""Counters of CPU time that run: the kernel's files on machines that are folders."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.node.machine import FakeMachine


class CPUCounters:
    """Use it as a context. It counts as ``run`` said last, from where the counters are."""

    def __init__(self) -> None:
        self._cores: Mapping[Path, float] = {}
        self._used: dict[Path, float] = {}
        """Seconds."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._count)

    def run(self, machine: FakeMachine, cores_by_cgroup: Mapping[str, float], node_cores: float = 0.0) -> None:
        """Cores that each cgroup uses from now on, and the node; other counters of the machine stand still.

        Where the node shows less than its pods, nothing is left for what is no pod, whatever delays this thread.
        """
        cores = {Path(machine.host.proc, "stat"): node_cores}
        cores |= {
            Path(machine.host.cgroup, "cpuacct", folder, "cpuacct.usage"): used
            for folder, used in cores_by_cgroup.items()
        }
        with self._lock:
            others = {path: used for path, used in self._cores.items() if not path.is_relative_to(machine.root)}
            self._cores = others | cores

    def __enter__(self) -> CPUCounters:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _count(self) -> None:
        if os.geteuid() == 0:
            # On a busy machine it would count in leaps, which look like load that comes and goes.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        before = time.monotonic()
        while not self._stop.wait(0.02):
            with self._lock:
                now = time.monotonic()
                for path, cores in self._cores.items():
                    self._used[path] = self._used.get(path, 0.0) + (now - before) * cores
                    _write(path, self._used[path])
                before = now


def _write(path: Path, seconds: float) -> None:
    if path.name == "stat":
        text = f"cpu  {int(seconds * os.sysconf('SC_CLK_TCK')):020} 0 0 0 0 0 0 0 0 0\n"
    else:
        text = f"{int(seconds * 1e9):020}\n"
    # Of one length, in one write, and in the file that our koordlet keeps open.
    with path.open("r+b", buffering=0) as file:
        file.write(text.encode())
