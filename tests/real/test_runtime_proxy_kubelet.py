"""A real kubelet whose container runtime is koord-runtime-proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.real.container_runtime import ProxyProcess
from tests.real.hook_server_process import SHARES
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import REPOSITORY, EnforcedNode, real_node

_NODE = "proxy-node"
_PODS = 30
_KILLS = 15
_BETWEEN_KILLS = 3.0
_PATIENCE = 300.0
_HOOKS = ("PreRunPodSandbox", "PreCreateContainer")
_KUBELET = """#!/bin/sh
while [ ! -S {socket} ]; do sleep 0.1; done
exec {kubelet} "$@"
"""


@dataclass(frozen=True)
class Node:
    real: EnforcedNode
    proxy: ProxyProcess
    namespace: str

    def pods(self) -> list[Any]:
        """What the API server has of them."""
        pods: list[Any] = self.real.get("pods", namespace=self.namespace)["items"]
        return pods

    def kill_proxy(self, times: int) -> dict[str, int]:
        """Kill it and start it again every few seconds; on a busy machine a start takes some itself. Returns the pods
        that were seen to run before one of the kills, each with the restarts that it had then."""
        seen: dict[str, int] = {}
        for _ in range(times):
            time.sleep(_BETWEEN_KILLS)
            seen = self.restarts() | seen
            self.proxy.kill()
            self.proxy.start()
        return seen

    def restarts(self) -> dict[str, int]:
        """Of pods whose container runs. The phase does not say that: it is Running, too, while the kubelet waits before
        it makes a container again of which the start has failed."""
        made = ((_uid(pod), each) for pod in self.pods() for each in pod["status"].get("containerStatuses", ()))
        return {uid: container["restartCount"] for uid, container in made if "running" in container["state"]}


def _uid(pod: Any) -> str:
    return str(pod["metadata"]["uid"])


@pytest.fixture
def node(real_programs: RealPrograms, real_cluster: Path) -> Iterator[Node]:
    """A node, with a hook server that gives each container CPU shares."""
    with tempfile.TemporaryDirectory(prefix="krp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        proxy = ProxyProcess(folder, folder / "node/containerd.sock")
        link_programs(real_programs.kubernetes, folder / "bin", proxy.socket)
        hooks = [sys.executable, "-m", "tests.real.hook_server_process", str(folder / "hook.sock"), str(folder / "log")]
        # Of its own: a run that has failed leaves pods in the one before.
        namespace = f"runtime-proxy-{uuid4().hex[:8]}"
        with subprocess.Popen(hooks, cwd=REPOSITORY) as hook_server:
            until((folder / "hook.sock").exists, 30, "the hook server serves")
            proxy.register("a.json", folder / "hook.sock", _HOOKS)
            try:
                proxy.launch()
                programs = {"KBIN": str(folder / "bin"), "CRI_SOCKET": str(proxy.socket)}
                with real_node(real_cluster, folder / "node", _NODE, namespace, **programs) as real:
                    yield Node(real, proxy, namespace)
            finally:
                proxy.stop()
                hook_server.terminate()


def link_programs(programs: Path, folder: Path, socket: Path) -> None:
    """The programs of Kubernetes, but kubelet waits for the proxy, as its unit does."""
    folder.mkdir()
    for program in programs.iterdir():
        if program.name != "kubelet":
            (folder / program.name).symlink_to(program)
    kubelet = folder / "kubelet"
    kubelet.write_text(_KUBELET.format(socket=socket, kubelet=programs / "kubelet"))
    kubelet.chmod(0o755)


def _manifest(number: int, namespace: str) -> str:
    container = {"name": "c", "image": "docker.io/library/pause:latest", "imagePullPolicy": "Never"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": namespace},
            "spec": {
                "nodeName": _NODE,
                "hostNetwork": True,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }
    )


def test_thirty_pods_start_while_the_proxy_is_killed_again_and_again(node: Node) -> None:
    """Half of them run before it is killed for the first time, the others start meanwhile."""
    first, second = ([_manifest(number, node.namespace) for number in range(start, _PODS, 2)] for start in range(2))
    node.real.kubectl("apply", "-f", "-", given="\n".join(first))
    until(lambda: len(node.restarts()) >= len(first) // 2, _PATIENCE, "the first pods run")
    node.real.kubectl("apply", "-f", "-", given="\n".join(second))
    created = {_uid(pod) for pod in node.pods()}
    seen = node.kill_proxy(_KILLS)
    until(lambda: len(node.restarts()) == _PODS, _PATIENCE, "all pods run")
    assert node.restarts().keys() == created
    assert {uid: _shares(uid) for uid in created} == dict.fromkeys(created, SHARES)
    # Those that ran when it was killed have not noticed. The runtime cancels a start whose connection is lost with the
    # proxy; the kubelet makes that container again, and counts it as a restart of one that has never run.
    assert len(seen) >= len(first) // 2
    assert {uid: node.restarts()[uid] for uid in seen} == seen


def _shares(uid: str) -> int:
    """Those of the pod's container: sandboxes have the least."""
    files = Path("/sys/fs/cgroup/cpu/kubepods").glob(f"**/pod{uid}/*/cpu.shares")
    return max(int(file.read_text()) for file in files)
