"""The real kube-controller-manager runs on the embedded API: what its warnings of missing controllers advise."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.controller_manager import controller_manager
from tests.real.polling import until
from tests.real.programs import RealPrograms

_SECONDS = 60.0
_CONTAINERS = [{"name": "main", "image": "i"}]
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": _CONTAINERS}}
_DEPLOYMENT = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_JOB = {"template": {"spec": {"containers": _CONTAINERS, "restartPolicy": "Never"}}}


_NAMES = ("deployment-controller", "replicaset-controller", "job-controller", "garbage-collector-controller")


def test_deployments_and_jobs_get_their_pods(real_programs: RealPrograms, tmp_path: Path) -> None:
    program = real_programs.kubernetes / "kube-controller-manager"
    if not program.is_file():
        pytest.skip(f"{program} is absent")
    with embedded_server(tmp_path) as kubeconfig, controller_manager(program, kubeconfig, tmp_path / "log", _NAMES):
        server = ApiServer(kubeconfig)
        for path, spec in (
            ("apps/v1/namespaces/default/deployments", _DEPLOYMENT),
            ("batch/v1/namespaces/default/jobs", _JOB),
        ):
            made = server.request("POST", f"/apis/{path}", {"metadata": {"name": "x"}, "spec": spec})
            assert made.code == 201, made.message
        end = time.monotonic() + _SECONDS
        while (found := _owners(server)) != ["Job", "ReplicaSet", "ReplicaSet"]:
            assert time.monotonic() < end, (found, (tmp_path / "log").read_text()[-2000:])
            time.sleep(0.2)


def _owners(server: ApiServer) -> list[str]:
    pods: list[dict[str, Any]] = server.request("GET", "/api/v1/namespaces/default/pods").body["items"]
    return sorted(pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods)


@pytest.mark.parametrize(
    ("policy", "left"),
    [("Orphan", ["ReplicaSet web", "Pod", "Pod"]), ("Foreground", []), ("Background", []), ("", [])],
)
def test_a_deployment_is_deleted_as_requested(
    real_programs: RealPrograms, tmp_path: Path, policy: str, left: list[str]
) -> None:
    """Both garbage collectors are at work."""
    program = real_programs.kubernetes / "kube-controller-manager"
    with embedded_server(tmp_path) as kubeconfig, controller_manager(program, kubeconfig, tmp_path / "log", _NAMES):
        server = ApiServer(kubeconfig)
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        made = server.request("POST", deployments, {"metadata": {"name": "web"}, "spec": _DEPLOYMENT})
        assert made.code == 201, made.message
        until(lambda: _owners(server) == ["ReplicaSet", "ReplicaSet"], _SECONDS, "two pods")
        uids = _uids(server)
        options = {"propagationPolicy": policy} if policy else {}
        assert server.request("DELETE", f"{deployments}/web", options).code == 200
        until(lambda: server.request("GET", f"{deployments}/web").code == 404, _SECONDS, "the Deployment to go")
        until(lambda: len(_uids(server)) == len(left), _SECONDS, f"{left} to be left")
        if left:
            # What is kept is the same as before, and stays for longer than a collector takes to look at it again.
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                assert _uids(server) == uids
                time.sleep(0.2)
            (replica_set,) = server.request("GET", "/apis/apps/v1/namespaces/default/replicasets").body["items"]
            assert "ownerReferences" not in replica_set["metadata"]
            assert _owners(server) == ["ReplicaSet", "ReplicaSet"]


def _uids(server: ApiServer) -> set[str]:
    """Of ReplicaSets and pods."""
    paths = ("/apis/apps/v1/namespaces/default/replicasets", "/api/v1/namespaces/default/pods")
    return {each["metadata"]["uid"] for path in paths for each in server.request("GET", path).body["items"]}
