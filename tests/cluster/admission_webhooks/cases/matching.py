"""Who is queried: rules, scopes, selectors, equivalent versions."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.cases.objects import config_map, pod
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import allow


def _reviewed(cluster: WebhookCluster, *rules: Any, **fields: Any) -> list[str]:
    """Operations and resources that a webhook with these rules hears of, of one round of requests."""
    cluster.server.behaviours["/allow"] = allow()
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=list(rules), **fields))
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    cluster.request("POST", cluster.path("pods"), pod("p"))
    cluster.request("PATCH", cluster.path("pods", "p/status"), {"status": {"message": "m"}})
    cluster.request("DELETE", cluster.path("configmaps", "a"))
    return [
        "/".join(filter(None, (received.request["resource"]["resource"], received.request.get("subResource"))))
        for received in cluster.server.requests
    ]


def case_a_resource_does_not_stand_for_its_subresources(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("pods", "*")) == ["pods"]


def case_a_star_stands_for_resources_alone(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("*", "*")) == ["configmaps", "pods", "configmaps"]


def case_a_star_behind_the_slash_stands_for_the_resource_too(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("pods/*", "*")) == ["pods", "pods/status"]


def case_a_star_before_the_slash(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("*/status", "*")) == ["pods/status"]


def case_two_stars_stand_for_everything(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("*/*", "*", groups="*", versions="*")) == [
        "configmaps",
        "pods",
        "pods/status",
        "configmaps",
    ]


def case_operations_are_distinguished(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("configmaps pods pods/status", "UPDATE DELETE")) == ["pods/status", "configmaps"]


def case_another_group_is_another_resource(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("pods configmaps", "*", groups="apps")) == []


def case_a_webhook_is_queried_once_for_all_rules(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("pods"), rule("*")) == ["configmaps", "pods"]


def case_cluster_scope_leaves_out_what_is_in_a_namespace(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("*", "*", scope="Cluster")) == []


def case_namespaced_scope(cluster: WebhookCluster) -> None:
    assert _reviewed(cluster, rule("pods", "*", scope="Namespaced")) == ["pods"]


def case_another_namespace_is_left_out(cluster: WebhookCluster) -> None:
    elsewhere = {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [cluster.namespace, "default"]},
    ]}  # fmt: skip
    assert _reviewed(cluster, rule("*", "*"), namespaceSelector=elsewhere) == []


def case_a_namespace_itself_is_cluster_scoped(cluster: WebhookCluster) -> None:
    """And its labels, as they are to be, are what a namespace selector looks at."""
    cluster.server.behaviours |= {"/cluster": allow(), "/namespaced": allow()}
    common = {"namespaceSelector": {"matchLabels": {"mine": cluster.namespace}}}
    cluster.register(
        "validating",
        cluster.webhook("a.example.com", "/cluster", rules=[rule("namespaces", scope="Cluster")], **common),
        cluster.webhook("b.example.com", "/namespaced", rules=[rule("namespaces", scope="Namespaced")], **common),
    )
    name = f"{cluster.namespace}-inner"
    labelled = {"metadata": {"name": name, "labels": {"mine": cluster.namespace}}}
    assert cluster.request("POST", "/api/v1/namespaces?dryRun=All", labelled).code == 201
    (received,) = cluster.server.requests
    assert (received.path, received.request["namespace"], received.request["name"]) == ("/cluster", name, name)


def case_a_selector_of_namespaces_lets_cluster_scoped_objects_through(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    webhook = cluster.webhook(
        "a.example.com",
        "/allow",
        rules=[rule("nodes")],
        namespaceSelector={"matchLabels": {"no": "such"}},
        objectSelector={"matchLabels": cluster.labels},
    )
    cluster.register("validating", webhook)
    node = {"metadata": {"name": "n", "labels": cluster.labels}}
    cluster.request("POST", "/api/v1/nodes?dryRun=All", node)
    assert cluster.server.paths() == ["/allow"]


def case_the_old_or_the_new_object_may_match_the_selector(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    webhook = cluster.webhook(
        "a.example.com",
        "/allow",
        rules=[rule("configmaps", "CREATE UPDATE DELETE")],
        objectSelector={"matchExpressions": [{"key": "watched", "operator": "Exists"}]},
    )
    cluster.register("validating", webhook)
    path = cluster.path("configmaps", "a")
    cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    cluster.request("PATCH", path, {"metadata": {"labels": {"watched": "yes"}}})
    cluster.request("PATCH", path, {"metadata": {"labels": {"watched": None}}})
    cluster.request("PATCH", path, {"data": {"x": "1"}})
    cluster.request("DELETE", path)
    assert [received.request["operation"] for received in cluster.server.requests] == ["UPDATE", "UPDATE"]


def case_an_equivalent_version_is_converted(cluster: WebhookCluster) -> None:
    """Events are one store under two groups."""
    cluster.server.behaviours["/allow"] = allow()
    rules = [rule("events", groups="events.k8s.io")]
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=rules))
    event = {
        "metadata": {"name": "e", "namespace": cluster.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": cluster.namespace},
        "reason": "Because",
        "message": "said",
        "type": "Normal",
        "source": {"component": "test"},
    }
    response = cluster.request("POST", cluster.path("events"), event)
    assert response.code == 201, response.message
    (received,) = cluster.server.requests
    request = received.request
    assert request["kind"] == {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
    assert request["resource"] == {"group": "events.k8s.io", "version": "v1", "resource": "events"}
    assert request["requestKind"] == {"group": "", "version": "v1", "kind": "Event"}
    assert request["requestResource"] == {"group": "", "version": "v1", "resource": "events"}
    assert (request["object"]["apiVersion"], request["object"]["note"]) == ("events.k8s.io/v1", "said")


def case_an_exact_policy_does_not_convert(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    rules = [rule("events", groups="events.k8s.io")]
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=rules, matchPolicy="Exact"))
    event = {
        "metadata": {"name": "e", "namespace": cluster.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": cluster.namespace},
        "reason": "Because",
    }
    assert cluster.request("POST", cluster.path("events"), event).code == 201
    assert cluster.server.requests == []
