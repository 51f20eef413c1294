"""The question on the wire, field by field."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Document, allow, envelope, patch

_VOLATILE = ("managedFields", "uid", "creationTimestamp", "resourceVersion")


def _comparable(value: Any) -> Any:
    """Without times, identifiers and field managers; whether they are there is compared all the same."""
    if isinstance(value, dict):
        return {
            key: "…" if key in _VOLATILE else _comparable(item) for key, item in value.items() if key != "managedFields"
        }
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def _request(cluster: WebhookCluster, index: int = 0) -> Document:
    request: Document = _comparable(cluster.server.requests[index].request)
    # Only where users have identifiers.
    request["userInfo"].pop("uid", None)
    return request


def _common(cluster: WebhookCluster, operation: str, **options: Any) -> Document:
    return {
        "uid": "…",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a",
        "namespace": cluster.namespace,
        "operation": operation,
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "dryRun": False,
        "options": {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1", **options},
    }


def _stored(cluster: WebhookCluster, **data: str) -> Document:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": cluster.namespace,
            "uid": "…",
            "creationTimestamp": "…",
            "resourceVersion": "…",
        },
        "data": data,
    }


def case_the_question_about_a_new_object(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutating"))
    cluster.register("validating", cluster.webhook("b.example.com", "/validating"))
    path = f"{cluster.path('configmaps')}?fieldManager=me&fieldValidation=Strict"
    cluster.request("POST", path, config_map("a", x="1"))
    review = cluster.server.requests[0].review
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    common = {**_common(cluster, "CREATE", fieldManager="me", fieldValidation="Strict"), "oldObject": None}
    stored = _stored(cluster, x="1")
    del stored["metadata"]["resourceVersion"]
    sent = {**stored, "metadata": {"name": "a", "namespace": cluster.namespace}}
    assert _request(cluster, 0) == {**common, "object": sent}
    assert _request(cluster, 1) == {**common, "object": stored}


def case_the_question_about_a_change(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    rules = [rule("configmaps", "UPDATE")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutating", rules=rules))
    cluster.register("validating", cluster.webhook("b.example.com", "/validating", rules=rules))
    cluster.request("POST", cluster.path("configmaps"), config_map("a", x="1"))
    cluster.request("PATCH", f"{cluster.path('configmaps', 'a')}?fieldManager=me", {"data": {"x": "2"}})
    expected = {
        **_common(cluster, "UPDATE", fieldManager="me"),
        "object": _stored(cluster, x="2"),
        "oldObject": _stored(cluster, x="1"),
    }
    assert _request(cluster, 0) == expected
    assert _request(cluster, 1) == expected


def case_the_question_about_a_deletion(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    rules = [rule("configmaps", "DELETE")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutating", rules=rules))
    cluster.register("validating", cluster.webhook("b.example.com", "/validating", rules=rules))
    cluster.request("POST", cluster.path("configmaps"), config_map("a", x="1"))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
    cluster.request("DELETE", cluster.path("configmaps", "a"), options)
    expected = {
        **_common(cluster, "DELETE", propagationPolicy="Background", gracePeriodSeconds=0),
        "object": None,
        "oldObject": _stored(cluster, x="1"),
    }
    assert _request(cluster, 0) == expected
    assert _request(cluster, 1) == expected


def case_the_pod_that_webhooks_see(cluster: WebhookCluster) -> None:
    """A mutating one what built-in admission made of it, a validating one what is stored."""
    cluster.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutating", rules=[rule("pods")]))
    cluster.register("validating", cluster.webhook("b.example.com", "/validating", rules=[rule("pods")]))
    stored = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert stored.code == 201, stored.message
    expected = _comparable(stored.body)
    del expected["metadata"]["resourceVersion"]
    assert _request(cluster, 1)["object"] == expected
    metadata = {"name": "p", "namespace": cluster.namespace}
    assert _request(cluster, 0)["object"] == {**expected, "metadata": metadata, "status": {}}


def case_the_question_about_a_name_to_be(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/mutating"] = allow()
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutating"))
    cluster.request("POST", cluster.path("configmaps"), {"metadata": {"generateName": "made-"}})
    request = _request(cluster)
    assert "name" not in request
    assert request["object"]["metadata"] == {"generateName": "made-", "namespace": cluster.namespace}


def case_the_pod_that_goes(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/validating"] = allow()
    cluster.register("validating", cluster.webhook("a.example.com", "/validating", rules=[rule("pods", "DELETE")]))
    cluster.request("POST", cluster.path("pods"), pod("p"))
    cluster.request("DELETE", cluster.path("pods", "p"), {"kind": "DeleteOptions", "apiVersion": "v1"})
    request = _request(cluster)
    assert request["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0}
    assert "deletionTimestamp" not in request["oldObject"]["metadata"]


def case_the_old_version_of_the_review(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/old"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}}, patchType=None)
    cluster.register(
        "mutating", cluster.webhook("a.example.com", "/old", admissionReviewVersions=["v2", "v1beta1", "v1"])
    )
    reply = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.requests[0].review["apiVersion"] == "admission.k8s.io/v1beta1"
    assert reply.body["data"] == {"a": "1"}


def case_the_old_version_knows_one_kind_of_patch(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/old"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}}, patchType="Merge")
    cluster.register("mutating", cluster.webhook("a.example.com", "/old", admissionReviewVersions=["v1beta1"]))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).body["data"] == {"a": "1"}


def case_the_old_version_takes_any_uid(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/old"] = envelope(response={"allowed": True})
    cluster.register("validating", cluster.webhook("a.example.com", "/old", admissionReviewVersions=["v1beta1"]))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).code == 201
