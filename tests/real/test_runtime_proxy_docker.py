"""koord-runtime-proxy before a real dockerd: run, attach, exec, logs that are followed, stop, hooks, a restart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.container_images import write_archive
from tests.real.container_runtime import IMAGE, ProxyProcess, busybox_image
from tests.real.hook_server_process import SHARES, VARIABLE
from tests.real.polling import until

_REPOSITORY = Path(__file__).resolve().parents[2]
_NEEDED = ("dockerd", "docker", "busybox")
_HOOKS = ("PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStopContainer")
_POD = "k8s_POD_web_shop_uid-1_0"
_SANDBOX_LABELS = {"io.kubernetes.docker.type": "podsandbox"}


class Docker:
    """The command-line client on one socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that may go on."""
        command = ["docker", "-H", f"unix://{self._socket}", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def __call__(self, *arguments: str, said: str = "") -> str:
        with self.start(*arguments) as process:
            try:
                output, _ = process.communicate(said, timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, output
        return output.strip()


@dataclass(frozen=True)
class Node:
    folder: Path
    proxy: ProxyProcess
    docker: Docker
    direct: Docker

    def sandbox(self) -> str:
        """A pod's sandbox as kubelet's docker shim made it; its id."""
        return self.docker("create", "--name", _POD, *_labels(_SANDBOX_LABELS), "--network=none", IMAGE)

    def container(self, sandbox: str, *command: str) -> str:
        """A container of the sandbox that is created; its id."""
        labels = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": sandbox}
        name = "k8s_main_web_shop_uid-1_0"
        options = ("--network=none", "--cpu-shares=100", "--env=OWN=1")
        return self.docker("create", "--name", name, *_labels(labels), *options, IMAGE, *command)

    def given(self, container: str) -> tuple[int, set[str]]:
        """CPU shares and environment, as docker itself says."""
        found = json.loads(self.direct("inspect", container))[0]
        return found["HostConfig"]["CpuShares"], set(found["Config"]["Env"])


def _labels(labels: dict[str, str]) -> list[str]:
    return [f"--label={key}={value}" for key, value in labels.items()]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    if missing := [program for program in _NEEDED if shutil.which(program) is None]:
        pytest.skip(f"apt-get install docker.io busybox-static: {missing[0]} is absent")
    with tempfile.TemporaryDirectory(prefix="krp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        socket = folder / "docker.sock"
        command = [
            *("dockerd", "-H", f"unix://{socket}", "--storage-driver=vfs", "--bridge=none"),
            *(f"--data-root={folder / 'data'}", f"--exec-root={folder / 'exec'}", f"--pidfile={folder / 'pid'}"),
            *("--iptables=false", "--ip6tables=false"),
        ]
        direct = Docker(socket)
        with (folder / "dockerd.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as dockerd:
            try:
                until(lambda: socket.exists() or dockerd.poll() is not None, 30, "dockerd serves")
                if dockerd.poll() is not None:
                    pytest.skip(f"dockerd does not start here: {(folder / 'dockerd.log').read_text()[-500:]}")
                write_archive(folder / "image.tar", [busybox_image()])
                direct("load", "-i", str(folder / "image.tar"))
                proxy = ProxyProcess(folder, socket, "--backend-runtime-mode=Docker")
                proxy.start()
                try:
                    yield Node(folder, proxy, Docker(proxy.socket), direct)
                finally:
                    proxy.stop()
            finally:
                dockerd.terminate()
                dockerd.wait(30)


@pytest.fixture
def clean(node: Node) -> Iterator[None]:
    yield
    if containers := node.direct("ps", "-aq").split():
        node.direct("rm", "-f", *containers)


@pytest.fixture
def hook_log(node: Node) -> Iterator[Path]:
    """A hook server that is registered for the test; what it received."""
    socket, log = node.folder / "hook.sock", node.folder / "hook.log"
    socket.unlink(missing_ok=True)
    log.write_text("")
    command = [sys.executable, "-m", "tests.real.hook_server_process", str(socket), str(log)]
    with subprocess.Popen(command, cwd=_REPOSITORY) as process:
        until(socket.exists, 30, "the hook server serves")
        node.proxy.register("a.json", socket, _HOOKS)
        until(lambda: "hook server a.json:" in node.proxy.log.read_text(), 10, "it is registered")
        yield log
        (node.proxy.hooks / "a.json").unlink()
        process.terminate()


@pytest.mark.usefixtures("clean")
def test_run_attach_exec_and_stop(node: Node) -> None:
    assert node.docker("run", "--rm", "--network=none", IMAGE, "echo", "hello") == "hello"
    assert node.docker("run", "--rm", "-i", "--network=none", IMAGE, "cat", said="to and fro\n") == "to and fro"
    container = node.docker("run", "-d", "--network=none", IMAGE, "sleep", "1000")
    assert node.docker("exec", container, "echo", "inside") == "inside"
    assert node.docker("exec", "-i", container, "wc", "-c", said="x" * 100_000) == "100000"
    node.docker("stop", "-t", "0", container)
    assert "Exited" in node.docker("ps", "-a", "--no-trunc", "--filter", f"id={container}")


@pytest.mark.usefixtures("clean")
def test_logs_are_followed_while_they_are_written(node: Node) -> None:
    container = node.docker("run", "-d", "-i", "--network=none", IMAGE, "cat")
    with node.docker.start("logs", "-f", container) as logs, node.docker.start("attach", container) as attached:
        assert attached.stdin is not None
        assert logs.stdout is not None
        attached.stdin.write("first\n")
        attached.stdin.flush()
        assert logs.stdout.readline() == "first\n"
        attached.stdin.write("second\n")
        attached.stdin.flush()
        assert logs.stdout.readline() == "second\n"
        node.docker("kill", container)
        logs.wait(30)
        attached.wait(30)


@pytest.mark.usefixtures("clean")
def test_a_hook_changes_what_a_container_gets(node: Node, hook_log: Path) -> None:
    container = node.container(node.sandbox(), "env")
    shares, environment = node.given(container)
    assert shares == SHARES
    assert {"OWN=1", f"{VARIABLE}=yes"} <= environment
    assert f"{VARIABLE}=yes" in node.docker("start", "-a", container)


@pytest.mark.usefixtures("clean")
def test_after_a_kill_and_without_checkpoints_docker_is_queried(node: Node, hook_log: Path) -> None:
    container = node.container(node.sandbox(), "sleep", "1000")
    requested = hook_log.read_text().count("ContainerResourceHookRequest web")
    node.proxy.kill()
    shutil.rmtree(node.proxy.socket.parent / "checkpoints")
    node.proxy.start()
    node.docker("start", container)
    assert hook_log.read_text().count("ContainerResourceHookRequest web") == requested + 1
    node.docker("stop", "-t", "0", container)
    assert hook_log.read_text().count("ContainerResourceHookRequest web") == requested + 2
