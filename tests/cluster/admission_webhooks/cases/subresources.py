"""Webhooks on pods/eviction and on scale: they see the small object that was sent, not the one that it is about."""

from __future__ import annotations

from tests.cluster.admission_webhooks.cases.objects import pod
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Document, allow, deny, patch

_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}


def _evict(cluster: WebhookCluster, query: str = "", **fields: object) -> tuple[int, str]:
    response = cluster.request("POST", cluster.path("pods", "a/eviction") + query, {**_EVICTION, **fields})
    return response.code, response.message


def _is_there(cluster: WebhookCluster) -> bool:
    return cluster.request("GET", cluster.path("pods", "a")).code == 200


def _add_pod(cluster: WebhookCluster) -> None:
    assert cluster.request("POST", cluster.path("pods"), pod("a")).code == 201


def case_an_eviction_is_shown(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/mutate": allow(), "/validate": allow()}
    rules = [rule("pods/eviction")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutate", rules=rules))
    cluster.register("validating", cluster.webhook("b.example.com", "/validate", rules=rules))
    _add_pod(cluster)
    assert _evict(cluster, deleteOptions={"gracePeriodSeconds": 5}) == (201, "")
    assert [received.path for received in cluster.server.requests if received.path != "/marker"] == [
        "/mutate",
        "/validate",
    ]
    for received in cluster.server.requests[-2:]:
        request = received.request
        assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "a", cluster.namespace)
        assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
        assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert (request["subResource"], request["options"]["kind"]) == ("eviction", "CreateOptions")
        assert request["object"]["deleteOptions"] == {"gracePeriodSeconds": 5}
        assert (request["object"]["kind"], request["oldObject"]) == ("Eviction", None)


def case_an_eviction_is_refused(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="not now")
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=[rule("pods/eviction")]))
    _add_pod(cluster)
    assert _evict(cluster) == (400, 'admission webhook "a.example.com" denied the request: not now')
    assert _is_there(cluster)


def case_an_eviction_is_changed(cluster: WebhookCluster) -> None:
    """A webhook that turns evictions into dry runs keeps the pod."""
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/deleteOptions", "value": {"dryRun": ["All"]}})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=[rule("pods/eviction")]))
    _add_pod(cluster)
    assert _evict(cluster) == (201, "")
    assert _is_there(cluster)


def case_nobody_is_queried_about_the_deletion_behind_an_eviction(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="stays")
    rules = [rule("pods", "DELETE"), rule("pods/status", "UPDATE")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=rules))
    _add_pod(cluster)
    assert _evict(cluster) == (201, "")
    assert not _is_there(cluster)


def case_a_dry_run_of_an_eviction(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/allow"] = allow()
    cluster.register("validating", cluster.webhook("a.example.com", "/allow", rules=[rule("pods/eviction")]))
    _add_pod(cluster)
    assert _evict(cluster, "?dryRun=All") == (201, "")
    request = cluster.server.requests[-1].request
    assert (request["dryRun"], request["options"]["dryRun"]) == (True, ["All"])
    assert _is_there(cluster)


def _add_deployment(cluster: WebhookCluster) -> str:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    collection = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"
    response = cluster.request("POST", collection, {"metadata": {"name": "web"}, "spec": spec})
    assert response.code == 201, response.message
    return f"{collection}/web"


def _scale(cluster: WebhookCluster, path: str, replicas: int) -> Document:
    response = cluster.request("PATCH", f"{path}/scale", {"spec": {"replicas": replicas}})
    return {"code": response.code, "message": response.message, **(response.body.get("spec") or {})}


def case_a_scale_is_shown(cluster: WebhookCluster) -> None:
    path = _add_deployment(cluster)
    cluster.server.behaviours |= {"/mutate": allow(), "/validate": allow()}
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/mutate", rules=rules))
    cluster.register("validating", cluster.webhook("b.example.com", "/validate", rules=rules))
    assert _scale(cluster, path, 5) == {"code": 200, "message": "", "replicas": 5}
    for received, where in zip(cluster.server.requests[-2:], ("/mutate", "/validate"), strict=True):
        request = received.request
        assert (received.path, request["operation"], request["subResource"]) == (where, "UPDATE", "scale")
        assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
        assert (request["oldObject"]["spec"], request["object"]["spec"]) == ({"replicas": 2}, {"replicas": 5})
        assert request["object"]["status"] == {"replicas": 0, "selector": "app=web"}


def case_a_scale_is_refused(cluster: WebhookCluster) -> None:
    path = _add_deployment(cluster)
    cluster.server.behaviours["/deny"] = deny(message="enough")
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=rules))
    denied = 'admission webhook "a.example.com" denied the request: enough'
    assert _scale(cluster, path, 5) == {"code": 400, "message": denied}
    assert cluster.request("GET", path).body["spec"]["replicas"] == 2


def case_a_scale_is_changed(cluster: WebhookCluster) -> None:
    path = _add_deployment(cluster)
    cluster.server.behaviours["/patch"] = patch({"op": "replace", "path": "/spec/replicas", "value": 3})
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch", rules=rules))
    assert _scale(cluster, path, 50) == {"code": 200, "message": "", "replicas": 3}
    assert cluster.request("GET", path).body["spec"]["replicas"] == 3


def case_webhooks_of_the_object_itself_do_not_hear_of_a_scale(cluster: WebhookCluster) -> None:
    path = _add_deployment(cluster)
    cluster.server.behaviours["/deny"] = deny(message="no")
    rules = [rule("deployments", "UPDATE", groups="apps")]
    cluster.register("validating", cluster.webhook("a.example.com", "/deny", rules=rules))
    assert _scale(cluster, path, 5)["code"] == 200
