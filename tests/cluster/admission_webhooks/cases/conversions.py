"""Custom resources whose versions a webhook converts: ``size`` of v1 is ``width`` of v2."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.cluster.admission_webhooks.api_server import HttpResponse
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Behaviour, Document, Reply, allow, raw

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIELDS = {"v1": "size", "v2": "width"}


def _converted(obj: Document, api_version: str) -> Document:
    (value,) = obj["spec"].values()
    field = _FIELDS[api_version.rpartition("/")[2]]
    return {**obj, "apiVersion": api_version, "spec": {field: value}}


def _convert(change: Callable[[Document], Document] = lambda obj: obj, **response: Any) -> Behaviour:
    """A good response, in which each object is changed; ``response`` replaces its fields."""

    def behave(review: Document) -> Reply:
        request = review["request"]
        objects = [change(_converted(obj, request["desiredAPIVersion"])) for obj in request["objects"]]
        good = {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
        envelope = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {**good, **response}}
        return Reply(json.dumps(envelope).encode())

    return behave


def _definition(cluster: WebhookCluster, storage: str = "v1") -> Document:
    group = f"{cluster.namespace}.example.com"
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {field: {"type": "integer", "maximum": 100}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            },
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": f".spec.{field}", "statusReplicasPath": ".status.replicas"},
            },
        }
        for name, field in _FIELDS.items()
    ]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    webhook = {"clientConfig": cluster.client("/convert"), "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions, "conversion": conversion}
    return {"metadata": {"name": f"widgets.{group}"}, "spec": spec}


def _define(cluster: WebhookCluster) -> None:
    definition = _definition(cluster)
    path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
    response = cluster.request("POST", _DEFINITIONS, definition)
    assert response.code == 201, response.message
    cluster.definitions.append(path)
    cluster.server.behaviours["/convert"] = _convert()
    end = time.monotonic() + 20
    while any(cluster.request("GET", _path(cluster, version)).code != 200 for version in _FIELDS):
        assert time.monotonic() < end, "the kind is not served"
        time.sleep(0.05)


def _path(cluster: WebhookCluster, version: str, name: str = "") -> str:
    return f"/apis/{cluster.namespace}.example.com/{version}/namespaces/{cluster.namespace}/widgets{name}"


def _create(cluster: WebhookCluster, version: str, name: str = "w", value: int = 1) -> HttpResponse:
    spec = {_FIELDS[version]: value}
    body = {"apiVersion": f"{cluster.namespace}.example.com/{version}", "kind": "Widget", "spec": spec}
    return cluster.request("POST", _path(cluster, version), {**body, "metadata": {"name": name}})


def case_an_object_is_shown_in_each_version(cluster: WebhookCluster) -> None:
    _define(cluster)
    created = _create(cluster, "v1")
    assert (created.code, created.body["spec"]) == (201, {"size": 1})
    shown = cluster.request("GET", _path(cluster, "v2", "/w")).body
    assert (shown["apiVersion"], shown["spec"]) == (f"{cluster.namespace}.example.com/v2", {"width": 1})
    assert shown["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    items = cluster.request("GET", _path(cluster, "v2")).body["items"]
    assert [(item["apiVersion"], item["spec"]) for item in items] == [(shown["apiVersion"], {"width": 1})]


def case_a_write_is_stored_in_the_storage_version(cluster: WebhookCluster) -> None:
    _define(cluster)
    created = _create(cluster, "v2", value=3)
    assert (created.code, created.body["spec"], created.body["metadata"]["generation"]) == (201, {"width": 3}, 1)
    cluster.server.requests.clear()
    assert cluster.request("GET", _path(cluster, "v1", "/w")).body["spec"] == {"size": 3}
    assert cluster.server.requests == []
    changed = cluster.request("PATCH", _path(cluster, "v2", "/w"), {"spec": {"width": 4}})
    assert (changed.code, changed.body["spec"], changed.body["metadata"]["generation"]) == (200, {"width": 4}, 2)
    assert cluster.request("GET", _path(cluster, "v1", "/w")).body["spec"] == {"size": 4}
    status = cluster.request("PATCH", _path(cluster, "v2", "/w/status"), {"status": {"replicas": 2}})
    assert (status.code, status.body["spec"], status.body["status"]) == (200, {"width": 4}, {"replicas": 2})
    refused = cluster.request("PATCH", _path(cluster, "v2", "/w"), {"spec": {"width": 101}})
    assert (refused.code, "spec.width" in refused.message) == (422, True)
    deleted = cluster.request("DELETE", _path(cluster, "v2", "/w"))
    assert (deleted.code, deleted.body["status"]) == (200, "Success")


def case_a_scale_in_each_version(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1", value=3)
    assert cluster.request("GET", _path(cluster, "v2", "/w/scale")).body["spec"] == {"replicas": 3}
    changed = cluster.request("PATCH", _path(cluster, "v2", "/w/scale"), {"spec": {"replicas": 5}})
    assert (changed.code, changed.body["spec"]) == (200, {"replicas": 5})
    assert cluster.request("GET", _path(cluster, "v1", "/w")).body["spec"] == {"size": 5}


def case_the_review(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1")
    cluster.server.requests.clear()
    cluster.request("GET", _path(cluster, "v2", "/w"))
    review = next(each.review for each in cluster.server.requests if each.path == "/convert")
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    request = review["request"]
    assert request["desiredAPIVersion"] == f"{cluster.namespace}.example.com/v2"
    (obj,) = request["objects"]
    assert (obj["apiVersion"], obj["kind"]) == (f"{cluster.namespace}.example.com/v1", "Widget")
    assert obj["metadata"]["uid"]


def case_a_conversion_changes_labels_and_annotations_alone(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1")

    def change(obj: Document) -> Document:
        changed = {**obj["metadata"], "labels": {"a": "b"}, "finalizers": ["example.com/f"], "generation": 7}
        return {**obj, "metadata": changed}

    cluster.server.behaviours["/convert"] = _convert(change)
    metadata = cluster.request("GET", _path(cluster, "v2", "/w")).body["metadata"]
    assert (metadata["labels"], metadata["generation"], "finalizers" in metadata) == ({"a": "b"}, 1, False)


def case_a_watch_in_another_version(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1")
    event = cluster.request("GET", _path(cluster, "v2") + "?watch=true&timeoutSeconds=1").body
    assert (event["type"], event["object"]["spec"]) == ("ADDED", {"width": 1})
    assert event["object"]["apiVersion"] == f"{cluster.namespace}.example.com/v2"


def case_the_storage_version_changes(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1", "old", 1)
    definition = _definition(cluster, storage="v2")
    path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
    response = cluster.request("PATCH", path, {"spec": {"versions": definition["spec"]["versions"]}})
    assert (response.code, response.body["status"]["storedVersions"]) == (200, ["v1", "v2"])
    end = time.monotonic() + 20
    while _create(cluster, "v2", "new", 2).code != 201:
        assert time.monotonic() < end, "the kind is not served"
        time.sleep(0.05)
    for version, field in _FIELDS.items():
        for name, value in (("old", 1), ("new", 2)):
            assert cluster.request("GET", _path(cluster, version, f"/{name}")).body["spec"] == {field: value}
    assert cluster.request("PATCH", _path(cluster, "v1", "/old"), {"spec": {"size": 9}}).body["spec"] == {"size": 9}
    assert cluster.request("GET", _path(cluster, "v2", "/old")).body["spec"] == {"width": 9}


def _in_metadata(field: str, value: str) -> Callable[[Document], Document]:
    return lambda obj: {**obj, "metadata": {**obj["metadata"], field: value}}


def case_a_conversion_fails(cluster: WebhookCluster) -> None:
    _define(cluster)
    _create(cluster, "v1")
    said = f"conversion webhook for {cluster.namespace}.example.com/v1, Kind=Widget"
    wanted = f"{cluster.namespace}.example.com/v2"
    failed, of_type = f"{said} failed:", f"{said} returned invalid object at index 0:"
    unnamed = "response.result.status was 'Failure', not 'Success'"
    for behaviour, message in (
        (_convert(result={"status": "Failure", "message": "no such width"}), f"{failed} no such width"),
        (_convert(result={"status": "Failure"}), f"{failed} {unnamed}"),
        (_convert(convertedObjects=[]), f"{said} returned 0 objects, expected 1"),
        (_convert(uid="other"), f'{failed} expected response.uid="UID", got "other"'),
        (_convert(_in_metadata("name", "x")), f"{said} returned invalid object: must have the same name: w != x"),
        (_convert(_in_metadata("uid", "x")), f"{said} returned invalid object: must have the same UID: UID != x"),
        (
            _convert(lambda obj: {**obj, "kind": "Gadget"}),
            f"{of_type} invalid kind (expected Widget, received Gadget)",
        ),
        (
            _convert(lambda obj: {**obj, "apiVersion": "a.b/v1"}),
            f"{of_type} invalid groupVersion (expected {wanted}, received a.b/v1)",
        ),
        (raw("gone", 404, "text/plain"), f"{failed} the server could not find the requested resource"),
    ):
        cluster.server.behaviours["/convert"] = behaviour
        response = cluster.request("GET", _path(cluster, "v2", "/w"))
        found = (response.code, response.body.get("reason"), _UID.sub("UID", response.message))
        assert found == (500, None, message)


def case_a_conversion_webhook_that_cannot_be_reached(cluster: WebhookCluster) -> None:
    """What is read and written in the storage version needs none."""
    _define(cluster)
    _create(cluster, "v1")
    path = f"{_DEFINITIONS}/widgets.{cluster.namespace}.example.com"
    client = {"service": {"namespace": cluster.namespace, "name": "none", "path": "/convert"}, "url": None}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    assert cluster.request("PATCH", path, {"spec": {"conversion": {"webhook": webhook}}}).code == 200
    url = f"https://none.{cluster.namespace}.svc:443/convert?timeout=30s"
    message = (
        f"conversion webhook for {cluster.namespace}.example.com/v1, Kind=Widget failed: "
        f'Post "{url}": service "none" not found'
    )
    end = time.monotonic() + 20
    while (response := cluster.request("GET", _path(cluster, "v2", "/w"))).code == 200:
        assert time.monotonic() < end, "the change is not in force"
        time.sleep(0.05)
    assert (response.code, response.message) == (500, message)
    assert _create(cluster, "v2", "other").code == 500
    assert cluster.request("GET", _path(cluster, "v1", "/w")).code == 200
    assert cluster.request("PATCH", _path(cluster, "v1", "/w"), {"spec": {"size": 2}}).code == 200
    assert cluster.request("DELETE", _path(cluster, "v1", "/w")).code == 200


def case_an_admission_webhook_for_another_version(cluster: WebhookCluster) -> None:
    _define(cluster)
    group = f"{cluster.namespace}.example.com"
    cluster.server.behaviours["/allow"] = allow()
    rules = [rule("widgets", groups=group, versions="v2")]
    cluster.register("validating", cluster.webhook("b.example.com", "/allow", rules=rules))
    assert _create(cluster, "v1", value=7).code == 201
    (received,) = [each for each in cluster.server.requests if each.path == "/allow"]
    assert (received.request["object"]["apiVersion"], received.request["object"]["spec"]) == (
        f"{group}/v2",
        {"width": 7},
    )
