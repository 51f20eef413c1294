"""The cluster that the pages speak of: ``koord up`` in a home folder of its own, with the pods that their examples
name; and the shell in which their commands are typed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.kinds import NAMESPACES, PODS, Kind
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from tests.docs.pages import ROOT, Command
from tests.docs.printed import missing
from tests.free_ports import free_ports
from tests.waiting import once

SECONDS: Final = 120
_PLACEHOLDERS: Final = {
    "NAMESPACE/POD": "default/web",
    "NAMESPACE/NAME": "default/web",
    "POD": "web",
    "NODE": "small-0",
    "NAME": "web",
}
"""What a reader puts in their place."""
_FOLDERS: Final = (".kube", ".zfunc", ".config/fish/completions", ".local/share/bash-completion/completions")
"""What the home folder of somebody has who uses kubectl and these shells."""
_BIG_POD: Final[Mapping[str, Any]] = {
    "schedulerName": "koord-scheduler",
    "containers": [{"name": "main", "image": "example", "resources": {"requests": {"cpu": "500"}}}],
}


@dataclass(frozen=True, slots=True)
class DocumentedCluster:
    """``home`` is the home folder, ``folder`` the checkout as a reader has it; ``scheduler_port`` is where the
    scheduler of ``koord up`` serves, as 10251 is for a reader; ``plugin_port`` is 10271, the port of programs that
    pages start beside it. Several such clusters may run on one machine, and ports of pages are everybody's."""

    home: Path
    folder: Path
    scheduler_port: int
    plugin_port: int
    packages: Path

    @property
    def kubeconfig(self) -> Path:
        return self.home / ".local/state/koordinator/kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """That of a person who has just logged in."""
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
            # `pip install` of an example goes into a folder, and needs no network.
            "PIP_TARGET": str(self.packages),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_UPGRADE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONPATH": str(self.packages),
            # A page runs pytest, which tidies the folders of its earlier runs: those of this one are not its.
            "PYTEST_DEBUG_TEMPROOT": str(self.home),
        }


class Shell:
    """One page's commands in their order. What runs until it is stopped is kept running for those that follow."""

    def __init__(self, cluster: DocumentedCluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._settings: list[str] = []
        """What later commands depend on: ``export``, ``cd``."""

    def run(self, command: Command) -> None:
        """Type it. Raises AssertionError with what was printed when it fails."""
        text = _as_typed(command.text, self._cluster)
        if text.split()[0] in ("export", "cd", "source"):
            self._settings.append(text)
            return
        if server := _server_of(command.words):
            self._start(command, text, *server)
            return
        done = subprocess.run(
            self._bash(text),
            cwd=self._cluster.folder,
            env=self._cluster.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (
            f"{command.where}: `{text}` ends with status {done.returncode}\n{done.stdout}{done.stderr}"
        )
        lacking = missing(command.prints, done.stdout + done.stderr)
        assert not lacking, f"{command.where}: `{text}` does not print {lacking!r}, but\n{done.stdout}{done.stderr}"

    def _start(self, command: Command, text: str, flags: Sequence[str], path: str) -> None:
        """A program that serves: on a free port unless the page gives it one."""
        (port,) = free_ports(1)
        found = re.search(r"--port=(\d+)", text)
        port = int(found[1]) if found else port
        given = [flag.format(port=port) for flag in flags if flag.partition("=")[0] not in text]
        log = self._cluster.home / f"{command.page.replace('/', '-')}-{command.line}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self._bash(f"exec {' '.join([text, *given])}"),
                cwd=self._cluster.folder,
                env=self._cluster.environment,
                stdout=file,
                stderr=file,
            )
        self._stack.callback(_stop, process)
        wait_for(
            lambda: process.poll() is not None or _responses(f"http://127.0.0.1:{port}{path}"),
            f"{command.where}: `{text}` does not respond {path}",
        )
        assert process.poll() is None, f"{command.where}: `{text}` has ended\n{log.read_text()}"

    def _bash(self, text: str) -> list[str]:
        return ["bash", "-eo", "pipefail", "-c", "\n".join([*self._settings, text])]


@contextmanager
def documented_cluster(folder: Path) -> Iterator[DocumentedCluster]:
    """Running. ``fill`` makes the pods that pages speak of."""
    port, plugin_port = free_ports(2)
    home = folder / "home"
    for used in _FOLDERS:
        (home / used).mkdir(parents=True)
    cluster = DocumentedCluster(home, _checkout(folder / "checkout"), port, plugin_port, folder / "packages")
    log = folder / "up.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["koord", "up", "--nodes=5", "--free-ports", f"--scheduler-port={port}"],
            env=cluster.environment,
            stdout=file,
            stderr=file,
        )
    try:
        wait_for(lambda: "The cluster is up" in log.read_text() or process.poll() is not None, "koord up is not up")
        assert process.poll() is None, log.read_text()
        # Where pages mean the reader's own cluster.
        (home / ".kube/config").symlink_to(cluster.kubeconfig)
        yield cluster
    finally:
        _stop(process)


def wait_for(holds: Callable[[], bool], otherwise: str) -> None:
    """Processes have no events to wait for."""
    give_up_at = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < give_up_at, otherwise
        time.sleep(0.05)


def has(program: str) -> bool:
    return shutil.which(program) is not None


def _checkout(folder: Path) -> Path:
    """A checkout whose ``.venv`` is what runs these tests, whatever that is called."""
    folder.mkdir()
    for name in ("README.md", "Makefile", "pyproject.toml", "charts", "config", "docs", "src", "tests", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


async def fill(kubeconfig: Path) -> None:
    """See to it that the pod ``web`` is on a node, and that ``shop/checkout`` waits, which no node can take."""
    client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
    try:
        for document in yaml.safe_load_all((ROOT / "docs/examples/co-location.yaml").read_text()):
            await _create(client, PODS, document, "default")
        await _create(client, NAMESPACES, {"metadata": {"name": "shop"}})
        await _create(client, PODS, {"metadata": {"name": "checkout"}, "spec": _BIG_POD}, "shop")
        await until(client, "default", "web", lambda pod: bool(pod.spec.node_name))
        await until(client, "shop", "checkout", lambda pod: bool(pod.status.conditions))
    finally:
        await client.close()


async def _create(client: KubeClient, kind: Kind[Any], body: Mapping[str, Any], namespace: str = "") -> None:
    try:
        await client.create(kind, body, namespace)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise


async def until(client: KubeClient, namespace: str, name: str, holds: Callable[[Pod], bool]) -> Pod:
    """The pod once ``holds``."""
    return await once(client, PODS, lambda pod: pod.metadata.name == name and holds(pod), namespace)


def _as_typed(text: str, cluster: DocumentedCluster) -> str:
    for placeholder, value in _PLACEHOLDERS.items():
        text = re.sub(rf"(?<![\w/.:'-]){placeholder}(?![\w:/=-])", value, text)
    for printed, port in ((10251, cluster.scheduler_port), (10271, cluster.plugin_port)):
        text = re.sub(rf"(localhost:|127\.0\.0\.1:|--port=){printed}\b", rf"\g<1>{port}", text)
    return text


def _server_of(words: Sequence[str]) -> tuple[Sequence[str], str] | None:
    """The flags that name the port of a program which runs until it is stopped, and the path that says it is well."""
    if any(word.startswith(("--help", "--version", "--write-config-to")) for word in words):
        return None
    match Path(words[0]).name:
        case "koord-scheduler":
            return ["--port={port}"], "/healthz"
        case "koord-manager":
            return ["--health-probe-addr=127.0.0.1:{port}", "--metrics-addr=127.0.0.1:0"], "/healthz"
        case "koord-descheduler":
            return ["--port={port}"], "/readyz"
    return None


def _responses(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait(SECONDS)
