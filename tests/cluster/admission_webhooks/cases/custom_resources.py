"""Webhooks on custom resources, whose versions share their objects."""

from __future__ import annotations

import time

from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Document, allow, label, patch

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _define(cluster: WebhookCluster) -> str:
    """A kind with two versions and a status; returns its group."""
    group = f"{cluster.namespace}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions: list[Document] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": {"status": {}}}
        for name in ("v1", "v2")
    ]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    definition = {"metadata": {"name": f"widgets.{group}"}, "spec": spec}
    assert cluster.request("POST", _DEFINITIONS, definition).code == 201
    cluster.definitions.append(f"{_DEFINITIONS}/widgets.{group}")
    end = time.monotonic() + 20
    while any(cluster.request("GET", f"/apis/{group}/{version}/widgets").code != 200 for version in ("v1", "v2")):
        assert time.monotonic() < end, "the kind is not served"
        time.sleep(0.05)
    return group


def _widget(group: str, version: str) -> Document:
    return {"apiVersion": f"{group}/{version}", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}


def _path(cluster: WebhookCluster, group: str, version: str, name: str = "") -> str:
    return f"/apis/{group}/{version}/namespaces/{cluster.namespace}/widgets{name}"


def case_a_custom_resource_is_patched(cluster: WebhookCluster) -> None:
    group = _define(cluster)
    cluster.server.behaviours["/patch"] = patch({"op": "replace", "path": "/spec/size", "value": 2})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("widgets", groups=group)]))
    response = cluster.request("POST", _path(cluster, group, "v1"), _widget(group, "v1"))
    assert (response.code, response.body["spec"], response.body["metadata"]["generation"]) == (201, {"size": 2}, 1)


def case_a_custom_resource_in_another_version(cluster: WebhookCluster) -> None:
    group = _define(cluster)
    cluster.server.behaviours |= {"/patch": label("seen"), "/allow": allow()}
    rules = [rule("widgets", groups=group, versions="v2")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=rules))
    cluster.register("validating", cluster.webhook("b.example.com", "/allow", rules=rules))
    response = cluster.request("POST", _path(cluster, group, "v1"), _widget(group, "v1"))
    assert (response.body["apiVersion"], response.body["metadata"]["labels"]) == (f"{group}/v1", {"seen": "yes"})
    for received in cluster.server.requests:
        assert received.request["object"]["apiVersion"] == f"{group}/v2"
        assert (received.request["kind"]["version"], received.request["requestKind"]["version"]) == ("v2", "v1")


def case_the_status_of_a_custom_resource(cluster: WebhookCluster) -> None:
    group = _define(cluster)
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/hooked", "value": True})
    rules = [rule("widgets/status", "UPDATE", groups=group)]
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=rules))
    cluster.request("POST", _path(cluster, group, "v1"), _widget(group, "v1"))
    response = cluster.request("PATCH", _path(cluster, group, "v1", "/w/status"), {"status": {"ready": True}})
    assert response.body["status"] == {"ready": True, "hooked": True}
