"""Who answers which path below /apis/v1, for whom, and how errors look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koordinator.base.services import Service, ServiceError
from koordinator.kube.services import Services
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.services.routes import add_plugins
from tests.scheduler.services.service_requests import HttpResponse, send

JSON = "application/json; charset=utf-8"


def echo(parameters: Mapping[str, str]) -> Any:
    return dict(parameters)


def refuse(parameters: Mapping[str, str]) -> Any:
    raise ServiceError(404, "cannot find it")


class Zoo(ServiceProvider):
    name = "Zoo"

    def services(self) -> Mapping[str, Service]:
        return {"/animals/:kind/:name": lambda parameters: {"args": self.args, **parameters}}


def profile(name: str, args: str) -> Profile:
    return Profile(name, {"Zoo": Zoo(args, ClusterView(NodeColumns()))}, PluginOrder())


def services(*, leading: bool = True) -> Services:
    found = Services(lambda: leading)
    found.add("/apis/v1/nodes/:nodeName", echo)
    found.add("/apis/v1/refused", refuse)
    found.add("/debug/explain/:namespace/:name", echo)
    add_plugins(found, [profile("one", "first"), profile("two", "second")])
    return found


def get(path: str, *, leading: bool = True, method: str = "GET") -> HttpResponse:
    return send(services(leading=leading).mount, path, method)


def test_parameters_of_the_path_reach_the_service() -> None:
    response = get("/apis/v1/nodes/a%20b")
    assert (response.status, response.content_type, response.document) == (200, JSON, {"nodeName": "a b"})


def test_parameters_of_the_query_reach_the_service_after_those_of_the_path() -> None:
    response = get("/apis/v1/nodes/a?detail=true&nodeName=b&detail=false")
    assert response.document == {"nodeName": "a", "detail": "true"}


def test_a_service_may_be_outside_the_base_path() -> None:
    assert get("/debug/explain/default/web").document == {"namespace": "default", "name": "web"}


def test_an_error_is_a_message_with_a_status() -> None:
    response = get("/apis/v1/refused")
    assert (response.status, response.content_type, response.text) == (404, JSON, '{"message":"cannot find it"}')


@pytest.mark.parametrize("path", ["/apis/v1/nodes/a", "/apis/v1/__services__", "/apis/v1/x", "/debug/explain/a/b"])
def test_an_instance_that_does_not_lead_responds_nothing(path: str) -> None:
    response = get(path, leading=False)
    assert (response.status, response.text) == (503, '{"message":"the instance is not leader"}')


def test_the_list_has_the_paths_below_the_base_in_order() -> None:
    assert get("/apis/v1/__services__").document == {
        "GET": [
            "/apis/v1/__services__",
            "/apis/v1/nodes/:nodeName",
            "/apis/v1/plugins/Zoo/animals/:kind/:name",
            "/apis/v1/refused",
        ]
    }


def test_the_services_of_a_plugin_are_those_of_the_first_profile_that_has_it() -> None:
    response = get("/apis/v1/plugins/Zoo/animals/cat/tom")
    assert response.document == {"args": "first", "kind": "cat", "name": "tom"}


def test_an_unknown_path_says_where_the_known_ones_are_listed() -> None:
    response = get("/apis/v1/what/ever")
    assert response.status == 404
    assert (
        response.document["message"] == "nothing is served at /apis/v1/what/ever; /apis/v1/__services__ lists what is"
    )


def test_services_only_respond_get() -> None:
    assert get("/apis/v1/nodes/a", method="POST").status == 404


def test_a_path_has_one_service() -> None:
    with pytest.raises(ValueError, match="/apis/v1/refused"):
        services().add("/apis/v1/refused", echo)
