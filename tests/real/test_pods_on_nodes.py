"""koordlet finds and keeps the pods of a node whose kubelet has another cgroup root, and lists its static pods alone
when it is started anew."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports
from tests.real.polling import until
from tests.real.real_node import EnforcedNode, real_node
from tests.real.severed_connection import severable
from tests.real_world.kubelet_configurations import kubelet_settings
from tests.real_world.pods import PodShape, pod_shape

_NODE: Final = "found-node"
_NAMESPACE: Final = "found-pods"
_SHAPES: Final = tuple(map(pod_shape, ("guaranteed", "sidecar", "best-effort")))
_STATIC: Final = "static-pod"
_LISTED: Final = re.compile(r'^koordlet_pod_cgroups\{.*state="(\w+)".*\} ([0-9.]+)$', re.MULTILINE)


@dataclass
class Bench:
    """A node whose kubelet runs one static pod, and others of the API server."""

    node: EnforcedNode
    folder: Path
    address: str
    restarted: subprocess.Popen[bytes] | None = None
    """The kubelet that runs now, if it is not the first one."""

    @contextmanager
    def koordlet(self) -> Iterator[Path]:
        """With its log."""
        log = self.folder / "koordlet.log"
        flags = ("--kubelet-sync-interval=1s", f"--addr={self.address}")
        agent = self.node.start_koordlet(log, *flags)
        try:
            yield log
        except AssertionError as error:
            error.add_note(log.read_text()[-6000:])
            raise
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(20)

    def cgroups(self) -> dict[str, int]:
        """How many pods have their cgroups where koordlet looks for them, as soon as it responds."""
        seen: dict[str, int] = {}

        def responds() -> bool:
            seen.update(self._cgroups())
            return bool(seen)

        until(responds, 60, "koordlet responds")
        return seen

    def _cgroups(self) -> dict[str, int]:
        """Empty where it does not respond, as before it serves, and for seconds on a busy machine."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as response:
                text = response.read().decode()
        except OSError:
            return {}
        return {state: int(float(count)) for state, count in _LISTED.findall(text)}

    def listed(self) -> list[str]:
        """The names of the pods that the kubelet lists; none while it does not respond."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:10255/pods", timeout=5) as response:
                return sorted(pod["metadata"]["name"] for pod in json.load(response)["items"] or ())
        except OSError:
            return []

    @contextmanager
    def kubelet_without_its_api_server(self) -> Iterator[None]:
        """The kubelet is started anew while it cannot reach the API server, and once more as it was afterwards."""
        command = self._stop_kubelet()
        kubeconfig = command[command.index("--kubeconfig") + 1]
        with severable(Path(kubeconfig), self.folder) as (connection, path):
            connection.cut()
            self._start_kubelet([str(path) if each == kubeconfig else each for each in command])
            try:
                yield
            finally:
                self._stop_kubelet()
                self._start_kubelet(command)

    def _stop_kubelet(self) -> list[str]:
        process = int(self._pid_file.read_text())
        command = Path(f"/proc/{process}/cmdline").read_text().rstrip("\0").split("\0")
        os.kill(process, signal.SIGKILL)
        if self.restarted is not None:
            self.restarted.wait(20)
        else:
            until(lambda: _has_ended(process), 20, "the kubelet ends")
        return command

    def _start_kubelet(self, command: list[str]) -> None:
        with (self.folder / "node/kubelet.log").open("ab") as log:
            self.restarted = subprocess.Popen(command, cwd=self.folder / "node", stdout=log, stderr=log)
        self._pid_file.write_text(f"{self.restarted.pid}\n")

    @property
    def _pid_file(self) -> Path:
        return self.folder / "node/kubelet.pid"


def _has_ended(process: int) -> bool:
    """It is nobody's child here, so that nobody but the first process waits for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _static_pod() -> dict[str, Any]:
    container = {"name": "main", "image": "docker.io/library/pause:latest", "imagePullPolicy": "Never"}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": _STATIC, "namespace": _NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _run(node: EnforcedNode, shape: PodShape) -> None:
    node.run_pod(shape.document(_NAMESPACE, node=_NODE))


@pytest.fixture(scope="module")
def bench(real_cluster: Path) -> Iterator[Bench]:
    settings = kubelet_settings("cgroup-root")
    with tempfile.TemporaryDirectory(prefix="fpn", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        manifests = folder / "manifests"
        manifests.mkdir()
        (manifests / "static.json").write_text(json.dumps(_static_pod()))
        environment = dict(settings.environment)
        lines = [environment.get("KUBELET_EXTRA", ""), f"staticPodPath: {manifests}"]
        environment["KUBELET_EXTRA"] = "\n".join(filter(None, lines))
        with real_node(real_cluster, folder / "node", _NODE, _NAMESPACE, **environment) as node:
            (port,) = free_ports(1)
            made = Bench(node, folder, f"127.0.0.1:{port}")
            for shape in _SHAPES:
                _run(node, shape)
            until(lambda: len(made.listed()) == len(_SHAPES) + 1, 180, "the kubelet lists its pods")
            yield made
        if made.restarted is not None:
            made.restarted.wait(20)


def test_every_pod_is_found_and_kept_while_a_new_kubelet_does_not_know_it(bench: Bench) -> None:
    everything = {"found": len(_SHAPES) + 1, "missing": 0}
    with bench.koordlet() as log:
        until(lambda: bench.cgroups() == everything, 60, "koordlet has found all pods")
        with bench.kubelet_without_its_api_server():
            until(lambda: bench.listed() == [f"{_STATIC}-{_NODE}"], 180, "the kubelet lists its static pod alone")
            kept = "pods that run stay although the kubelet does not list them any more"
            until(lambda: kept in log.read_text(), 60, "koordlet has seen that")
            assert bench.cgroups() == everything
        until(lambda: len(bench.listed()) == len(_SHAPES) + 1, 180, "the kubelet lists all pods again")
        assert bench.cgroups() == everything
