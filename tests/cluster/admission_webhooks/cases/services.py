"""Webhooks behind Services: the Service's endpoints are called under its name."""

from __future__ import annotations

from tests.cluster.admission_webhooks.api_server import HttpResponse
from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import Document, allow

_NAME = "a.example.com"


def _reference(cluster: WebhookCluster, service: str, **more: object) -> Document:
    reference = {"namespace": cluster.namespace, "name": service, "path": "/hook", **more}
    return {"service": reference, "caBundle": cluster.server.ca_bundle}


def _create_service(cluster: WebhookCluster, name: str, **spec: object) -> None:
    ports = [{"name": "https", "port": 443, "targetPort": 9443}]
    response = cluster.request(
        "POST", cluster.path("services"), {"metadata": {"name": name}, "spec": {"ports": ports, **spec}}
    )
    assert response.code == 201, response.message


def _call(cluster: WebhookCluster, client: Document) -> HttpResponse:
    cluster.server.behaviours["/hook"] = allow()
    cluster.register("validating", cluster.webhook(_NAME, "/hook", clientConfig=client))
    return cluster.request("POST", cluster.path("configmaps"), config_map("a"))


def _failed(cluster: WebhookCluster, service: str, reason: str) -> str:
    url = f"https://{service}.{cluster.namespace}.svc:443/hook?timeout=10s"
    return f'Internal error occurred: failed calling webhook "{_NAME}": failed to call webhook: Post "{url}": {reason}'


def case_a_service_that_is_not_there(cluster: WebhookCluster) -> None:
    response = _call(cluster, _reference(cluster, "none"))
    assert (response.code, response.message) == (500, _failed(cluster, "none", 'service "none" not found'))


def case_a_service_without_endpoints(cluster: WebhookCluster) -> None:
    _create_service(cluster, "empty", clusterIP="None")
    response = _call(cluster, _reference(cluster, "empty"))
    assert response.code == 500
    # The embedded API goes on to say what is missing there.
    assert response.message.startswith(_failed(cluster, "empty", 'no endpoints available for service "empty"'))


def case_a_service_without_that_port(cluster: WebhookCluster) -> None:
    _create_service(cluster, "other")
    response = _call(cluster, _reference(cluster, "other", port=8443))
    url = f"https://other.{cluster.namespace}.svc:8443/hook?timeout=10s"
    reason = f'failed to call webhook: Post "{url}": no service port 8443 found for service "other"'
    expected = f'Internal error occurred: failed calling webhook "{_NAME}": {reason}'
    assert (response.code, response.message) == (500, expected)


def case_a_service_of_another_kind(cluster: WebhookCluster) -> None:
    response_spec = {"type": "ExternalName", "externalName": "example.com"}
    _create_service(cluster, "outside", **response_spec)
    response = _call(cluster, _reference(cluster, "outside"))
    assert (response.code, response.message) == (
        500,
        _failed(cluster, "outside", 'unsupported service type "ExternalName"'),
    )
