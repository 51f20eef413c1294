"""Mutating webhooks: patches, order, defaults after them, reinvocation."""

from __future__ import annotations

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_server import allow, deny, label, patch, respond
from tests.cluster.admission_webhooks.world import World, rule


def case_a_patch_is_applied(world: World) -> None:
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/data", "value": {"a": "1"}})
    world.register("mutating", world.webhook("a.example.com", "/patch"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert (answer.code, answer.body["data"]) == (201, {"a": "1"})


def case_configurations_go_by_name_and_webhooks_by_place(world: World) -> None:
    for name in ("one", "two", "three"):
        world.server.behaviours[f"/{name}"] = allow()
    world.register("mutating", world.webhook("z.example.com", "/three"), name="m2")
    world.register(
        "mutating", world.webhook("b.example.com", "/one"), world.webhook("a.example.com", "/two"), name="m1"
    )
    world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.paths() == ["/one", "/two", "/three"]


def case_the_next_webhook_sees_the_change(world: World) -> None:
    world.server.behaviours |= {"/one": label("one"), "/two": label("two")}
    world.register("mutating", world.webhook("a.example.com", "/one"), world.webhook("b.example.com", "/two"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.body["metadata"]["labels"] == {"one": "yes", "two": "yes"}


def case_a_change_can_make_the_next_webhook_match(world: World) -> None:
    world.server.behaviours |= {"/one": label("one"), "/two": label("two")}
    later = world.webhook("b.example.com", "/two", objectSelector={"matchLabels": {"one": "yes"}})
    world.register("mutating", world.webhook("a.example.com", "/one"), later)
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.body["metadata"]["labels"] == {"one": "yes", "two": "yes"}


def case_mutating_comes_before_validating(world: World) -> None:
    world.server.behaviours |= {"/patch": label("seen"), "/allow": allow()}
    world.register("mutating", world.webhook("a.example.com", "/patch"))
    world.register("validating", world.webhook("b.example.com", "/allow"))
    world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.paths() == ["/patch", "/allow"]
    assert world.server.asked[1].request["object"]["metadata"]["labels"] == {"seen": "yes"}


def case_a_mutating_webhook_may_refuse(world: World) -> None:
    world.server.behaviours |= {"/deny": deny(message="no"), "/allow": allow()}
    world.register("mutating", world.webhook("a.example.com", "/deny"), world.webhook("b.example.com", "/allow"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.message == 'admission webhook "a.example.com" denied the request: no'
    assert world.server.paths() == ["/deny"]


def case_mutating_webhooks_come_before_built_in_validation(world: World) -> None:
    world.server.behaviours["/patch"] = patch({"op": "replace", "path": "/metadata/name", "value": "Upper"})
    world.register("mutating", world.webhook("a.example.com", "/patch"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


def case_what_a_patch_adds_gets_defaults(world: World) -> None:
    container = {"name": "side", "image": "side:1"}
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/spec/containers/-", "value": container})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    answer = world.request("POST", world.path("pods"), pod("p"))
    assert answer.code == 201, answer.message
    assert answer.body["spec"]["containers"][1] == {
        "name": "side",
        "image": "side:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def case_a_status_that_a_webhook_writes_on_creation_is_dropped(world: World) -> None:
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/phase", "value": "Failed"})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    answer = world.request("POST", world.path("pods"), pod("p"))
    assert answer.body["status"]["phase"] == "Pending"


def case_replacing_a_field_that_is_absent_sets_it(world: World) -> None:
    """RFC 6902 forbids it; the real server's library does it, and webhooks rely on that."""
    world.server.behaviours["/patch"] = patch({"op": "replace", "path": "/immutable", "value": True})
    world.register("mutating", world.webhook("a.example.com", "/patch"))
    assert world.request("POST", world.path("configmaps"), config_map("a")).body["immutable"] is True


def case_a_priority_class_without_its_number_is_refused(world: World) -> None:
    """Built-in admission looks again after webhooks: it computed another number for the class that was there."""
    change = patch({"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"})
    world.server.behaviours["/patch"] = change
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    answer = world.request("POST", world.path("pods"), pod("p"))
    assert (answer.code, answer.message) == (
        403,
        'pods "p" is forbidden: the integer value of priority (0) must not be provided in pod spec; '
        "priority admission controller computed 2000001000 from the given PriorityClass name",
    )


def case_a_priority_class_with_its_number_is_taken(world: World) -> None:
    world.server.behaviours["/patch"] = patch(
        {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"},
        {"op": "add", "path": "/spec/priority", "value": 2000001000},
    )
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods")]))
    answer = world.request("POST", world.path("pods"), pod("p"))
    assert (answer.code, answer.body["spec"]["priority"]) == (201, 2000001000)


def case_an_update_is_patched(world: World) -> None:
    world.server.behaviours["/patch"] = label("touched")
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("configmaps", "UPDATE")]))
    world.request("POST", world.path("configmaps"), config_map("a"))
    answer = world.request("PATCH", world.path("configmaps", "a"), {"data": {"x": "1"}})
    assert answer.body["metadata"]["labels"] == {"touched": "yes"}
    assert answer.body["data"] == {"x": "1"}


def case_a_status_update_is_patched(world: World) -> None:
    condition = {"type": "Hooked", "status": "True"}
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/conditions", "value": [condition]})
    name = f"node-{world.namespace}"
    webhook = world.webhook(
        "a.example.com",
        "/patch",
        rules=[rule("nodes/status", "UPDATE")],
        namespaceSelector={},
        objectSelector={"matchLabels": world.labels},
    )
    world.register("mutating", webhook)
    world.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": world.labels}})
    answer = world.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}})
    assert [found["type"] for found in answer.body["status"]["conditions"]] == ["Hooked"]
    world.request("DELETE", f"/api/v1/nodes/{name}")


def case_a_deletion_cannot_be_patched(world: World) -> None:
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/data", "value": {}})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("configmaps", "DELETE")]))
    world.request("POST", world.path("configmaps"), config_map("a"))
    answer = world.request("DELETE", world.path("configmaps", "a"))
    assert (answer.code, answer.message) == (
        500,
        'Internal error occurred: admission webhook "a.example.com" attempted to modify the object, '
        "which is not supported for this operation",
    )


def case_a_binding_is_patched(world: World) -> None:
    world.server.behaviours["/patch"] = patch({"op": "replace", "path": "/target/name", "value": "other"})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods/binding")]))
    world.request("POST", world.path("pods"), pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert world.request("POST", world.path("pods", "p/binding"), binding).code == 201
    assert world.request("GET", world.path("pods", "p")).body["spec"]["nodeName"] == "other"


def case_who_wants_to_is_called_again_after_a_change(world: World) -> None:
    world.server.behaviours |= {"/first": allow(), "/second": label("second"), "/third": allow()}
    world.register(
        "mutating",
        world.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        world.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
        world.webhook("c.example.com", "/third", reinvocationPolicy="IfNeeded"),
    )
    world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.paths() == ["/first", "/second", "/third", "/first"]
    assert world.server.asked[3].request["object"]["metadata"]["labels"] == {"second": "yes"}


def case_nobody_is_called_again_without_a_change(world: World) -> None:
    world.server.behaviours |= {"/first": allow(), "/second": allow()}
    world.register(
        "mutating",
        world.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        world.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
    )
    world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.paths() == ["/first", "/second"]


def case_taking_away_what_is_a_default_is_a_change(world: World) -> None:
    """Though the default takes its place."""
    world.server.behaviours |= {
        "/first": allow(),
        "/second": patch({"op": "remove", "path": "/spec/restartPolicy"}),
    }
    rules = [rule("pods")]
    world.register(
        "mutating",
        world.webhook("a.example.com", "/first", rules=rules, reinvocationPolicy="IfNeeded"),
        world.webhook("b.example.com", "/second", rules=rules),
    )
    answer = world.request("POST", world.path("pods"), pod("p"))
    assert answer.body["spec"]["restartPolicy"] == "Always"
    assert world.server.paths() == ["/first", "/second", "/first"]


def case_there_is_no_third_round(world: World) -> None:
    counter = iter(range(9))
    world.server.behaviours |= {
        "/first": lambda review: label(f"first-{next(counter)}")(review),
        "/second": label("second"),
    }
    world.register(
        "mutating",
        world.webhook("a.example.com", "/first", reinvocationPolicy="IfNeeded"),
        world.webhook("b.example.com", "/second", reinvocationPolicy="IfNeeded"),
    )
    world.request("POST", world.path("configmaps"), config_map("a"))
    assert world.server.paths() == ["/first", "/second", "/first", "/second"]


def case_warnings_of_a_mutating_webhook(world: World) -> None:
    world.server.behaviours["/patch"] = respond(allowed=True, warnings=['say "hello"'])
    world.register("mutating", world.webhook("a.example.com", "/patch"))
    answer = world.request("POST", world.path("configmaps"), config_map("a"))
    assert answer.warnings == ['say \\"hello\\"']
