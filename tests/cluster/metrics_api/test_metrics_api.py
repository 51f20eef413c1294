"""metrics.k8s.io over HTTP: what ``kubectl top`` reads, out of NodeMetrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from koordinator.api.document import Document
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import ManualClock
from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import ApiClient, embedded_api, pod

T = TypeVar("T")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
METRICS = "/apis/metrics.k8s.io/v1beta1"
NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _usage(cpu: str, memory: str) -> Document:
    return {"resources": {"cpu": cpu, "memory": memory, "kubernetes.io/batch-cpu": "7"}}


STATUS: Document = {
    "updateTime": "2026-03-01T11:59:30Z",
    "nodeMetric": {"nodeUsage": _usage("1500m", "4Gi")},
    "podsMetric": [
        {"namespace": "default", "name": "web", "podUsage": _usage("250m", "64Mi")},
        {"namespace": "default", "name": "pair", "podUsage": _usage("1", "1Gi")},
        {"namespace": "default", "name": "gone", "podUsage": _usage("1", "1Gi")},
        {"namespace": "kube-system", "name": "dns", "podUsage": _usage("10m", "8Mi")},
    ],
}


def _run(scenario: Callable[[ApiClient], Awaitable[T]], status: Document | None = STATUS) -> T:
    async def main() -> T:
        async with embedded_api(ServerOptions(clock=ManualClock(NOW))) as client:
            if status is not None:
                await _populate(client, status)
            return await scenario(client)

    return asyncio.run(main())


async def _populate(client: ApiClient, status: Document) -> None:
    (definition,) = [d for d in custom_resource_definitions() if d["spec"]["names"]["kind"] == "NodeMetric"]
    await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    await client.post("/api/v1/nodes", {"metadata": {"name": "n", "labels": {"zone": "a"}}})
    await client.post("/api/v1/nodes", {"metadata": {"name": "silent"}})
    for namespace, name, containers in (("default", "web", 1), ("default", "pair", 2), ("kube-system", "dns", 1)):
        body = pod(name)
        body["metadata"]["labels"] = {"app": name}
        body["spec"]["containers"] = [{"name": f"c{number}", "image": "i"} for number in range(containers)]
        await client.post(f"/api/v1/namespaces/{namespace}/pods", body)
    policy = {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}}
    await client.post(NODE_METRICS, {**_node_metric(), "spec": policy})
    response = await client.request(
        "PATCH", f"{NODE_METRICS}/n/status", {"status": status}, content_type="application/merge-patch+json"
    )
    assert response.status == 200, response.body


def _node_metric() -> Document:
    group_version = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    return {**group_version, "metadata": {"name": "n"}}


def _get(path: str, status: Document | None = STATUS, **headers: str) -> Any:
    return _run(lambda client: client.get(METRICS + path, **headers), status)


def _names(found: Document) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


def test_a_node_uses_what_its_node_metric_says() -> None:
    node = _get("/nodes/n")
    created = node["metadata"].pop("creationTimestamp")
    assert node == {
        "kind": "NodeMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "timestamp": "2026-03-01T11:59:30Z",
        "window": "5m0s",
        "usage": {"cpu": "1500m", "memory": "4Gi"},
    }
    assert created


def test_a_pod_uses_what_the_node_metric_of_its_node_says() -> None:
    found = _get("/namespaces/default/pods/web")
    assert (found["kind"], found["metadata"]["labels"], found["window"]) == ("PodMetrics", {"app": "web"}, "5m0s")
    assert found["containers"] == [{"name": "c0", "usage": {"cpu": "250m", "memory": "64Mi"}}]


def test_usage_of_several_containers_is_that_of_the_pod() -> None:
    (container,) = _get("/namespaces/default/pods/pair")["containers"]
    assert container == {"name": "pod", "usage": {"cpu": "1", "memory": "1Gi"}}


def test_nodes_that_never_reported_and_pods_that_are_gone_are_left_out() -> None:
    assert (_names(_get("/nodes")), _names(_get("/pods"))) == (["n"], ["pair", "web", "dns"])


def test_a_list_has_its_kind() -> None:
    assert _get("/nodes")["kind"] == "NodeMetricsList"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/namespaces/default/pods", ["pair", "web"]),
        ("/namespaces/default/pods?labelSelector=app%3Dweb", ["web"]),
        ("/pods?labelSelector=app%21%3Dweb", ["pair", "dns"]),
        ("/pods?fieldSelector=metadata.name%3Ddns", ["dns"]),
        ("/pods?fieldSelector=metadata.namespace%21%3Ddefault", ["dns"]),
        ("/nodes?labelSelector=zone%3Db", []),
    ],
)
def test_selectors_select(path: str, names: list[str]) -> None:
    assert _names(_get(path)) == names


def test_an_unknown_field_selector_is_refused() -> None:
    assert _get("/pods?fieldSelector=spec.nodeName%3Dn")["code"] == 400


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nodes/silent", 'nodemetrics.metrics.k8s.io "silent" not found'),
        ("/namespaces/default/pods/gone", 'podmetrics.metrics.k8s.io "default/gone" not found'),
    ],
)
def test_what_has_no_metrics_is_not_found(path: str, message: str) -> None:
    found = _get(path)
    assert (found["code"], found["message"], found["details"]["name"]) == (404, message, path.rpartition("/")[2])


def test_a_table_shows_what_is_used() -> None:
    table = _get("/nodes", Accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "cpu", "memory", "Window"]
    assert [row["cells"] for row in table["rows"]] == [["n", "1500m", "4Gi", "5m0s"]]


@pytest.mark.parametrize(("minutes", "names"), [(5, ["n"]), (6, [])])
def test_a_report_expires_when_five_more_have_failed_to_come(minutes: int, names: list[str]) -> None:
    reported = (NOW - timedelta(minutes=minutes)).isoformat()[:19] + "Z"
    assert _names(_get("/nodes", {**STATUS, "updateTime": reported})) == names


def test_without_node_metrics_there_are_none() -> None:
    assert _names(_get("/nodes", None)) == []


@pytest.mark.parametrize(("method", "path"), [("POST", "/nodes"), ("DELETE", "/nodes/n"), ("GET", "/nodes?watch=true")])
def test_metrics_are_only_read(method: str, path: str) -> None:
    response = _run(lambda client: client.request(method, METRICS + path, {} if method == "POST" else None))
    assert response.status == 405


def test_discovery_lists_the_group_as_metrics_server_does() -> None:
    found = _run(lambda client: client.get(METRICS), None)
    assert [(entry["name"], entry["singularName"], entry["kind"], entry["verbs"]) for entry in found["resources"]] == [
        ("nodes", "node", "NodeMetrics", ["get", "list"]),
        ("pods", "pod", "PodMetrics", ["get", "list"]),
    ]


def test_openapi_says_how_they_are_read_and_nothing_else() -> None:
    document = _run(lambda client: client.get("/openapi/v3/apis/metrics.k8s.io/v1beta1"), None)
    assert {method for item in document["paths"].values() for method in item} == {"get"}
    assert document["components"]["schemas"]["io.k8s.metrics.v1beta1.NodeMetrics"]["description"]
