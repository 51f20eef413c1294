"""Who is asked: rules, scopes, selectors, equivalent versions."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_server import allow
from tests.cluster.admission_webhooks.world import World, rule


def _asked(world: World, *rules: Any, **fields: Any) -> list[str]:
    """Operations and resources that a webhook with these rules hears of, of one round of requests."""
    world.server.behaviours["/allow"] = allow()
    world.register("validating", world.webhook("a.example.com", "/allow", rules=list(rules), **fields))
    world.request("POST", world.path("configmaps"), config_map("a"))
    world.request("POST", world.path("pods"), pod("p"))
    world.request("PATCH", world.path("pods", "p/status"), {"status": {"message": "m"}})
    world.request("DELETE", world.path("configmaps", "a"))
    return [
        "/".join(filter(None, (asked.request["resource"]["resource"], asked.request.get("subResource"))))
        for asked in world.server.asked
    ]


def case_a_resource_does_not_stand_for_its_subresources(world: World) -> None:
    assert _asked(world, rule("pods", "*")) == ["pods"]


def case_a_star_stands_for_resources_alone(world: World) -> None:
    assert _asked(world, rule("*", "*")) == ["configmaps", "pods", "configmaps"]


def case_a_star_behind_the_slash_stands_for_the_resource_too(world: World) -> None:
    assert _asked(world, rule("pods/*", "*")) == ["pods", "pods/status"]


def case_a_star_before_the_slash(world: World) -> None:
    assert _asked(world, rule("*/status", "*")) == ["pods/status"]


def case_two_stars_stand_for_everything(world: World) -> None:
    assert _asked(world, rule("*/*", "*", groups="*", versions="*")) == [
        "configmaps",
        "pods",
        "pods/status",
        "configmaps",
    ]


def case_operations_are_told_apart(world: World) -> None:
    assert _asked(world, rule("configmaps pods pods/status", "UPDATE DELETE")) == ["pods/status", "configmaps"]


def case_another_group_is_another_resource(world: World) -> None:
    assert _asked(world, rule("pods configmaps", "*", groups="apps")) == []


def case_a_webhook_is_asked_once_for_all_rules(world: World) -> None:
    assert _asked(world, rule("pods"), rule("*")) == ["configmaps", "pods"]


def case_cluster_scope_leaves_out_what_is_in_a_namespace(world: World) -> None:
    assert _asked(world, rule("*", "*", scope="Cluster")) == []


def case_namespaced_scope(world: World) -> None:
    assert _asked(world, rule("pods", "*", scope="Namespaced")) == ["pods"]


def case_another_namespace_is_left_out(world: World) -> None:
    elsewhere = {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [world.namespace, "default"]},
    ]}  # fmt: skip
    assert _asked(world, rule("*", "*"), namespaceSelector=elsewhere) == []


def case_a_namespace_itself_is_cluster_scoped(world: World) -> None:
    """And its labels, as they are to be, are what a namespace selector looks at."""
    world.server.behaviours |= {"/cluster": allow(), "/namespaced": allow()}
    common = {"namespaceSelector": {"matchLabels": {"mine": world.namespace}}}
    world.register(
        "validating",
        world.webhook("a.example.com", "/cluster", rules=[rule("namespaces", scope="Cluster")], **common),
        world.webhook("b.example.com", "/namespaced", rules=[rule("namespaces", scope="Namespaced")], **common),
    )
    name = f"{world.namespace}-inner"
    labelled = {"metadata": {"name": name, "labels": {"mine": world.namespace}}}
    assert world.request("POST", "/api/v1/namespaces?dryRun=All", labelled).code == 201
    (asked,) = world.server.asked
    assert (asked.path, asked.request["namespace"], asked.request["name"]) == ("/cluster", name, name)


def case_a_selector_of_namespaces_lets_cluster_scoped_objects_through(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    webhook = world.webhook(
        "a.example.com",
        "/allow",
        rules=[rule("nodes")],
        namespaceSelector={"matchLabels": {"no": "such"}},
        objectSelector={"matchLabels": world.labels},
    )
    world.register("validating", webhook)
    node = {"metadata": {"name": "n", "labels": world.labels}}
    world.request("POST", "/api/v1/nodes?dryRun=All", node)
    assert world.server.paths() == ["/allow"]


def case_the_old_or_the_new_object_may_match_the_selector(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    webhook = world.webhook(
        "a.example.com",
        "/allow",
        rules=[rule("configmaps", "CREATE UPDATE DELETE")],
        objectSelector={"matchExpressions": [{"key": "watched", "operator": "Exists"}]},
    )
    world.register("validating", webhook)
    path = world.path("configmaps", "a")
    world.request("POST", world.path("configmaps"), config_map("a"))
    world.request("PATCH", path, {"metadata": {"labels": {"watched": "yes"}}})
    world.request("PATCH", path, {"metadata": {"labels": {"watched": None}}})
    world.request("PATCH", path, {"data": {"x": "1"}})
    world.request("DELETE", path)
    assert [asked.request["operation"] for asked in world.server.asked] == ["UPDATE", "UPDATE"]


def case_an_equivalent_version_is_converted(world: World) -> None:
    """Events are one store under two groups."""
    world.server.behaviours["/allow"] = allow()
    rules = [rule("events", groups="events.k8s.io")]
    world.register("validating", world.webhook("a.example.com", "/allow", rules=rules))
    event = {
        "metadata": {"name": "e", "namespace": world.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": world.namespace},
        "reason": "Because",
        "message": "said",
        "type": "Normal",
        "source": {"component": "test"},
    }
    answer = world.request("POST", world.path("events"), event)
    assert answer.code == 201, answer.message
    (asked,) = world.server.asked
    request = asked.request
    assert request["kind"] == {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
    assert request["resource"] == {"group": "events.k8s.io", "version": "v1", "resource": "events"}
    assert request["requestKind"] == {"group": "", "version": "v1", "kind": "Event"}
    assert request["requestResource"] == {"group": "", "version": "v1", "resource": "events"}
    assert (request["object"]["apiVersion"], request["object"]["note"]) == ("events.k8s.io/v1", "said")


def case_an_exact_policy_does_not_convert(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    rules = [rule("events", groups="events.k8s.io")]
    world.register("validating", world.webhook("a.example.com", "/allow", rules=rules, matchPolicy="Exact"))
    event = {
        "metadata": {"name": "e", "namespace": world.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": world.namespace},
        "reason": "Because",
    }
    assert world.request("POST", world.path("events"), event).code == 201
    assert world.server.asked == []
