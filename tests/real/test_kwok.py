"""kwok runs on the embedded API as on any cluster: its nodes are ready, and pods on them run and end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.go_programs import built, go
from tests.real.polling import until

pytestmark = pytest.mark.slow

_VERSION: Final = "v0.7.0"
_BUILD_SECONDS: Final = 1800.0
_SECONDS: Final = 60.0
_PODS: Final = "/api/v1/namespaces/default/pods"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
_CONTAINERS: Final = [{"name": "main", "image": "i"}]


def _build(folder: Path) -> None:
    package = f"sigs.k8s.io/kwok/cmd/kwok@{_VERSION}"
    go("install", "-trimpath", "-ldflags=-s -w", package, seconds=_BUILD_SECONDS, GOBIN=str(folder))


@contextmanager
def _kwok(kubeconfig: Path, log: Path) -> Iterator[None]:
    program = built(f"kwok-{_VERSION}", ["kwok"], _build) / "kwok"
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)


def test_its_nodes_are_ready_and_its_pods_run_end_and_go(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with embedded_server(tmp_path) as kubeconfig:
        server = ApiServer(kubeconfig)
        assert server.request("POST", "/api/v1/nodes", {"metadata": {"name": "kwok-0"}}).code == 201
        with _kwok(kubeconfig, log):

            def comes(what: str, path: str, holds: Callable[[dict[str, Any]], bool]) -> None:
                until(lambda: holds(server.request("GET", path).body), _SECONDS, f"{what}: {log.read_text()[-2000:]}")

            comes("a ready node", "/api/v1/nodes/kwok-0", lambda node: _condition(node, "Ready") == "True")
            lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kwok-0"
            comes("a renewed lease", lease, lambda found: bool(found.get("spec", {}).get("renewTime")))
            template = {"spec": {"containers": _CONTAINERS, "restartPolicy": "Never"}}
            job = server.request("POST", _JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}})
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.body["metadata"]["uid"]}
            for name, owners in (("service", []), ("job", [{**owner, "controller": True}])):
                spec = {"nodeName": "kwok-0", "containers": _CONTAINERS, "restartPolicy": "Never"}
                body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
                assert server.request("POST", _PODS, body).code == 201
            comes("a running pod", f"{_PODS}/service", lambda pod: _condition(pod, "Ready") == "True")
            comes("a pod that has ended", f"{_PODS}/job", lambda pod: pod["status"].get("phase") == "Succeeded")
            assert server.request("DELETE", f"{_PODS}/service").code == 200
            comes("no pod", f"{_PODS}/service", lambda found: found["kind"] == "Status" and found["code"] == 404)


def _condition(obj: dict[str, Any], kind: str) -> str:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == kind), "")
