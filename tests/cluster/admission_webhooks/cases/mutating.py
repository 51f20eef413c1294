"""Mutating webhooks: patches, order, defaults after them, reinvocation."""

from __future__ import annotations

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import allow, deny, label, patch, respond


def case_a_patch_is_applied(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert (response.code, response.body["data"]) == (201, {"a": "1"})


def case_configurations_go_by_name_and_webhooks_by_place(cluster: WebhookCluster) -> None:
    for name in ("one", "two", "three"):
        cluster.server.behaviours[f"/{name}"] = allow()
    cluster.register("mutating", cluster.webhook("z.example.com", "/three"), name="m2")
    cluster.register(
        "mutating", cluster.webhook("b.example.com", "/one"), cluster.webhook("a.example.com", "/two"), name="m1"
    )
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.paths() == ["/one", "/two", "/three"]


def case_the_next_webhook_sees_the_change(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/one": label("one"), "/two": label("two")}
    cluster.register("mutating", cluster.webhook("a.example.com", "/one"), cluster.webhook("b.example.com", "/two"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.body["metadata"]["labels"] == {"one": "yes", "two": "yes"}


def case_a_change_can_make_the_next_webhook_match(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/one": label("one"), "/two": label("two")}
    later = cluster.webhook("b.example.com", "/two", objectSelector={"matchLabels": {"one": "yes"}})
    cluster.register("mutating", cluster.webhook("a.example.com", "/one"), later)
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.body["metadata"]["labels"] == {"one": "yes", "two": "yes"}


def case_mutating_comes_before_validating(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/patch": label("seen"), "/allow": allow()}
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    cluster.register("validating", cluster.webhook("b.example.com", "/allow"))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.paths() == ["/patch", "/allow"]
    assert cluster.server.requests[1].request["object"]["metadata"]["labels"] == {"seen": "yes"}


def case_a_mutating_webhook_may_refuse(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/deny": deny(message="no"), "/allow": allow()}
    cluster.register("mutating", cluster.webhook("a.example.com", "/deny"), cluster.webhook("b.example.com", "/allow"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.message == 'admission webhook "a.example.com" denied the request: no'
    assert cluster.server.paths() == ["/deny"]


def case_mutating_webhooks_come_before_built_in_validation(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "replace", "path": "/metadata/name", "value": "Upper"})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert (response.code, response.body["reason"]) == (422, "Invalid")


def case_what_a_patch_adds_gets_defaults(cluster: WebhookCluster) -> None:
    container = {"name": "side", "image": "side:1"}
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/spec/containers/-", "value": container})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    response = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert response.code == 201, response.message
    assert response.body["spec"]["containers"][1] == {
        "name": "side",
        "image": "side:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def case_a_status_that_a_webhook_writes_on_creation_is_dropped(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/phase", "value": "Failed"})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    response = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert response.body["status"]["phase"] == "Pending"


def case_replacing_a_field_that_is_absent_sets_it(cluster: WebhookCluster) -> None:
    """RFC 6902 forbids it; the real server's library does it, and webhooks rely on that."""
    cluster.server.behaviours["/patch"] = patch({"op": "replace", "path": "/immutable", "value": True})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).body["immutable"] is True


def case_a_priority_class_without_its_number_is_refused(cluster: WebhookCluster) -> None:
    """Built-in admission looks again after webhooks: it computed another number for the class that was there."""
    change = patch({"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"})
    cluster.server.behaviours["/patch"] = change
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    response = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert (response.code, response.message) == (
        403,
        'pods "p" is forbidden: the integer value of priority (0) must not be provided in pod spec; '
        "priority admission controller computed 2000001000 from the given PriorityClass name",
    )


def case_a_priority_class_with_its_number_is_taken(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch(
        {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"},
        {"op": "add", "path": "/spec/priority", "value": 2000001000},
    )
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    response = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert (response.code, response.body["spec"]["priority"]) == (201, 2000001000)


def case_an_update_is_patched(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = label("touched")
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("configmaps", "UPDATE")]))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    response = cluster.request("PATCH", cluster.path("configmaps", "a"), {"data": {"x": "1"}})
    assert response.body["metadata"]["labels"] == {"touched": "yes"}
    assert response.body["data"] == {"x": "1"}


def case_a_status_update_is_patched(cluster: WebhookCluster) -> None:
    condition = {"type": "Hooked", "status": "True"}
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/conditions", "value": [condition]})
    name = f"node-{cluster.namespace}"
    webhook = cluster.webhook(
        "a.example.com",
        "/patch",
        rules=[rule("nodes/status", "UPDATE")],
        namespaceSelector={},
        objectSelector={"matchLabels": cluster.labels},
    )
    cluster.register("mutating", webhook)
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": cluster.labels}})
    response = cluster.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}})
    assert [found["type"] for found in response.body["status"]["conditions"]] == ["Hooked"]
    cluster.request("DELETE", f"/api/v1/nodes/{name}")


def case_a_deletion_cannot_be_patched(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/data", "value": {}})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("configmaps", "DELETE")]))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    response = cluster.request("DELETE", cluster.path("configmaps", "a"))
    assert (response.code, response.message) == (
        500,
        'Internal error occurred: admission webhook "a.example.com" attempted to modify the object, '
        "which is not supported for this operation",
    )


def case_a_binding_is_patched(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "replace", "path": "/target/name", "value": "other"})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods/binding")]))
    cluster.request("POST", cluster.path("pods"), pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert cluster.request("POST", cluster.path("pods", "p/binding"), binding).code == 201
    assert cluster.request("GET", cluster.path("pods", "p")).body["spec"]["nodeName"] == "other"


def case_who_wants_to_is_called_again_after_a_change(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/first": allow(), "/second": label("second"), "/third": allow()}
    cluster.register(
        "mutating",
        cluster.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        cluster.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
        cluster.webhook("c.example.com", "/third", reinvocationPolicy="IfNeeded"),
    )
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.paths() == ["/first", "/second", "/third", "/first"]
    assert cluster.server.requests[3].request["object"]["metadata"]["labels"] == {"second": "yes"}


def case_nobody_is_called_again_without_a_change(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/first": allow(), "/second": allow()}
    cluster.register(
        "mutating",
        cluster.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        cluster.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
    )
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.paths() == ["/first", "/second"]


def case_taking_away_what_is_a_default_is_a_change(cluster: WebhookCluster) -> None:
    """Though the default takes its place."""
    cluster.server.behaviours |= {
        "/first": allow(),
        "/second": patch({"op": "remove", "path": "/spec/restartPolicy"}),
    }
    rules = [rule("pods")]
    cluster.register(
        "mutating",
        cluster.webhook("a.example.com", "/first", rules=rules, reinvocationPolicy="IfNeeded"),
        cluster.webhook("b.example.com", "/second", rules=rules),
    )
    response = cluster.request("POST", cluster.path("pods"), pod("p"))
    assert response.body["spec"]["restartPolicy"] == "Always"
    assert cluster.server.paths() == ["/first", "/second", "/first"]


def case_there_is_no_third_round(cluster: WebhookCluster) -> None:
    counter = iter(range(9))
    cluster.server.behaviours |= {
        "/first": lambda review: label(f"first-{next(counter)}")(review),
        "/second": label("second"),
    }
    cluster.register(
        "mutating",
        cluster.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        cluster.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
    )
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert cluster.server.paths() == ["/first", "/second", "/first", "/second"]


def case_warnings_of_a_mutating_webhook(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = respond(allowed=True, warnings=['say "hello"'])
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.warnings == ['say \\"hello\\"']
