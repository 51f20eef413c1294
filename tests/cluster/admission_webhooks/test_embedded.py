"""What the real kube-apiserver does otherwise, cannot show on loopback, or leaves to chance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.admission_webhooks.api_server import Answer
from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_server import Document, Reply, allow, deny, raw
from tests.cluster.admission_webhooks.world import World

_NAME = "a.example.com"


def _create(world: World, query: str = "") -> Answer:
    return world.request("POST", f"{world.path('configmaps')}{query}", config_map("a"))


@pytest.fixture
def service(world: World) -> Document:
    """A reference to a Service of the name that the webhook server's certificate is for."""
    spec = {"ports": [{"name": "https", "port": 443}], "clusterIP": "None"}
    path = "/api/v1/namespaces/default/services"
    world.request("DELETE", f"{path}/hook")
    assert world.request("POST", path, {"metadata": {"name": "hook"}, "spec": spec}).code == 201
    reference = {"namespace": "default", "name": "hook", "path": "/hook"}
    return {"service": reference, "caBundle": world.server.ca_bundle}


def _called_at(world: World, client: Document, path: str, document: Document) -> Answer:
    """Create what tells the Service's address, make one request, and take it away again."""
    assert world.request("POST", path, document).code == 201
    world.server.behaviours["/hook"] = deny(message="called")
    world.register("validating", world.webhook(_NAME, "/hook", clientConfig=client))
    answer = _create(world)
    world.request("DELETE", f"{path}/{document['metadata']['name']}")
    return answer


def test_a_service_is_found_by_its_endpoints(world: World, service: Document) -> None:
    ports = [{"name": "https", "port": world.server.port}]
    document = {"metadata": {"name": "hook"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}]}
    answer = _called_at(world, service, "/api/v1/namespaces/default/endpoints", document)
    assert answer.message == f'admission webhook "{_NAME}" denied the request: called'


def test_a_service_is_found_by_its_slices(world: World, service: Document) -> None:
    document = _slice(world, ready=True)
    answer = _called_at(world, service, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", document)
    assert answer.message == f'admission webhook "{_NAME}" denied the request: called'


def test_an_endpoint_that_is_not_ready_is_not_called(world: World, service: Document) -> None:
    document = _slice(world, ready=False)
    answer = _called_at(world, service, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", document)
    assert "create Endpoints or an EndpointSlice for default/hook with a loopback address" in answer.message


def _slice(world: World, *, ready: bool) -> Document:
    return {
        "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        "ports": [{"name": "https", "port": world.server.port, "protocol": "TCP"}],
    }


def test_the_request_itself_may_end_first(world: World) -> None:
    def never(review: Document) -> Reply:
        world.server.released.wait(5)
        return Reply(b"{}")

    world.server.behaviours["/hook"] = never
    world.register("validating", world.webhook(_NAME, "/hook", failurePolicy="Ignore"))
    answer = _create(world, "?timeout=300ms")
    expected = (504, "Timeout", "Timeout: request did not complete within the allotted timeout")
    assert (answer.code, answer.body["reason"], answer.message) == expected


def test_redirects_are_not_followed(world: World) -> None:
    elsewhere = f"https://127.0.0.1:{world.server.port}/elsewhere"
    world.server.behaviours |= {"/hook": raw("", 307, location=elsewhere), "/elsewhere": allow()}
    world.register("validating", world.webhook(_NAME, "/hook"))
    assert "the server responded with the status code 307" in _create(world).message
    assert world.server.paths() == ["/hook"]


def test_an_answer_without_end_is_cut_off(world: World) -> None:
    world.server.behaviours["/hook"] = raw(" " * (4 << 20))
    world.register("validating", world.webhook(_NAME, "/hook"))
    assert "the answer is longer than 3145728 bytes" in _create(world).message


def test_connections_are_kept(world: World) -> None:
    world.server.behaviours["/hook"] = allow()
    world.register("validating", world.webhook(_NAME, "/hook"))
    before = world.server.connections
    codes = [_create(world, "?dryRun=All").code for _ in range(5)]
    assert (codes, world.server.connections - before) == ([201] * 5, 0)


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_match_conditions_are_refused(world: World, kind: str) -> None:
    webhook: dict[str, Any] = world.webhook(_NAME, "/hook", matchConditions=[{"name": "a", "expression": "true"}])
    path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations"
    answer = world.request("POST", path, {"metadata": {"name": "conditions"}, "webhooks": [webhook]})
    complaint = (
        "webhooks[0].matchConditions: Forbidden: "
        "match conditions are CEL expressions, which the embedded API does not evaluate"
    )
    assert (answer.code, answer.message.partition(" is invalid: ")[2]) == (422, complaint)
