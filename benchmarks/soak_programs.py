"""The programs of a soak: on which ports and files each runs, how it is started, killed and started again.

All of them run as in a cluster, against one real API server. koordlet, koord-device-daemon and koord-runtime-proxy run
on one simulated node: its kernel is files, its kubelet is ``benchmarks.soak_node``, its container runtime is the fake
one of ``benchmarks.runtime_proxy_latency``, and its accelerators are what a script in the place of the vendor's tool
says.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.contenders import ROOT
from koordinator.base.errors import KoordinatorError
from koordinator.cli.local_cluster.programs import shipped_file
from tests.device_daemon.machines import add_pci_device, npu_tools
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane, end_with_parent
from tests.real.migration_programs import write_descheduler_configuration
from tests.real.programs import RealPrograms

AGENT_NODE: Final = "small-0"
"""The node of the simulated ones on which koordlet, the device daemon and the runtime proxy run."""
KILLED: Final = ("scheduler", "manager", "descheduler", "koordlet", "device-daemon", "runtime-proxy")
"""Those under test."""
_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_LEASE: Final = {"leaderElect": True, "resourceName": "koord-descheduler", "resourceNamespace": "koordinator-system"}


@dataclass
class Program:
    """One program that runs, and starts again when it has been killed. Times are seconds."""

    name: str
    command: Sequence[str]
    log: Path
    ready: str = ""
    """A URL that responds when the program is ready, or the path of a socket that is there then; empty: at once."""
    metrics: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    kills: int = 0
    starts: list[float] = field(default_factory=list)
    """From each start until it was ready."""
    process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready; KoordinatorError where it ends before, or takes too long."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        process = self.process = self._spawn()
        while not await asyncio.to_thread(self._is_ready):
            if process.poll() is not None:
                raise KoordinatorError(f"{self.name} ended with {process.returncode}: {self.log_tail()}")
            if loop.time() - started > _START_SECONDS:
                raise KoordinatorError(f"{self.name} was not ready within {_START_SECONDS:.0f} s: {self.log_tail()}")
            await asyncio.sleep(_POLL_SECONDS)
        self.starts.append(loop.time() - started)

    async def kill(self) -> None:
        """SIGKILL, as the kernel does it where memory is short, and a new start."""
        self.end()
        self.kills += 1
        await self.start()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 20.0) -> int:
        """Ask it to end; its exit status. It is killed where it takes longer."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _spawn(self) -> subprocess.Popen[bytes]:
        if not self.ready.startswith("http") and self.ready:
            Path(self.ready).unlink(missing_ok=True)
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self.command,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment},
                cwd=ROOT,
                preexec_fn=end_with_parent,
            )

    def _is_ready(self) -> bool:
        if not self.ready:
            return True
        if not self.ready.startswith("http"):
            return Path(self.ready).exists()
        try:
            with urllib.request.urlopen(self.ready, timeout=5) as response:
                return int(response.status) == 200
        except (OSError, urllib.error.URLError):
            return False


def surroundings(
    programs: RealPrograms, plane: ControlPlane, folder: Path, nodes: int, gpu_nodes: int
) -> list[Program]:
    """What the programs under test need: Kubernetes' controllers, simulated nodes, the runtime of one of them."""
    key = plane.kubeconfig.parent / "service-account.key"
    controllers = [
        str(programs.kubernetes / "kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={key}",
        "--node-monitor-grace-period=10m",
    ]
    fleet = [
        *_python("koordinator.cluster.nodes"),
        f"--kubeconfig={plane.kubeconfig}",
        f"--nodes={nodes}",
        f"--gpu-nodes={gpu_nodes}",
    ]
    runtime = [*_python("benchmarks.runtime_proxy_latency"), "--containers=50", "--serve", "runtime"]
    (kubelet,) = free_ports(1)
    agent_node = [*_python("benchmarks.soak_node"), str(plane.kubeconfig), AGENT_NODE, str(folder / "node")]
    return [
        Program("controller-manager", controllers, folder / "controller-manager.log"),
        Program("nodes", fleet, folder / "nodes.log"),
        Program("runtime", [*runtime, str(folder / "cri.sock")], folder / "runtime.log", str(folder / "cri.sock")),
        Program("agent-node", [*agent_node, str(kubelet)], folder / "node.log", f"http://127.0.0.1:{kubelet}/configz"),
    ]


def under_test(plane: ControlPlane, folder: Path) -> list[Program]:
    """The six programs. ``surroundings`` run already."""
    ports = iter(free_ports(9))
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    return [
        _manager(kubeconfig, folder, *(next(ports) for _ in range(3))),
        _scheduler(kubeconfig, folder, next(ports)),
        _descheduler(plane.kubeconfig, folder, next(ports)),
        _device_daemon(folder, next(ports)),
        _koordlet(kubeconfig, folder, next(ports)),
        _runtime_proxy(folder, next(ports)),
    ]


def _manager(kubeconfig: str, folder: Path, webhook: int, health: int, metrics: int) -> Program:
    command = [
        *_python("koordinator.manager"),
        kubeconfig,
        f"--health-probe-addr=127.0.0.1:{health}",
        f"--metrics-addr=127.0.0.1:{metrics}",
        "--enable-pprof=false",
        f"--audit-directory={folder / 'audit'}",
        "--feature-gates=Recommender=true",
        "--recommender-interval=10s",
        "--rest-config-qps=200",
        "--rest-config-burst=400",
    ]
    environment = {
        "WEBHOOK_HOST": "127.0.0.1",
        "WEBHOOK_PORT": str(webhook),
        "WEBHOOK_CERT_DIR": str(folder / "webhook-certificates"),
    }
    metrics_url = f"http://127.0.0.1:{metrics}/all-metrics"
    ready = f"http://127.0.0.1:{health}/readyz"
    return Program("manager", command, folder / "manager.log", ready, metrics_url, environment)


def _scheduler(kubeconfig: str, folder: Path, port: int) -> Program:
    configuration = f"--config={shipped_file('scheduler.yaml')}"
    command = [*_python("koordinator.scheduler"), configuration, kubeconfig, f"--port={port}"]
    url = f"http://127.0.0.1:{port}"
    return Program("scheduler", command, folder / "scheduler.log", f"{url}/healthz", f"{url}/metrics")


def _descheduler(kubeconfig: Path, folder: Path, port: int) -> Program:
    arguments = {"schedulerNames": ["koord-scheduler"], "maxConcurrentReconciles": 4}
    configuration = write_descheduler_configuration(folder / "descheduler.yaml", kubeconfig, arguments, _LEASE)
    address = f"127.0.0.1:{port}"
    text = configuration.read_text().replace("127.0.0.1:0", address)
    configuration.write_text(text)
    command = [*_python("koordinator.descheduler"), f"--config={configuration}", "--secure-port=0"]
    url = f"http://{address}"
    return Program("descheduler", command, folder / "descheduler.log", f"{url}/readyz", f"{url}/metrics")


def _koordlet(kubeconfig: str, folder: Path, port: int) -> Program:
    root = folder / "node"
    described = json.loads((root / "host.json").read_text())
    command = [
        *_python("koordinator.koordlet"),
        kubeconfig,
        *(f"--{name}={path}" for name, path in described["folders"].items()),
        "--kubelet-insecure-tls",
        f"--kubelet-read-only-port={described['kubelet']}",
        f"--runtime-hooks-addr={folder}/hooks.sock",
        f"--runtime-hooks-config-path={folder}/hooks.d",
        "--enable-nri-runtime-hook=false",
        f"--prediction-checkpoint-filepath={folder}/forecasts",
        f"--audit-log-dir={folder}/koordlet-audit",
        f"--xpu-device-infos-dir={folder}/machine/out",
        f"--pod-resources-proxy-path={folder}/pod-resources",
        "--feature-gates=Accelerators=true,PSICollector=true,InterferenceDetection=true,AuditEvents=true",
        f"--addr=127.0.0.1:{port}",
    ]
    environment = {"NODE_NAME": AGENT_NODE, "agent_mode": "hostMode"}
    url = f"http://127.0.0.1:{port}"
    return Program("koordlet", command, folder / "koordlet.log", f"{url}/healthz", f"{url}/metrics", environment)


def _device_daemon(folder: Path, port: int) -> Program:
    """Two NPUs, which it looks for every two seconds."""
    host = folder / "machine"
    for name in ("dev", "bin", "out"):
        (host / name).mkdir(parents=True)
    add_pci_device(host, "0000:c1:00.0", "19e5", "d802")
    for number in (0, 1):
        (host / f"dev/davinci{number}").touch()
    cases = "".join(
        f"'{command.partition(' ')[2]}') cat <<'END'\n{text}\nEND\n;;\n" for command, text in npu_tools().items()
    )
    tool = host / "bin/npu-smi"
    tool.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) exit 3;;\nesac\n')
    tool.chmod(0o755)
    address = f"127.0.0.1:{port}"
    command = [
        *_python("koordinator.device_daemon"),
        "--host-root=",
        f"--sys-root-dir={host}/sys",
        f"--dev-root-dir={host}/dev",
        f"--prints-output-file={host}/out/ic-device",
        "--sleep-interval=2s",
        f"--metrics-addr={address}",
    ]
    environment = {"PATH": f"{host}/bin:{os.environ['PATH']}"}
    url = f"http://{address}"
    return Program(
        "device-daemon", command, folder / "device-daemon.log", f"{url}/readyz", f"{url}/metrics", environment
    )


def _runtime_proxy(folder: Path, port: int) -> Program:
    socket, address = folder / "proxy.sock", f"127.0.0.1:{port}"
    command = [
        *_python("koordinator.runtime_proxy"),
        f"--koord-runtimeproxy-endpoint={socket}",
        f"--remote-runtime-service-endpoint={folder / 'cri.sock'}",
        f"--hook-server-dir={folder}/hooks.d",
        f"--metrics-addr={address}",
    ]
    url = f"http://{address}/metrics"
    return Program("runtime-proxy", command, folder / "runtime-proxy.log", str(socket), url)


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]
