"""Webhooks behind Services: the Service's endpoints are called under its name."""

from __future__ import annotations

from tests.cluster.admission_webhooks.api_server import Answer
from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_server import Document, allow
from tests.cluster.admission_webhooks.world import World

_NAME = "a.example.com"


def _reference(world: World, service: str, **more: object) -> Document:
    reference = {"namespace": world.namespace, "name": service, "path": "/hook", **more}
    return {"service": reference, "caBundle": world.server.ca_bundle}


def _create_service(world: World, name: str, **spec: object) -> None:
    ports = [{"name": "https", "port": 443, "targetPort": 9443}]
    answer = world.request(
        "POST", world.path("services"), {"metadata": {"name": name}, "spec": {"ports": ports, **spec}}
    )
    assert answer.code == 201, answer.message


def _call(world: World, client: Document) -> Answer:
    world.server.behaviours["/hook"] = allow()
    world.register("validating", world.webhook(_NAME, "/hook", clientConfig=client))
    return world.request("POST", world.path("configmaps"), config_map("a"))


def _failed(world: World, service: str, reason: str) -> str:
    url = f"https://{service}.{world.namespace}.svc:443/hook?timeout=10s"
    return f'Internal error occurred: failed calling webhook "{_NAME}": failed to call webhook: Post "{url}": {reason}'


def case_a_service_that_is_not_there(world: World) -> None:
    answer = _call(world, _reference(world, "none"))
    assert (answer.code, answer.message) == (500, _failed(world, "none", 'service "none" not found'))


def case_a_service_without_endpoints(world: World) -> None:
    _create_service(world, "empty", clusterIP="None")
    answer = _call(world, _reference(world, "empty"))
    assert answer.code == 500
    # The embedded API goes on to say what is missing there.
    assert answer.message.startswith(_failed(world, "empty", 'no endpoints available for service "empty"'))


def case_a_service_without_that_port(world: World) -> None:
    _create_service(world, "other")
    answer = _call(world, _reference(world, "other", port=8443))
    url = f"https://other.{world.namespace}.svc:8443/hook?timeout=10s"
    reason = f'failed to call webhook: Post "{url}": no service port 8443 found for service "other"'
    expected = f'Internal error occurred: failed calling webhook "{_NAME}": {reason}'
    assert (answer.code, answer.message) == (500, expected)


def case_a_service_of_another_kind(world: World) -> None:
    answer_spec = {"type": "ExternalName", "externalName": "example.com"}
    _create_service(world, "outside", **answer_spec)
    answer = _call(world, _reference(world, "outside"))
    assert (answer.code, answer.message) == (
        500,
        _failed(world, "outside", 'unsupported service type "ExternalName"'),
    )
