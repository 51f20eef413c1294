"""koord-manager as a child process, ours or the original, with its webhooks on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.free_ports import free_ports

_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
OURS = (sys.executable, "-m", "koordinator.manager")


@dataclass(frozen=True, slots=True)
class ManagerProcess:
    """A running manager."""

    process: subprocess.Popen[bytes]
    log: Path
    webhook_port: int
    health_port: int
    metrics_port: int
    certificates: Path

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5) as response:
                return int(response.status) == 200
        except (OSError, urllib.error.URLError):
            return False

    def metrics(self, path: str = "/all-metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=5) as response:
            return str(response.read().decode())

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log_tail()}"
            assert time.monotonic() < deadline, f"no {what}: {self.log_tail()}"
            time.sleep(0.1)

    def wait_ready(self) -> None:
        self.wait(self.ready, "readiness")

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def stop(self) -> int:
        """Ask it to stop; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def manager(
    command: Sequence[str],
    kubeconfig: Path,
    folder: Path,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[ManagerProcess]:
    """Start one; it is killed at the end if it has not been stopped. ``environment`` adds to what is said here."""
    folder.mkdir(parents=True, exist_ok=True)
    webhook_port, health_port, metrics_port = free_ports(3)
    certificates = folder / "certificates"
    variables = {
        **os.environ,
        "WEBHOOK_HOST": "127.0.0.1",
        "WEBHOOK_PORT": str(webhook_port),
        "WEBHOOK_CERT_DIR": str(certificates),
        **(environment or {}),
    }
    flags = [
        f"--kubeconfig={kubeconfig}",
        f"--health-probe-addr=127.0.0.1:{health_port}",
        f"--metrics-addr=127.0.0.1:{metrics_port}",
        "--enable-pprof=false",
        *arguments,
    ]
    log = folder / "manager.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *flags], stdout=output, stderr=output, env=variables)
    try:
        yield ManagerProcess(process, log, webhook_port, health_port, metrics_port, certificates)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
