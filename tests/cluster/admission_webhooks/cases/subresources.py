"""Webhooks on pods/eviction and on scale: they see the small object that was sent, not the one that it is about."""

from __future__ import annotations

from tests.cluster.admission_webhooks.cases.objects import pod
from tests.cluster.admission_webhooks.webhook_server import Document, allow, deny, patch
from tests.cluster.admission_webhooks.world import World, rule

_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}


def _evict(world: World, query: str = "", **fields: object) -> tuple[int, str]:
    answer = world.request("POST", world.path("pods", "a/eviction") + query, {**_EVICTION, **fields})
    return answer.code, answer.message


def _is_there(world: World) -> bool:
    return world.request("GET", world.path("pods", "a")).code == 200


def _add_pod(world: World) -> None:
    assert world.request("POST", world.path("pods"), pod("a")).code == 201


def case_an_eviction_is_shown(world: World) -> None:
    world.server.behaviours |= {"/mutate": allow(), "/validate": allow()}
    rules = [rule("pods/eviction")]
    world.register("mutating", world.webhook("a.example.com", "/mutate", rules=rules))
    world.register("validating", world.webhook("b.example.com", "/validate", rules=rules))
    _add_pod(world)
    assert _evict(world, deleteOptions={"gracePeriodSeconds": 5}) == (201, "")
    assert [asked.path for asked in world.server.asked if asked.path != "/marker"] == ["/mutate", "/validate"]
    for asked in world.server.asked[-2:]:
        request = asked.request
        assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "a", world.namespace)
        assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
        assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert (request["subResource"], request["options"]["kind"]) == ("eviction", "CreateOptions")
        assert request["object"]["deleteOptions"] == {"gracePeriodSeconds": 5}
        assert (request["object"]["kind"], request["oldObject"]) == ("Eviction", None)


def case_an_eviction_is_refused(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="not now")
    world.register("validating", world.webhook("a.example.com", "/deny", rules=[rule("pods/eviction")]))
    _add_pod(world)
    assert _evict(world) == (400, 'admission webhook "a.example.com" denied the request: not now')
    assert _is_there(world)


def case_an_eviction_is_changed(world: World) -> None:
    """A webhook that turns evictions into dry runs keeps the pod."""
    world.server.behaviours["/patch"] = patch({"op": "add", "path": "/deleteOptions", "value": {"dryRun": ["All"]}})
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=[rule("pods/eviction")]))
    _add_pod(world)
    assert _evict(world) == (201, "")
    assert _is_there(world)


def case_nobody_is_asked_about_the_deletion_behind_an_eviction(world: World) -> None:
    world.server.behaviours["/deny"] = deny(message="stays")
    rules = [rule("pods", "DELETE"), rule("pods/status", "UPDATE")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=rules))
    _add_pod(world)
    assert _evict(world) == (201, "")
    assert not _is_there(world)


def case_a_dry_run_of_an_eviction(world: World) -> None:
    world.server.behaviours["/allow"] = allow()
    world.register("validating", world.webhook("a.example.com", "/allow", rules=[rule("pods/eviction")]))
    _add_pod(world)
    assert _evict(world, "?dryRun=All") == (201, "")
    request = world.server.asked[-1].request
    assert (request["dryRun"], request["options"]["dryRun"]) == (True, ["All"])
    assert _is_there(world)


def _add_deployment(world: World) -> str:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    collection = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    answer = world.request("POST", collection, {"metadata": {"name": "web"}, "spec": spec})
    assert answer.code == 201, answer.message
    return f"{collection}/web"


def _scale(world: World, path: str, replicas: int) -> Document:
    answer = world.request("PATCH", f"{path}/scale", {"spec": {"replicas": replicas}})
    return {"code": answer.code, "message": answer.message, **(answer.body.get("spec") or {})}


def case_a_scale_is_shown(world: World) -> None:
    path = _add_deployment(world)
    world.server.behaviours |= {"/mutate": allow(), "/validate": allow()}
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    world.register("mutating", world.webhook("a.example.com", "/mutate", rules=rules))
    world.register("validating", world.webhook("b.example.com", "/validate", rules=rules))
    assert _scale(world, path, 5) == {"code": 200, "message": "", "replicas": 5}
    for asked, where in zip(world.server.asked[-2:], ("/mutate", "/validate"), strict=True):
        request = asked.request
        assert (asked.path, request["operation"], request["subResource"]) == (where, "UPDATE", "scale")
        assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
        assert (request["oldObject"]["spec"], request["object"]["spec"]) == ({"replicas": 2}, {"replicas": 5})
        assert request["object"]["status"] == {"replicas": 0, "selector": "app=web"}


def case_a_scale_is_refused(world: World) -> None:
    path = _add_deployment(world)
    world.server.behaviours["/deny"] = deny(message="enough")
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=rules))
    denied = 'admission webhook "a.example.com" denied the request: enough'
    assert _scale(world, path, 5) == {"code": 400, "message": denied}
    assert world.request("GET", path).body["spec"]["replicas"] == 2


def case_a_scale_is_changed(world: World) -> None:
    path = _add_deployment(world)
    world.server.behaviours["/patch"] = patch({"op": "replace", "path": "/spec/replicas", "value": 3})
    rules = [rule("deployments/scale", "UPDATE", groups="apps")]
    world.register("mutating", world.webhook("a.example.com", "/patch", rules=rules))
    assert _scale(world, path, 50) == {"code": 200, "message": "", "replicas": 3}
    assert world.request("GET", path).body["spec"]["replicas"] == 3


def case_webhooks_of_the_object_itself_do_not_hear_of_a_scale(world: World) -> None:
    path = _add_deployment(world)
    world.server.behaviours["/deny"] = deny(message="no")
    rules = [rule("deployments", "UPDATE", groups="apps")]
    world.register("validating", world.webhook("a.example.com", "/deny", rules=rules))
    assert _scale(world, path, 5)["code"] == 200
