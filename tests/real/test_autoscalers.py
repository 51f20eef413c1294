"""HorizontalPodAutoscalers, with our controller and with the real one: the same usage leads to the same status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.manifests import custom_resource_definitions
from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.controller_manager import controller_manager, our_controllers
from tests.real.polling import until
from tests.real.programs import RealPrograms

Document = dict[str, Any]

_SECONDS: Final = 90.0
_NAME: Final = "horizontal-pod-autoscaler-controller"
_OLD, _NEW = timedelta(hours=1), timedelta(seconds=5)


def _metric(resource: str = "cpu", **target: Any) -> Document:
    kind = "Utilization" if "averageUtilization" in target else "AverageValue"
    return {"type": "Resource", "resource": {"name": resource, "target": {"type": kind, **target}}}


_HALF = _metric(averageUtilization=50)
_SLOW = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
    "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
        {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
}  # fmt: skip
_KEPT: Final = {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}

# Name -> the spec of the autoscaler, and of each pod: the CPU that it uses (None: not known), its age, is it ready.
_CASES: Final[dict[str, tuple[Document, list[tuple[int | None, timedelta, bool]]]]] = {
    "above": ({"metrics": [_HALF]}, [(100, _OLD, True)] * 3),
    "within": ({"metrics": [_HALF]}, [(54, _OLD, True)] * 3),
    "below": ({"metrics": [_HALF]}, [(10, _OLD, True)] * 3),
    "far": ({"metrics": [_HALF], "maxReplicas": 50}, [(900, _OLD, True)] * 3),
    "bounded": ({"metrics": [_HALF], "maxReplicas": 4}, [(200, _OLD, True)] * 3),
    "missing": ({"metrics": [_HALF]}, [(100, _OLD, True), (100, _OLD, True), (None, _OLD, True)]),
    "missing-below": ({"metrics": [_HALF]}, [(10, _OLD, True), (10, _OLD, True), (None, _OLD, True)]),
    "unready": ({"metrics": [_HALF]}, [(100, _OLD, True), (100, _OLD, True), (100, _NEW, False)]),
    "fresh": ({"metrics": [_HALF]}, [(100, _NEW, True)] * 3),
    "average": ({"metrics": [_metric(averageValue="40m")]}, [(100, _OLD, True)] * 3),
    "memory": ({"metrics": [_metric("memory", averageUtilization=20)]}, [(100, _OLD, True), (50, _NEW, True)]),
    "decimal": ({"metrics": [_metric("memory", averageUtilization=20)]}, [(100, _OLD, True), (50, _NEW, True)]),
    "two": ({"metrics": [_HALF, _metric("memory", averageValue="30Mi")]}, [(10, _OLD, True)] * 2),
    "slow-up": ({"metrics": [_HALF], "behavior": _SLOW}, [(100, _OLD, True)] * 3),
    "slow-down": ({"metrics": [_HALF], "behavior": _SLOW}, [(5, _OLD, True)] * 6),
    "kept": ({"metrics": [_HALF], **_KEPT}, [(5, _OLD, True)] * 3),
    "container": (
        {"metrics": [{"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": "main", "target": {"type": "Utilization", "averageUtilization": 40}}}]},
        [(70, _OLD, True)] * 2,
    ),
    "beyond": ({"metrics": [_HALF], "maxReplicas": 2}, [(10, _OLD, True)] * 3),
    "no-pods": ({"metrics": [_HALF], "minReplicas": 2}, []),
}  # fmt: skip


def test_the_same_usage_leads_to_the_same_status(real_programs: RealPrograms, tmp_path: Path) -> None:
    program = real_programs.kubernetes / "kube-controller-manager"
    if not program.is_file():
        pytest.skip(f"{program} is absent")
    found = [
        _statuses(folder, control)
        for folder, control in (
            (tmp_path / "real", lambda kubeconfig, log: controller_manager(program, kubeconfig, log, [_NAME])),
            (tmp_path / "ours", lambda kubeconfig, log: our_controllers(kubeconfig, log, [_NAME])),
        )
    ]
    real, ours = found
    assert {name: ours[name] for name in _CASES if ours[name] != real[name]} == {
        name: real[name] for name in _CASES if ours[name] != real[name]
    }


def _statuses(
    folder: Path, control: Callable[[Path, Path], AbstractContextManager[None]]
) -> dict[str, tuple[Document, int]]:
    """The status of each autoscaler after its first look, and how many replicas its target has then."""
    folder.mkdir()
    with embedded_server(folder) as kubeconfig:
        server = ApiServer(kubeconfig)
        _prepare(server)
        with control(kubeconfig, folder / "log"):
            until(lambda: all(_autoscaler(server, name)["status"] for name in _CASES), _SECONDS, "all conditions")
            return {name: (_shown(_autoscaler(server, name)), _replicas(server, name)) for name in _CASES}


def _autoscaler(server: ApiServer, name: str) -> Document:
    path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
    found = server.request("GET", path).body
    return {"status": {}} if not (found.get("status") or {}).get("conditions") else found


def _replicas(server: ApiServer, name: str) -> int:
    spec = server.request("GET", f"/apis/apps/v1/namespaces/default/deployments/{name}").body["spec"]
    return int(spec["replicas"])


def _shown(found: Document) -> Document:
    """Without what goes by the clock."""
    status: Document = found["status"]
    conditions = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in status["conditions"]]
    return {**status, "conditions": conditions, "lastScaleTime": "lastScaleTime" in status}


def _prepare(server: ApiServer) -> None:
    for definition in custom_resource_definitions():
        if definition["spec"]["names"]["plural"] == "nodemetrics":
            _create(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    now = datetime.now(UTC)
    usages: list[Document] = []
    for name, (spec, pods) in _CASES.items():
        _create_target(server, name, len(pods), spec)
        for number, (cpu, age, ready) in enumerate(pods):
            _create_pod(server, name, number, now - age, ready=ready)
            if cpu is not None:
                amounts = {"cpu": f"{cpu}m", "memory": f"{cpu}{'M' if name == 'decimal' else 'Mi'}"}
                usages.append({"namespace": "default", "name": f"{name}-{number}", "podUsage": {"resources": amounts}})
    _create(server, "/api/v1/nodes", {"metadata": {"name": "n"}})
    metrics = f"/apis/{NODE_METRICS.api_version}/{NODE_METRICS.plural}"
    until(lambda: server.request("GET", metrics).code == 200, _SECONDS, "NodeMetrics to be served")
    kind = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.name}
    _create(server, metrics, {**kind, "metadata": {"name": "n"}, "spec": {}})
    status = {"status": {"updateTime": now.isoformat(), "podsMetric": usages}}
    assert server.request("PATCH", f"{metrics}/n/status", status).code == 200


def _create_target(server: ApiServer, name: str, replicas: int, spec: Document) -> None:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": max(1, replicas), "selector": selector, "template": template}
    _create(server, "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": name}, "spec": body})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    given = {"metadata": {"name": name}, "spec": {"maxReplicas": 10, "scaleTargetRef": target, **spec}}
    _create(server, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", given)


def _create_pod(server: ApiServer, app: str, number: int, started: datetime, *, ready: bool) -> None:
    name, since = f"{app}-{number}", started.strftime("%Y-%m-%dT%H:%M:%SZ")
    requests = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "i", "resources": requests}]}
    _create(
        server, "/api/v1/namespaces/default/pods", {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
    )
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    status = {"status": {"phase": "Running", "startTime": since, "conditions": [condition]}}
    assert server.request("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", status).code == 200


def _create(server: ApiServer, path: str, body: Document) -> None:
    made = server.request("POST", path, body)
    assert made.code == 201, made.message
