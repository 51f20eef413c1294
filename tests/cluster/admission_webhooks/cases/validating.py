"""Validating webhooks: refusals and their wording, warnings, dry runs, every operation."""

from __future__ import annotations

import threading

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Document, Reply, allow, deny, respond


def case_allowed(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    cluster.register("validating", cluster.webhook("allow.example.com", "/allow"))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).code == 201
    assert cluster.server.paths() == ["/allow"]


def case_a_refusal_names_the_webhook(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="too big", code=403, reason="Forbidden")
    cluster.register("validating", cluster.webhook("deny.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'admission webhook "deny.example.com" denied the request: too big',
        "reason": "Forbidden",
        "code": 403,
    }
    assert response.code == 403
    assert cluster.request("GET", cluster.path("configmaps", "a")).code == 404


def case_a_refusal_without_words(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny()
    cluster.register("validating", cluster.webhook("deny.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    expected = 'admission webhook "deny.example.com" denied the request without explanation'
    assert (response.code, response.message, response.body.get("reason")) == (400, expected, None)


def case_a_refusal_with_a_reason_alone(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(reason="Because", code=200)
    cluster.register("validating", cluster.webhook("deny.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    expected = 'admission webhook "deny.example.com" denied the request: Because'
    assert (response.code, response.message, response.body["reason"]) == (400, expected, "Because")


def case_details_of_a_refusal_are_passed_on(cluster: WebhookCluster) -> None:
    details = {"name": "a", "kind": "configmaps", "causes": [{"reason": "R", "message": "m", "field": "data.a"}]}
    cluster.server.behaviours["/deny"] = deny(message="no", code=422, reason="Invalid", details=details)
    cluster.register("validating", cluster.webhook("deny.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert (response.code, response.body["details"]) == (422, details)


def case_one_refusal_of_two_webhooks_is_enough(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/allow": allow(), "/deny": deny(message="no")}
    cluster.register(
        "validating", cluster.webhook("a.example.com", "/allow"), cluster.webhook("b.example.com", "/deny")
    )
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.message == 'admission webhook "b.example.com" denied the request: no'
    assert sorted(cluster.server.paths()) == ["/allow", "/deny"]


def case_validating_webhooks_are_called_side_by_side(cluster: WebhookCluster) -> None:
    both = threading.Barrier(2)

    def meet(review: Document) -> Reply:
        both.wait(5)
        return allow()(review)

    cluster.server.behaviours |= {"/one": meet, "/two": meet}
    cluster.register("validating", cluster.webhook("a.example.com", "/one"), cluster.webhook("b.example.com", "/two"))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).code == 201


def case_warnings_reach_the_client(cluster: WebhookCluster) -> None:
    """Each text once, whoever says it."""
    cluster.server.behaviours |= {"/one": allow("first", "second"), "/two": allow("first")}
    cluster.register("mutating", cluster.webhook("a.example.com", "/one"))
    cluster.register("validating", cluster.webhook("a.example.com", "/two"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert (response.code, response.warnings) == (201, ["first", "second"])


def case_warnings_come_with_a_refusal(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = respond(allowed=False, warnings=["careful"])
    cluster.register("validating", cluster.webhook("a.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert (response.code, response.warnings) == (400, ["careful"])


def case_every_operation_is_queried_about(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    operations = [rule("configmaps", "CREATE UPDATE DELETE")]
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=operations))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    cluster.request("PUT", cluster.path("configmaps", "a"), config_map("a", x="1"))
    cluster.request("PATCH", cluster.path("configmaps", "a"), {"data": {"x": "2"}})
    cluster.request("DELETE", cluster.path("configmaps", "a"))
    seen = [
        (received.request["operation"], received.request["options"]["kind"]) for received in cluster.server.requests
    ]
    assert seen == [
        ("CREATE", "CreateOptions"),
        ("UPDATE", "UpdateOptions"),
        ("UPDATE", "UpdateOptions"),
        ("DELETE", "DeleteOptions"),
    ]


def case_a_refused_update_changes_nothing(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="frozen")
    operations = [rule("configmaps", "UPDATE")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=operations))
    cluster.request("POST", cluster.path("configmaps"), config_map("a", x="1"))
    response = cluster.request("PATCH", cluster.path("configmaps", "a"), {"data": {"x": "2"}})
    assert response.message == 'admission webhook "a.example.com" denied the request: frozen'
    assert cluster.request("GET", cluster.path("configmaps", "a")).body["data"] == {"x": "1"}


def case_a_patch_that_changes_nothing_is_queried_about(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="frozen")
    operations = [rule("configmaps", "UPDATE")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=operations))
    cluster.request("POST", cluster.path("configmaps"), config_map("a", x="1"))
    assert cluster.request("PATCH", cluster.path("configmaps", "a"), {"data": {"x": "1"}}).code == 400


def case_a_refused_deletion_keeps_the_object(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="kept")
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=[rule("configmaps", "DELETE")]))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    response = cluster.request("DELETE", cluster.path("configmaps", "a"))
    assert response.message == 'admission webhook "a.example.com" denied the request: kept'
    assert cluster.request("GET", cluster.path("configmaps", "a")).code == 200


def case_each_object_of_a_collection_is_queried_about(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    rules = [rule("configmaps", "DELETE")]
    selected = {"matchLabels": {"mine": "yes"}}
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=rules, objectSelector=selected))
    for name in ("a", "b"):
        cluster.request("POST", cluster.path("configmaps"), config_map(name, {"mine": "yes"}))
    assert cluster.request("DELETE", f"{cluster.path('configmaps')}?labelSelector=mine=yes").code == 200
    old = sorted(received.request["oldObject"]["metadata"]["name"] for received in cluster.server.requests)
    assert old == ["a", "b"]
    assert [received.request.get("name") for received in cluster.server.requests] == [None, None]


def case_a_refused_object_stops_a_collection(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="kept")
    rules = [rule("configmaps", "DELETE")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=rules))
    cluster.request("POST", cluster.path("configmaps"), config_map("a", {"mine": "yes"}))
    response = cluster.request("DELETE", f"{cluster.path('configmaps')}?labelSelector=mine=yes")
    assert (response.code, response.message) == (400, 'admission webhook "a.example.com" denied the request: kept')


def case_a_binding_is_queried_about(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="not there")
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=[rule("pods/binding")]))
    assert cluster.request("POST", cluster.path("pods"), pod("p")).code == 201
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    response = cluster.request("POST", cluster.path("pods", "p/binding"), binding)
    assert response.message == 'admission webhook "a.example.com" denied the request: not there'
    (received,) = cluster.server.requests
    assert received.request["kind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert (received.request["name"], received.request["subResource"]) == ("p", "binding")
    assert received.request["object"]["target"] == {"kind": "Node", "name": "n"}


def case_a_status_is_queried_about(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="no")
    name = f"node-{cluster.namespace}"
    rules = [rule("nodes/status", "UPDATE")]
    selected = {"matchLabels": cluster.labels}
    webhook = cluster.webhook("a.example.com", "/deny", rules=rules, namespaceSelector={}, objectSelector=selected)
    cluster.register("validating", webhook)
    node = {"metadata": {"name": name, "labels": cluster.labels}}
    assert cluster.request("POST", "/api/v1/nodes", node).code == 201
    response = cluster.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}})
    assert response.message == 'admission webhook "a.example.com" denied the request: no'
    assert cluster.request("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"a": "b"}}}).code == 200
    assert cluster.server.paths() == ["/deny"]
    cluster.request("DELETE", f"/api/v1/nodes/{name}")


def case_built_in_validation_comes_before_validating_webhooks(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="no")
    cluster.register("validating", cluster.webhook("a.example.com", "/deny"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("Upper"))
    assert (response.code, cluster.server.paths()) == (422, [])


def case_a_dry_run_is_announced(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", sideEffects="NoneOnDryRun"))
    path = f"{cluster.path('configmaps')}?dryRun=All&fieldManager=me"
    assert cluster.request("POST", path, config_map("a")).code == 201
    (received,) = cluster.server.requests
    assert received.request["dryRun"] is True
    assert received.request["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "dryRun": ["All"],
        "fieldManager": "me",
    }


def case_validating_webhooks_see_the_generated_name(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    cluster.register("validating", cluster.webhook("a.example.com", "/allow"))
    document = {"metadata": {"generateName": "made-"}}
    response = cluster.request("POST", cluster.path("configmaps"), document)
    (received,) = cluster.server.requests
    assert received.request["name"] == response.body["metadata"]["name"]
