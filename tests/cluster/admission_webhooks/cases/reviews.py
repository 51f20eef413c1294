"""The question on the wire, field by field."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_server import Document, allow, envelope, patch
from tests.cluster.admission_webhooks.world import World, rule

_VOLATILE = ("managedFields", "uid", "creationTimestamp", "resourceVersion")


def _comparable(value: Any) -> Any:
    """Without times, identifiers and field managers; whether they are there is compared all the same."""
    if isinstance(value, dict):
        return {
            key: "…" if key in _VOLATILE else _comparable(item) for key, item in value.items() if key != "managedFields"
        }
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def _request(world: World, index: int = 0) -> Document:
    request: Document = _comparable(world.server.asked[index].request)
    # Only where users have identifiers.
    request["userInfo"].pop("uid", None)
    return request


def _common(world: World, operation: str, **options: Any) -> Document:
    return {
        "uid": "…",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a",
        "namespace": world.namespace,
        "operation": operation,
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "dryRun": False,
        "options": {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1", **options},
    }


def _stored(world: World, **data: str) -> Document:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": world.namespace,
            "uid": "…",
            "creationTimestamp": "…",
            "resourceVersion": "…",
        },
        "data": data,
    }


def case_the_question_about_a_new_object(world: World) -> None:
    world.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    world.register("mutating", world.webhook("a.example.com", "/mutating"))
    world.register("validating", world.webhook("b.example.com", "/validating"))
    path = f"{world.path('configmaps')}?fieldManager=me&fieldValidation=Strict"
    world.request("POST", path, config_map("a", x="1"))
    review = world.server.asked[0].review
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    common = {**_common(world, "CREATE", fieldManager="me", fieldValidation="Strict"), "oldObject": None}
    stored = _stored(world, x="1")
    del stored["metadata"]["resourceVersion"]
    sent = {**stored, "metadata": {"name": "a", "namespace": world.namespace}}
    assert _request(world, 0) == {**common, "object": sent}
    assert _request(world, 1) == {**common, "object": stored}


def case_the_question_about_a_change(world: World) -> None:
    world.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    rules = [rule("configmaps", "UPDATE")]
    world.register("mutating", world.webhook("a.example.com", "/mutating", rules=rules))
    world.register("validating", world.webhook("b.example.com", "/validating", rules=rules))
    world.request("POST", world.path("configmaps"), config_map("a", x="1"))
    world.request("PATCH", f"{world.path('configmaps', 'a')}?fieldManager=me", {"data": {"x": "2"}})
    expected = {
        **_common(world, "UPDATE", fieldManager="me"),
        "object": _stored(world, x="2"),
        "oldObject": _stored(world, x="1"),
    }
    assert _request(world, 0) == expected
    assert _request(world, 1) == expected


def case_the_question_about_a_deletion(world: World) -> None:
    world.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    rules = [rule("configmaps", "DELETE")]
    world.register("mutating", world.webhook("a.example.com", "/mutating", rules=rules))
    world.register("validating", world.webhook("b.example.com", "/validating", rules=rules))
    world.request("POST", world.path("configmaps"), config_map("a", x="1"))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
    world.request("DELETE", world.path("configmaps", "a"), options)
    expected = {
        **_common(world, "DELETE", propagationPolicy="Background", gracePeriodSeconds=0),
        "object": None,
        "oldObject": _stored(world, x="1"),
    }
    assert _request(world, 0) == expected
    assert _request(world, 1) == expected


def case_the_pod_that_webhooks_see(world: World) -> None:
    """A mutating one what built-in admission made of it, a validating one what is stored."""
    world.server.behaviours |= {"/mutating": allow(), "/validating": allow()}
    world.register("mutating", world.webhook("a.example.com", "/mutating", rules=[rule("pods")]))
    world.register("validating", world.webhook("b.example.com", "/validating", rules=[rule("pods")]))
    stored = world.request("POST", world.path("pods"), pod("p"))
    assert stored.code == 201, stored.message
    expected = _comparable(stored.body)
    del expected["metadata"]["resourceVersion"]
    assert _request(world, 1)["object"] == expected
    metadata = {"name": "p", "namespace": world.namespace}
    assert _request(world, 0)["object"] == {**expected, "metadata": metadata, "status": {}}


def case_the_question_about_a_name_to_be(world: World) -> None:
    world.server.behaviours["/mutating"] = allow()
    world.register("mutating", world.webhook("a.example.com", "/mutating"))
    world.request("POST", world.path("configmaps"), {"metadata": {"generateName": "made-"}})
    request = _request(world)
    assert "name" not in request
    assert request["object"]["metadata"] == {"generateName": "made-", "namespace": world.namespace}


def case_the_pod_that_goes(world: World) -> None:
    world.server.behaviours["/validating"] = allow()
    world.register("validating", world.webhook("a.example.com", "/validating", rules=[rule("pods", "DELETE")]))
    world.request("POST", world.path("pods"), pod("p"))
    world.request("DELETE", world.path("pods", "p"), {"kind": "DeleteOptions", "apiVersion": "v1"})
    request = _request(world)
    assert request["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0}
    assert "deletionTimestamp" not in request["oldObject"]["metadata"]


def case_the_old_version_of_the_review(world: World) -> None:
    world.server.behaviours["/old"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}}, patchType=None)
    world.register("mutating", world.webhook("a.example.com", "/old", admissionReviewVersions=["v2", "v1beta1", "v1"]))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.asked[0].review["apiVersion"] == "admission.k8s.io/v1beta1"
    assert answer.body["data"] == {"a": "1"}


def case_the_old_version_knows_one_kind_of_patch(world: World) -> None:
    world.server.behaviours["/old"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}}, patchType="Merge")
    world.register("mutating", world.webhook("a.example.com", "/old", admissionReviewVersions=["v1beta1"]))
    assert world.request("POST", world.path("configmaps"), config_map("a")).body["data"] == {"a": "1"}


def case_the_old_version_takes_any_uid(world: World) -> None:
    world.server.behaviours["/old"] = envelope(response={"allowed": True})
    world.register("validating", world.webhook("a.example.com", "/old", admissionReviewVersions=["v1beta1"]))
    assert world.request("POST", world.path("configmaps"), config_map("a")).code == 201
