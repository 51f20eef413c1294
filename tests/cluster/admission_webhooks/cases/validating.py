"""Validating webhooks: refusals and their wording, warnings, dry runs, every operation."""

from __future__ import annotations

import threading

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_server import Document, Reply, allow, deny, respond
from tests.cluster.admission_webhooks.world import World, rule


def case_allowed(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    world.register("validating", world.webhook("allow.example.com", "/allow"))
    assert world.request("POST", world.path("configmaps"), config_map("a")).code == 201
    assert world.server.paths() == ["/allow"]


def case_a_refusal_names_the_webhook(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="too big", code=403, reason="Forbidden")
    world.register("validating", world.webhook("deny.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'admission webhook "deny.example.com" denied the request: too big',
        "reason": "Forbidden",
        "code": 403,
    }
    assert answer.code == 403
    assert world.request("GET", world.path("configmaps", "a")).code == 404


def case_a_refusal_without_words(world: World) -> None:
    world.server.behaviours["/deny"] = deny()
    world.register("validating", world.webhook("deny.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    expected = 'admission webhook "deny.example.com" denied the request without explanation'
    assert (answer.code, answer.message, answer.body.get("reason")) == (400, expected, None)


def case_a_refusal_with_a_reason_alone(world: World) -> None:
    world.server.behaviours["/deny"] = deny(reason="Because", code=200)
    world.register("validating", world.webhook("deny.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    expected = 'admission webhook "deny.example.com" denied the request: Because'
    assert (answer.code, answer.message, answer.body["reason"]) == (400, expected, "Because")


def case_details_of_a_refusal_are_passed_on(world: World) -> None:
    details = {"name": "a", "kind": "configmaps", "causes": [{"reason": "R", "message": "m", "field": "data.a"}]}
    world.server.behaviours["/deny"] = deny(message="no", code=422, reason="Invalid", details=details)
    world.register("validating", world.webhook("deny.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert (answer.code, answer.body["details"]) == (422, details)


def case_one_refusal_of_two_webhooks_is_enough(world: World) -> None:
    world.server.behaviours |= {"/allow": allow(), "/deny": deny(message="no")}
    world.register("validating", world.webhook("a.example.com", "/allow"), world.webhook("b.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.message == 'admission webhook "b.example.com" denied the request: no'
    assert sorted(world.server.paths()) == ["/allow", "/deny"]


def case_validating_webhooks_are_called_side_by_side(world: World) -> None:
    both = threading.Barrier(2)

    def meet(review: Document) -> Reply:
        both.wait(5)
        return allow()(review)

    world.server.behaviours |= {"/one": meet, "/two": meet}
    world.register("validating", world.webhook("a.example.com", "/one"), world.webhook("b.example.com", "/two"))
    assert world.request("POST", world.path("configmaps"), config_map("a")).code == 201


def case_warnings_reach_the_client(world: World) -> None:
    """Each text once, whoever says it."""
    world.server.behaviours |= {"/one": allow("first", "second"), "/two": allow("first")}
    world.register("mutating", world.webhook("a.example.com", "/one"))
    world.register("validating", world.webhook("a.example.com", "/two"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert (answer.code, answer.warnings) == (201, ["first", "second"])


def case_warnings_come_with_a_refusal(world: World) -> None:
    world.server.behaviours["/deny"] = respond(allowed=False, warnings=["careful"])
    world.register("validating", world.webhook("a.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert (answer.code, answer.warnings) == (400, ["careful"])


def case_every_operation_is_asked_about(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    operations = [rule("configmaps", "CREATE UPDATE DELETE")]
    world.register("validating", world.webhook("a.example.com", "/allow", rules=operations))
    world.request("POST", world.path("configmaps"), config_map("a"))
    world.request("PUT", world.path("configmaps", "a"), config_map("a", x="1"))
    world.request("PATCH", world.path("configmaps", "a"), {"data": {"x": "2"}})
    world.request("DELETE", world.path("configmaps", "a"))
    seen = [(asked.request["operation"], asked.request["options"]["kind"]) for asked in world.server.asked]
    assert seen == [
        ("CREATE", "CreateOptions"),
        ("UPDATE", "UpdateOptions"),
        ("UPDATE", "UpdateOptions"),
        ("DELETE", "DeleteOptions"),
    ]


def case_a_refused_update_changes_nothing(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="frozen")
    operations = [rule("configmaps", "UPDATE")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=operations))
    world.request("POST", world.path("configmaps"), config_map("a", x="1"))
    answer = world.request("PATCH", world.path("configmaps", "a"), {"data": {"x": "2"}})
    assert answer.message == 'admission webhook "a.example.com" denied the request: frozen'
    assert world.request("GET", world.path("configmaps", "a")).body["data"] == {"x": "1"}


def case_a_patch_that_changes_nothing_is_asked_about(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="frozen")
    operations = [rule("configmaps", "UPDATE")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=operations))
    world.request("POST", world.path("configmaps"), config_map("a", x="1"))
    assert world.request("PATCH", world.path("configmaps", "a"), {"data": {"x": "1"}}).code == 400


def case_a_refused_deletion_keeps_the_object(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="kept")
    world.register("validating", world.webhook("a.example.com", "/deny", rules=[rule("configmaps", "DELETE")]))
    world.request("POST", world.path("configmaps"), config_map("a"))
    answer = world.request("DELETE", world.path("configmaps", "a"))
    assert answer.message == 'admission webhook "a.example.com" denied the request: kept'
    assert world.request("GET", world.path("configmaps", "a")).code == 200


def case_each_object_of_a_collection_is_asked_about(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    rules = [rule("configmaps", "DELETE")]
    selected = {"matchLabels": {"mine": "yes"}}
    world.register("validating", world.webhook("a.example.com", "/allow", rules=rules, objectSelector=selected))
    for name in ("a", "b"):
        world.request("POST", world.path("configmaps"), config_map(name, {"mine": "yes"}))
    assert world.request("DELETE", f"{world.path('configmaps')}?labelSelector=mine=yes").code == 200
    old = sorted(asked.request["oldObject"]["metadata"]["name"] for asked in world.server.asked)
    assert old == ["a", "b"]
    assert [asked.request.get("name") for asked in world.server.asked] == [None, None]


def case_a_refused_object_stops_a_collection(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="kept")
    rules = [rule("configmaps", "DELETE")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=rules))
    world.request("POST", world.path("configmaps"), config_map("a", {"mine": "yes"}))
    answer = world.request("DELETE", f"{world.path('configmaps')}?labelSelector=mine=yes")
    assert (answer.code, answer.message) == (400, 'admission webhook "a.example.com" denied the request: kept')


def case_a_binding_is_asked_about(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="not there")
    world.register("validating", world.webhook("a.example.com", "/deny", rules=[rule("pods/binding")]))
    assert world.request("POST", world.path("pods"), pod("p")).code == 201
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    answer = world.request("POST", world.path("pods", "p/binding"), binding)
    assert answer.message == 'admission webhook "a.example.com" denied the request: not there'
    (asked,) = world.server.asked
    assert asked.request["kind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert (asked.request["name"], asked.request["subResource"]) == ("p", "binding")
    assert asked.request["object"]["target"] == {"kind": "Node", "name": "n"}


def case_a_status_is_asked_about(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="no")
    name = f"node-{world.namespace}"
    rules = [rule("nodes/status", "UPDATE")]
    selected = {"matchLabels": world.labels}
    webhook = world.webhook("a.example.com", "/deny", rules=rules, namespaceSelector={}, objectSelector=selected)
    world.register("validating", webhook)
    node = {"metadata": {"name": name, "labels": world.labels}}
    assert world.request("POST", "/api/v1/nodes", node).code == 201
    answer = world.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}})
    assert answer.message == 'admission webhook "a.example.com" denied the request: no'
    assert world.request("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"a": "b"}}}).code == 200
    assert world.server.paths() == ["/deny"]
    world.request("DELETE", f"/api/v1/nodes/{name}")


def case_built_in_validation_comes_before_validating_webhooks(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="no")
    world.register("validating", world.webhook("a.example.com", "/deny"))
    answer = world.request("POST", world.path("configmaps"), config_map("Upper"))
    assert (answer.code, world.server.paths()) == (422, [])


def case_a_dry_run_is_announced(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    world.register("validating", world.webhook("a.example.com", "/allow", sideEffects="NoneOnDryRun"))
    path = f"{world.path('configmaps')}?dryRun=All&fieldManager=me"
    assert world.request("POST", path, config_map("a")).code == 201
    (asked,) = world.server.asked
    assert asked.request["dryRun"] is True
    assert asked.request["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "dryRun": ["All"],
        "fieldManager": "me",
    }


def case_validating_webhooks_see_the_generated_name(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    world.register("validating", world.webhook("a.example.com", "/allow"))
    document = {"metadata": {"generateName": "made-"}}
    answer = world.request("POST", world.path("configmaps"), document)
    (asked,) = world.server.asked
    assert asked.request["name"] == answer.body["metadata"]["name"]
