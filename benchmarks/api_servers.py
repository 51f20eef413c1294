"""The embedded API server and kube-apiserver with its etcd, as processes that are measured beside each other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

import yaml

from benchmarks.process_usage import cpu_clock, usage_of
from tests.real.control_plane import TOKEN, ControlPlane
from tests.real.programs import HOW_TO_GET, find_real_programs

EMBEDDED: Final = "embedded"
RIVAL: Final = "kube-apiserver"


@dataclass(frozen=True, slots=True)
class Server:
    """``processes`` are all that serve: of the rival etcd, too. ``ready_seconds`` is from the start to readiness."""

    url: str
    token: str
    processes: Sequence[int]
    ready_seconds: float

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        return sum(map(cpu_clock, self.processes))

    def peak_bytes(self) -> int:
        return sum(usage_of(process).peak_bytes for process in self.processes)


@contextmanager
def _embedded(folder: Path) -> Iterator[Server]:
    """On disk, as ``koord up`` runs it."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "koordinator.cluster", f"--data={folder / 'data'}", f"--kubeconfig={kubeconfig}"]
    started = time.monotonic()
    with Popen(command, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            process.stderr.readline()
            ready = time.monotonic() - started
            access = yaml.safe_load(kubeconfig.read_text())
            url = access["clusters"][0]["cluster"]["server"]
            yield Server(url, access["users"][0]["user"]["token"], [process.pid], ready)
        finally:
            process.terminate()


@contextmanager
def _real(folder: Path) -> Iterator[Server]:
    """etcd does not sync, which the embedded store does not do at each write either."""
    programs = find_real_programs()
    if programs is None:
        raise SystemExit(HOW_TO_GET)
    plane = ControlPlane(programs.kubernetes, folder)
    started = time.monotonic()
    plane.start()
    ready = time.monotonic() - started
    try:
        yield Server(plane.url, TOKEN, [plane.api_server_process, plane.etcd_process], ready)
    finally:
        plane.stop()


STARTS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Server]]]] = {EMBEDDED: _embedded, RIVAL: _real}
