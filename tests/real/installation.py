"""An installation on a real API server: manifests applied by kubectl, programs under their own service accounts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.control_plane import ControlPlane

REPOSITORY = Path(__file__).resolve().parents[2]
NAMESPACE = "koordinator-system"
PROGRAMS = Path(sys.executable).parent
"""Where ``koord`` and the others are installed."""
_SECONDS = 60.0


def shell(command: str, kubeconfig: Path, folder: Path = REPOSITORY) -> str:
    """Run a command line as a person would, with our commands and kubectl. Returns what it printed."""
    variables = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout


def account_kubeconfig(plane: ControlPlane, account: str, folder: Path) -> Path:
    """A kubeconfig with a token that the API server issues for a service account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    code, response = plane.request("POST", path, request)
    assert code == 201, response.get("message")
    document = json.loads(plane.kubeconfig.read_text())
    document["users"][0]["user"]["token"] = response["status"]["token"]
    written = folder / f"{account}.kubeconfig"
    written.write_text(json.dumps(document))
    return written


@contextmanager
def program(
    command: Sequence[str], log: Path, *, folder: Path = REPOSITORY, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one; it is killed at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, env={**os.environ, **(variables or {})}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def eventually(holds: Callable[[], bool], what: str, *logs: Path) -> None:
    """Fails after a minute with the ends of the logs."""
    deadline = time.monotonic() + _SECONDS
    while not holds():
        tails = "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)
        assert time.monotonic() < deadline, f"no {what}: {tails}"
        time.sleep(0.1)


def create_node(plane: ControlPlane, name: str) -> None:
    """A node without a kubelet."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    code, response = plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    assert code == 201, response.get("message")


def report_usage(plane: ControlPlane, node: str) -> bool:
    """What the agent of the node reports; False where there is no NodeMetric yet."""
    usage = {"resources": {"cpu": "2", "memory": "4Gi"}}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status: dict[str, Any] = {"updateTime": now, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{node}/status"
    return plane.request("PATCH", path, {"status": status})[0] == 200


def node_of(plane: ControlPlane, pod: str) -> str:
    """Where a pod of namespace default is bound to; empty while it is nowhere."""
    document = plane.request("GET", f"/api/v1/namespaces/default/pods/{pod}")[1]
    name: str = document["spec"].get("nodeName", "")
    return name
