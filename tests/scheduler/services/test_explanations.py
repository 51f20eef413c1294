"""Explanations over HTTP."""

from __future__ import annotations

from koordinator.kube.services import Services
from koordinator.scheduler.services.routes import add_explanations
from tests.scheduler.explain.scene import Scene, make_node, make_pod
from tests.scheduler.services.service_requests import HttpResponse, send


def get(scene: Scene, path: str) -> HttpResponse:
    services = Services(lambda: True)
    add_explanations(services, scene.sources)
    return send(services.mount, path)


def test_a_pod_is_explained() -> None:
    scene = Scene(make_node("a", cpu="1"))
    scene.try_pod(make_pod("p", cpu="2"))
    assert get(scene, "/debug/explain/default/p").document == scene.pod("p")


def test_a_node_is_explained() -> None:
    scene = Scene(make_node("a"))
    assert get(scene, "/debug/explain-node/a").document == scene.node("a")


def test_an_unknown_pod_is_not_found_and_says_what_that_may_mean() -> None:
    response = get(Scene(), "/debug/explain/default/p")
    assert response.status == 404
    assert "names another scheduler in spec.schedulerName" in response.document["message"]


def test_an_unknown_node_is_not_found() -> None:
    response = get(Scene(), "/debug/explain-node/a")
    assert (response.status, response.document["message"]) == (404, "there is no node a")
