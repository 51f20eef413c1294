"""Programs of the control plane as their Deployments run them, and a rolling update of one of them."""

from __future__ import annotations

import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.free_ports import free_ports
from tests.real.control_plane import end_with_parent
from tests.real.polling import until
from tests.real.upgrade.releases import Release
from tests.real.upgrade.service import Endpoints

_CHART: Final = Path(__file__).parent / "original"
_NAMESPACE: Final = "koordinator-system"
_GRACE_SECONDS: Final = 3.0
"""terminationGracePeriodSeconds, of which the chart has ten. The original's koord-scheduler waits for all of them."""
_READY_SECONDS: Final = 90.0
ELECTION: Final = {"leaderElect": True, "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}
"""In place of 15 seconds, since a test waits for each of them; koord-manager has no such setting."""


@dataclass
class Program:
    """One that runs; no two have the same ``user`` of the API server."""

    name: str
    user: str
    process: subprocess.Popen[bytes]
    log: Path
    health: str
    webhook_port: int = 0

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"{self.user} ended with {self.process.returncode}: {self.log_tail()}"
        try:
            with urllib.request.urlopen(self.health, timeout=5) as response:
                return int(response.status) == 200
        except (OSError, urllib.error.URLError):
            return False

    def end(self, how: signal.Signals) -> None:
        """As a kubelet does with SIGTERM, or as a crash does with SIGKILL."""
        assert self.process.poll() is None, f"{self.user} had ended with {self.process.returncode}: {self.log_tail()}"
        self.process.send_signal(how)
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


@dataclass
class Deployments:
    """The programs of one cluster. ``kubeconfigs``: user -> its kubeconfig."""

    folder: Path
    kubeconfigs: dict[str, Path]
    endpoints: Endpoints
    running: dict[str, Program] = field(default_factory=dict)
    _count: int = 0

    def start(self, name: str, release: Release) -> Program:
        """A new pod of the program, which is ready."""
        self._count += 1
        user = next(each for each in sorted(self.kubeconfigs) if each.startswith(f"{release.name}-{name}"))
        kubeconfig = self.kubeconfigs.pop(user)
        folder = self.folder / f"{self._count}-{user}"
        folder.mkdir()
        port, other, webhook = free_ports(3)
        arguments = _ARGUMENTS[name](folder, kubeconfig, port, other)
        variables = release.variables | {
            "POD_NAMESPACE": _NAMESPACE,
            "WEBHOOK_PORT": str(webhook),
            "WEBHOOK_HOST": "",
            "WEBHOOK_CERT_DIR": str(folder / "certificates"),
            "WEBHOOK_CONFIGURATION_FAILURE_POLICY_PODS": "Ignore",
        }
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*release.command(name), *arguments],
                cwd=folder,
                env=variables,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_parent,
            )
        path = "readyz" if name == "koord-manager" else "healthz"
        started = Program(name, user, process, log, f"http://127.0.0.1:{port}/{path}", webhook)
        try:
            until(started.is_ready, _READY_SECONDS, f"{user} to be ready")
        except BaseException:
            process.kill()
            process.wait()
            raise
        if name == "koord-manager":
            self.endpoints.add(webhook)
        return started

    def install(self, name: str, release: Release) -> None:
        self.running[name] = self.start(name, release)

    def roll(self, name: str, release: Release, how: signal.Signals, before: Callable[[], object]) -> None:
        """The new pod starts as a standby; when it is ready, ``before`` is called and the old one ends."""
        old, new = self.running[name], self.start(name, release)
        self.running[name] = new
        before()
        if name == "koord-manager":
            self.endpoints.remove(old.webhook_port)
        old.end(how)

    def stop(self) -> None:
        for each in self.running.values():
            each.process.kill()
            each.process.wait()


@contextmanager
def deployments(folder: Path, kubeconfigs: dict[str, Path], endpoints: Endpoints) -> Iterator[Deployments]:
    folder.mkdir()
    found = Deployments(folder, kubeconfigs, endpoints)
    try:
        yield found
        for each in found.running.values():
            assert each.process.poll() is None, f"{each.user} has ended by itself: {each.log_tail()}"
    finally:
        found.stop()


def _manager(folder: Path, kubeconfig: Path, port: int, other: int) -> list[str]:
    return [
        "--enable-leader-election",
        f"--metrics-addr=127.0.0.1:{other}",
        f"--health-probe-addr=127.0.0.1:{port}",
        "--logtostderr=true",
        f"--leader-election-namespace={_NAMESPACE}",
        "--v=4",
        # Without it the original's own webhook keeps pods with GPUs from every node.
        "--feature-gates=EnableSyncGPUSharedResource=true",
        "--sync-period=0",
        f"--config-namespace={_NAMESPACE}",
        f"--kubeconfig={kubeconfig}",
        # Its port is fixed, and there is but one machine.
        "--enable-pprof=false",
    ]


def _scheduler(folder: Path, kubeconfig: Path, port: int, other: int) -> list[str]:
    configuration = _configuration(folder, kubeconfig, "koord-scheduler")
    return [
        f"--port={port}",
        "--authentication-skip-lookup=true",
        "--v=4",
        "--feature-gates=",
        f"--config={configuration}",
        "--enable-network-topology-manager=true",
        f"--secure-port={other}",
        # Elsewhere they are those of the pod.
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _descheduler(folder: Path, kubeconfig: Path, port: int, other: int) -> list[str]:
    address = dict.fromkeys(("healthzBindAddress", "metricsBindAddress"), f"127.0.0.1:{port}")
    configuration = _configuration(folder, kubeconfig, "koord-descheduler", **address)
    return ["--v=4", f"--config={configuration}", f"--secure-port={other}"]


_ARGUMENTS: Final = {"koord-manager": _manager, "koord-scheduler": _scheduler, "koord-descheduler": _descheduler}


def _configuration(folder: Path, kubeconfig: Path, name: str, **more: Any) -> Path:
    document = yaml.safe_load((_CHART / f"{name}.yaml").read_text())
    document["leaderElection"] |= ELECTION
    document["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    path = folder / "configuration.yaml"
    path.write_text(yaml.safe_dump(document | more))
    return path
