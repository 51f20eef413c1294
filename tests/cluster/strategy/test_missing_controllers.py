from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import HttpResponse, embedded_api, pod

_TEMPLATE: Document = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
_WORKLOAD: Document = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_JOB: Document = {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}
_OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "1", "controller": True}


def _create(
    path: str, spec: Any, *, query: str = "", options: ServerOptions | None = None, **metadata: Any
) -> HttpResponse:
    group, _, plural = path.rpartition("/")
    base = f"/apis/{group}" if group != "v1" else "/api/v1"

    async def main() -> HttpResponse:
        async with embedded_api(options) as client:
            body = {"metadata": {"name": "x", **metadata}, "spec": spec}
            return await client.request("POST", f"{base}/namespaces/default/{plural}{query}", body)

    response = asyncio.run(main())
    assert response.status == 201, response.body
    return response


@pytest.mark.parametrize(
    ("path", "spec", "kind"),
    [
        ("apps/v1/deployments", _WORKLOAD, "Deployment"),
        ("apps/v1/replicasets", _WORKLOAD, "ReplicaSet"),
        ("apps/v1/statefulsets", {**_WORKLOAD, "serviceName": "s"}, "StatefulSet"),
        ("apps/v1/daemonsets", _WORKLOAD, "DaemonSet"),
        ("batch/v1/jobs", _JOB, "Job"),
        ("batch/v1/cronjobs", {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}, "CronJob"),
        ("v1/replicationcontrollers", {"selector": {"a": "b"}, "template": _TEMPLATE}, "ReplicationController"),
    ],
)
def test_whoever_creates_a_workload_learns_that_no_pods_come_of_it(path: str, spec: Any, kind: str) -> None:
    assert _create(path, spec).headers["Warning"] == (
        f'299 - "no controller in this cluster creates the pods of a {kind}: create pods directly (kubectl run, '
        "kubectl create -f), unless you run kube-controller-manager with this cluster's kubeconfig\""
    )


@pytest.mark.parametrize(
    ("path", "spec", "text"),
    [
        ("networking.k8s.io/v1/networkpolicies", {"podSelector": {}}, "enforces a NetworkPolicy"),
        ("v1/services", {"selector": {"a": "b"}, "ports": [{"port": 80}]}, "as its endpoints"),
        (
            "v1/persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "pods that use it stay pending",
        ),
        (
            "autoscaling/v1/horizontalpodautoscalers",
            {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
            "acts on a HorizontalPodAutoscaler",
        ),
    ],
)
def test_whoever_creates_what_nothing_acts_on_is_warned(path: str, spec: Any, text: str) -> None:
    assert text in _create(path, spec).headers["Warning"]


def test_a_dry_run_is_warned_of_too() -> None:
    assert "Deployment" in _create("apps/v1/deployments", _WORKLOAD, query="?dryRun=All").headers["Warning"]


@pytest.mark.parametrize(
    ("path", "spec", "metadata"),
    [
        ("apps/v1/replicasets", _WORKLOAD, {"ownerReferences": [_OWNER]}),
        ("v1/services", {"ports": [{"port": 80}]}, {}),
        ("v1/services", {"type": "ExternalName", "externalName": "a.example", "selector": {"a": "b"}}, {}),
        ("v1/pods", pod("x")["spec"], {}),
        ("policy/v1/poddisruptionbudgets", {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}, {}),
    ],
)
def test_nobody_is_warned_of_what_works(path: str, spec: Any, metadata: dict[str, Any]) -> None:
    """Nor a controller that creates what it keeps itself."""
    assert "Warning" not in _create(path, spec, **metadata).headers


@pytest.mark.parametrize(("path", "is_warned"), [("apps/v1/deployments", False), ("v1/limitranges", True)])
def test_nobody_is_warned_of_what_the_controllers_beside_the_server_act_on(path: str, is_warned: bool) -> None:
    spec = _WORKLOAD if path.startswith("apps") else {"selector": {"a": "b"}, "template": _TEMPLATE}
    headers = _create(path, spec, options=ServerOptions(workload_controllers=True)).headers
    assert ("Warning" in headers) is is_warned
