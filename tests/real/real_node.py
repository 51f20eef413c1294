"""A real node on a real control plane, for tests: containerd, runc and kubelet."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports
from tests.real.administrator import Administrator
from tests.real.polling import until
from tests.real.programs import RealPrograms

REPOSITORY = Path(__file__).resolve().parents[2]


_PATHS: Final = {
    "pods": "/api/v1/{scope}pods",
    "events": "/api/v1/{scope}events",
    "nodes": "/api/v1/nodes",
    "nodemetrics": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
}


def kubectl(kubeconfig: Path, *arguments: str, given: str = "") -> str:
    """What it prints; AssertionError with its message if it fails."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class EnforcedNode:
    """``name`` of the Node."""

    kubeconfig: Path
    name: str
    administrator: Administrator

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return kubectl(self.kubeconfig, *arguments, given=given)

    def get(self, kind: str, name: str = "", *, namespace: str = "", query: str = "") -> Any:
        """An object, or the list of those of ``kind``, one of _PATHS. Without kubectl, whose start costs a tenth of a
        second of CPU: tests that wait ask often."""
        path = _PATHS[kind].format(scope=f"namespaces/{namespace}/" if namespace else "")
        status, response = self.administrator.request("GET", f"{path}/{name}{query}" if name else f"{path}{query}")
        assert status == 200, response.get("message")
        return response

    def apply(self, document: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps(document))

    def run_pod(self, document: dict[str, Any]) -> dict[str, Any]:
        """Create the pod and wait until it runs."""
        metadata = document["metadata"]
        self.apply(document)
        name, namespace = metadata["name"], metadata["namespace"]
        until(lambda: self.get("pods", name, namespace=namespace).get("status", {}).get("phase") == "Running", 60, name)
        running: dict[str, Any] = self.get("pods", name, namespace=namespace)
        return running

    def start_koordlet(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as stderr:
            command = [*self.koordlet_command(log.parent), *arguments]
            return subprocess.Popen(command, env={**os.environ, **self.koordlet_environment}, stderr=stderr)

    @property
    def koordlet_environment(self) -> dict[str, str]:
        return {"NODE_NAME": self.name, "agent_mode": "hostMode"}

    def koordlet_command(self, folder: Path) -> list[str]:
        """Its socket, its registration and its forecasts must not be those of a koordlet that the machine may have."""
        return [
            *(sys.executable, "-m", "koordinator.koordlet", f"--kubeconfig={self.kubeconfig}", "--addr=0"),
            *(f"--runtime-hooks-addr={folder}/hooks.sock", f"--runtime-hooks-config-path={folder}/hooks.d"),
            f"--prediction-checkpoint-filepath={folder}/forecasts",
        ]

    @contextmanager
    def original(self, programs: RealPrograms, folder: Path, *arguments: str, name: str = "") -> Iterator[None]:
        """The Go original's koordlet, for the Node ``name`` if that is another one of this machine. It ends with the
        test's error if it has not lived until then."""
        folder.mkdir()
        # It wants a port that is not 0 for each of its two servers.
        address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
        flags = [
            *("--logtostderr=true", f"--kubeconfig={self.kubeconfig}", f"--addr={address}", f"--pprof-addr={profiles}"),
            *(f"--audit-log-dir={folder}", f"--tsdb-path={folder}", f"--prediction-checkpoint-filepath={folder}"),
            *(f"--runtime-hooks-addr={folder}/k.sock", f"--runtime-hooks-config-path={folder}"),
            *("--enable-nri-runtime-hook=false", *arguments),
        ]
        environment = {**os.environ, "NODE_NAME": name or self.name, "agent_mode": "hostMode"}
        # It empties its own folder.
        log = folder.with_suffix(".log")
        with log.open("wb") as output:
            command = [str(programs.original / "koordlet"), *flags]
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield
            assert process.poll() is None, "it has ended by itself"
        except AssertionError as error:
            error.add_note(log.read_text(errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def real_node(kubeconfig: Path, folder: Path, name: str, namespace: str, **environment: str) -> Iterator[EnforcedNode]:
    """A node with the CRDs and an empty namespace; skips the test where the machine lacks something.

    ``environment`` is that of the program that starts it.
    """
    administrator = Administrator.of(kubeconfig)
    node = EnforcedNode(kubeconfig, name, administrator)
    with started_node(kubeconfig, folder, name, **environment):
        try:
            node.kubectl("apply", "-f", str(REPOSITORY / "config/crd"))
            # It may be there: no controller is there to delete it for good, and a run of a file may be the second one.
            node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            yield node
        finally:
            node.kubectl("delete", "pods", "--all", "--namespace", namespace, "--force", "--wait=false")
            administrator.close()


@contextmanager
def only_node() -> Iterator[None]:
    """The cgroups of kubelet, its ports and the network of containers exist once on a machine: there is one node at a
    time, of whatever test run."""
    path = Path(tempfile.gettempdir()) / "koordinator-real-node.lock"
    # Everybody may write into the folder: a link there must not lead elsewhere.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def started_node(kubeconfig: Path, folder: Path, name: str, **environment: str) -> Iterator[None]:
    """containerd and kubelet with files in ``folder``; the Node is deleted afterwards."""
    script = node_script()
    with only_node():
        variables = {**os.environ, "NODE": name, **environment}
        try:
            command = [str(script), "up", str(folder), str(kubeconfig)]
            # It prints the Node, which is no output of a benchmark.
            subprocess.run(command, env=variables, check=True, timeout=300, stdout=subprocess.DEVNULL)
            yield
        finally:
            subprocess.run([str(script), "down", str(folder)], env=variables, check=False, timeout=300)
            kubectl(kubeconfig, "delete", "node", name, "--ignore-not-found")


def node_script() -> Path:
    """The program that starts a node; skips the test where the machine lacks something."""
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or REPOSITORY.parent / "shared")
    script = shared / "tools/real-node.sh"
    if not script.is_file():
        pytest.skip("there is no program that starts a real node")
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    if missing := [program for program in ("containerd", "runc", "gcc") if shutil.which(program) is None]:
        pytest.skip(f"apt-get install containerd runc containernetworking-plugins gcc: {missing[0]} is absent")
    return script
