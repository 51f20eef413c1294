"""A real containerd with an image of busybox, and koord-runtime-proxy before it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real.container_images import Image, busybox_layer, registry, write_archive
from tests.real.polling import until
from tests.real.programs import RealPrograms

IMAGE = "docker.io/library/busybox:latest"
_SANDBOX_IMAGE = "registry.k8s.io/pause:3.10"
NEEDED = ("containerd", "runc", "ctr", "busybox")
_PORTS = {"type": "portmap", "capabilities": {"portMappings": True}}
HOW_TO_GET = "apt-get install containerd runc containernetworking-plugins busybox-static: {} is absent"


def busybox_image() -> Image:
    """busybox, under its own name and that of the sandboxes' image."""
    return Image((_SANDBOX_IMAGE, "docker.io/library/pause:latest", IMAGE), (busybox_layer(),))


class ContainerRuntime:
    """containerd with folders of its own; ``socket`` is where it is served."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = folder / "containerd.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def serving(self, images: Sequence[Image]) -> Iterator[None]:
        """Start it, and stop it at the end; it can pull ``images``."""
        with registry(images) as port:
            mirror = self._folder / "registries/_default"
            mirror.mkdir(parents=True)
            (mirror / "hosts.toml").write_text(
                f'[host."http://127.0.0.1:{port}"]\ncapabilities = ["pull", "resolve"]\n'
            )
            self.start()
            try:
                yield
            finally:
                self.stop()

    def start(self) -> None:
        """Start it, and give it the image."""
        (self._folder / "cni").mkdir()
        ipam = {"type": "host-local", "subnet": "10.231.0.0/24", "dataDir": str(self._folder / "ipam")}
        network = {"cniVersion": "0.4.0", "name": "proxy-test", "plugins": [{"type": "ptp", "ipam": ipam}, _PORTS]}
        (self._folder / "cni/10.conflist").write_text(json.dumps(network))
        (self._folder / "containerd.toml").write_text(self._configuration())
        write_archive(self._folder / "image.tar", [busybox_image()])
        self._run()
        subprocess.run(
            ["ctr", "-a", str(self.socket), "-n", "k8s.io", "images", "import", str(self._folder / "image.tar")],
            check=True,
            capture_output=True,
            timeout=60,
        )

    def restart(self) -> None:
        """End it at once, as a crash does, and start it again; containers live on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._run()

    def stop(self) -> None:
        """End it; containers must be gone by then."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((each for each in mounts if each.startswith(f"{self._folder}/")), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)

    def _run(self) -> None:
        with (self._folder / "containerd.log").open("ab") as log:
            command = ["containerd", "-c", str(self._folder / "containerd.toml")]
            # Relative paths in requests are below its folder.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        until(self._responses, 30, "containerd answers")

    def _responses(self) -> bool:
        return (
            subprocess.run(["ctr", "-a", str(self.socket), "version"], capture_output=True, check=False).returncode == 0
        )

    def _configuration(self) -> str:
        return f"""
version = 2
root = "{self._folder}/root"
state = "{self._folder}/state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_SANDBOX_IMAGE}"
  disable_tcp_service = true
  stream_server_port = "0"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self._folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{self._folder}/registries"
"""


class ProxyProcess:
    """koord-runtime-proxy as a process of its own; ``hooks`` is the folder in which hook servers register."""

    def __init__(self, folder: Path, runtime: Path, *flags: str) -> None:
        """``flags`` come after those that name its sockets and folders."""
        self.socket = folder / "run/proxy.sock"
        self.hooks = folder / "hooks"
        self.hooks.mkdir(exist_ok=True)
        self.log = folder / "proxy.log"
        self._command = [
            *(sys.executable, "-m", "koordinator.runtime_proxy", f"--koord-runtimeproxy-endpoint={self.socket}"),
            *(f"--remote-runtime-service-endpoint={runtime}", f"--hook-server-dir={self.hooks}"),
            *flags,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it; it waits for the runtime."""
        self.socket.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        until(self.socket.exists, 30, f"the proxy serves (see {self.log})")

    def kill(self) -> None:
        """End it without a chance to do anything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> int:
        """End it with SIGTERM; its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(10)

    def register(self, name: str, endpoint: Path, hooks: tuple[str, ...], policy: str = "Fail") -> None:
        """Register a hook server."""
        document = {"remote-endpoint": str(endpoint), "failure-policy": policy, "runtime-hooks": hooks}
        (self.hooks / name).write_text(json.dumps(document))


@dataclass(frozen=True)
class ProxiedRuntime:
    """containerd with koord-runtime-proxy before it; ``crictl`` speaks to the proxy."""

    folder: Path
    runtime: ContainerRuntime
    proxy: ProxyProcess
    crictl: CriClient
    programs: RealPrograms


@contextmanager
def proxied_runtime(programs: RealPrograms, images: Callable[[Path], Sequence[Image]]) -> Iterator[ProxiedRuntime]:
    """Start both; what runs in the end is removed. ``images`` makes those that can be pulled, in a folder for that."""
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    if missing := [program for program in NEEDED if shutil.which(program) is None]:
        pytest.skip(HOW_TO_GET.format(missing[0]))
    with tempfile.TemporaryDirectory(prefix="krp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        runtime = ContainerRuntime(folder)
        proxy = ProxyProcess(folder, runtime.socket)
        crictl = programs.kubernetes / "crictl"
        with runtime.serving(images(folder)):
            proxy.start()
            try:
                yield ProxiedRuntime(folder, runtime, proxy, CriClient(crictl, proxy.socket), programs)
            finally:
                proxy.stop()
                CriClient(crictl, runtime.socket)("rmp", "--all", "--force")


class CriClient:
    """crictl on one socket."""

    def __init__(self, crictl: Path, socket: Path) -> None:
        self._command = [str(crictl), "--runtime-endpoint", f"unix://{socket}", "--timeout", "30s"]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def document(self, command: str, *arguments: str) -> Any:
        """What it prints, as JSON."""
        return json.loads(self(command, "-o", "json", *arguments))
