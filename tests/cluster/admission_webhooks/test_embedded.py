"""What the real kube-apiserver does otherwise, cannot show on loopback, or leaves to chance."""

from __future__ import annotations

import pytest

from tests.cluster.admission_webhooks.api_server import HttpResponse
from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import Document, Reply, allow, deny, patch, raw

_NAME = "a.example.com"


def _create(cluster: WebhookCluster, query: str = "") -> HttpResponse:
    return cluster.request("POST", f"{cluster.path('configmaps')}{query}", config_map("a"))


@pytest.fixture
def service(cluster: WebhookCluster) -> Document:
    """A reference to a Service of the name that the webhook server's certificate is for."""
    spec = {"ports": [{"name": "https", "port": 443}], "clusterIP": "None"}
    path = "/api/v1/namespaces/default/services"
    cluster.request("DELETE", f"{path}/hook")
    assert cluster.request("POST", path, {"metadata": {"name": "hook"}, "spec": spec}).code == 201
    reference = {"namespace": "default", "name": "hook", "path": "/hook"}
    return {"service": reference, "caBundle": cluster.server.ca_bundle}


def _called_at(cluster: WebhookCluster, client: Document, path: str, document: Document) -> HttpResponse:
    """Create what tells the Service's address, make one request, and take it away again."""
    assert cluster.request("POST", path, document).code == 201
    cluster.server.behaviours["/hook"] = deny(message="called")
    cluster.register("validating", cluster.webhook(_NAME, "/hook", clientConfig=client))
    response = _create(cluster)
    cluster.request("DELETE", f"{path}/{document['metadata']['name']}")
    return response


def test_a_service_is_found_by_its_endpoints(cluster: WebhookCluster, service: Document) -> None:
    ports = [{"name": "https", "port": cluster.server.port}]
    document = {"metadata": {"name": "hook"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}]}
    response = _called_at(cluster, service, "/api/v1/namespaces/default/endpoints", document)
    assert response.message == f'admission webhook "{_NAME}" denied the request: called'


def test_a_service_is_found_by_its_slices(cluster: WebhookCluster, service: Document) -> None:
    document = _slice(cluster, ready=True)
    response = _called_at(cluster, service, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", document)
    assert response.message == f'admission webhook "{_NAME}" denied the request: called'


def test_an_endpoint_that_is_not_ready_is_not_called(cluster: WebhookCluster, service: Document) -> None:
    document = _slice(cluster, ready=False)
    response = _called_at(cluster, service, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", document)
    assert "create Endpoints or an EndpointSlice for default/hook with a loopback address" in response.message


def _slice(cluster: WebhookCluster, *, ready: bool) -> Document:
    return {
        "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        "ports": [{"name": "https", "port": cluster.server.port, "protocol": "TCP"}],
    }


def test_the_request_itself_may_end_first(cluster: WebhookCluster) -> None:
    def never(review: Document) -> Reply:
        cluster.server.released.wait(5)
        return Reply(b"{}")

    cluster.server.behaviours["/hook"] = never
    cluster.register("validating", cluster.webhook(_NAME, "/hook", failurePolicy="Ignore"))
    response = _create(cluster, "?timeout=300ms")
    expected = (504, "Timeout", "Timeout: request did not complete within the allotted timeout")
    assert (response.code, response.body["reason"], response.message) == expected


def test_redirects_are_not_followed(cluster: WebhookCluster) -> None:
    elsewhere = f"https://127.0.0.1:{cluster.server.port}/elsewhere"
    cluster.server.behaviours |= {"/hook": raw("", 307, location=elsewhere), "/elsewhere": allow()}
    cluster.register("validating", cluster.webhook(_NAME, "/hook"))
    assert "the server responded with the status code 307" in _create(cluster).message
    assert cluster.server.paths() == ["/hook"]


def test_a_response_without_end_is_cut_off(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/hook"] = raw(" " * (4 << 20))
    cluster.register("validating", cluster.webhook(_NAME, "/hook"))
    assert "the response is longer than 3145728 bytes" in _create(cluster).message


def test_connections_are_kept(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/hook"] = allow()
    cluster.register("validating", cluster.webhook(_NAME, "/hook"))
    before = cluster.server.connections
    codes = [_create(cluster, "?dryRun=All").code for _ in range(5)]
    assert (codes, cluster.server.connections - before) == ([201] * 5, 0)


def test_of_two_refusals_the_one_of_the_first_webhook_counts(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {"/one": deny(message="one"), "/two": deny(message="two")}
    cluster.register("validating", cluster.webhook("b.example.com", "/one"), cluster.webhook("a.example.com", "/two"))
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.message == 'admission webhook "b.example.com" denied the request: one'


def test_an_unknown_field_that_a_patch_adds_stays(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/patch"] = patch({"op": "add", "path": "/nonsense", "value": 1})
    cluster.register("mutating", cluster.webhook("a.example.com", "/patch"))
    assert cluster.request("POST", cluster.path("configmaps"), config_map("a")).body["nonsense"] == 1
