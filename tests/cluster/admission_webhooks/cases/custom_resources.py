"""Webhooks on custom resources, whose versions share their objects."""

from __future__ import annotations

import time

from tests.cluster.admission_webhooks.webhook_server import Document, allow, label, patch
from tests.cluster.admission_webhooks.world import World, rule

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _define(world: World) -> str:
    """A kind with two versions and a status; returns its group."""
    group = f"{world.namespace}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions: list[Document] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": {"status": {}}}
        for name in ("v1", "v2")
    ]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    definition = {"metadata": {"name": f"widgets.{group}"}, "spec": spec}
    assert world.request("POST", _DEFINITIONS, definition).code == 201
    world.definitions.append(f"{_DEFINITIONS}/widgets.{group}")
    end = time.monotonic() + 20
    while any(world.request("GET", f"/apis/{group}/{version}/widgets").code != 200 for version in ("v1", "v2")):
        assert time.monotonic() < end, "the kind is not served"
        time.sleep(0.05)
    return group


def _widget(group: str, version: str) -> Document:
    return {"apiVersion": f"{group}/{version}", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}


def _path(world: World, group: str, version: str, name: str = "") -> str:
    return f"/apis/{group}/{version}/namespaces/{world.namespace}/widgets{name}"


def case_a_custom_resource_is_patched(world: World) -> None:
    group = _define(world)
    world.server.behaviours["/patch"] = patch({"op": "replace", "path": "/spec/size", "value": 2})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("widgets", groups=group)]))
    answer = world.request("POST", _path(world, group, "v1"), _widget(group, "v1"))
    assert (answer.code, answer.body["spec"], answer.body["metadata"]["generation"]) == (201, {"size": 2}, 1)


def case_a_custom_resource_in_another_version(world: World) -> None:
    group = _define(world)
    world.server.behaviours |= {"/patch": label("seen"), "/allow": allow()}
    rules = [rule("widgets", groups=group, versions="v2")]
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=rules))
    world.register("validating", world.webhook("b.example.com", "/allow", rules=rules))
    answer = world.request("POST", _path(world, group, "v1"), _widget(group, "v1"))
    assert (answer.body["apiVersion"], answer.body["metadata"]["labels"]) == (f"{group}/v1", {"seen": "yes"})
    for asked in world.server.asked:
        assert asked.request["object"]["apiVersion"] == f"{group}/v2"
        assert (asked.request["kind"]["version"], asked.request["requestKind"]["version"]) == ("v2", "v1")


def case_the_status_of_a_custom_resource(world: World) -> None:
    group = _define(world)
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/status/hooked", "value": True})
    rules = [rule("widgets/status", "UPDATE", groups=group)]
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=rules))
    world.request("POST", _path(world, group, "v1"), _widget(group, "v1"))
    answer = world.request("PATCH", _path(world, group, "v1", "/w/status"), {"status": {"ready": True}})
    assert answer.body["status"] == {"ready": True, "hooked": True}
