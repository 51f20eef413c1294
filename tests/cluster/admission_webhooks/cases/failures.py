"""Webhooks that cannot be reached, take too long, or answer nonsense; and what the failure policy makes of it."""

from __future__ import annotations

import socketserver
import threading
from typing import Any

from tests.cluster.admission_webhooks.api_server import HttpResponse
from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import (
    Behaviour,
    Document,
    Reply,
    allow,
    bundle,
    deny,
    envelope,
    patch,
    raw,
    respond,
)
from tests.kube.certificates import Authority

_NAME = "a.example.com"


def _call(cluster: WebhookCluster, kind: str, behaviour: Behaviour | None, **fields: Any) -> HttpResponse:
    if behaviour is not None:
        cluster.server.behaviours["/hook"] = behaviour
    cluster.register(kind, cluster.webhook(_NAME, "/hook", **fields))
    return cluster.request("POST", cluster.path("configmaps"), config_map("a"))


def _failed(reason: str) -> str:
    return f'Internal error occurred: failed calling webhook "{_NAME}": {reason}'


def _posted(cluster: WebhookCluster, reason: str, *, timeout: int = 10) -> str:
    return _failed(
        f'failed to call webhook: Post "https://127.0.0.1:{cluster.server.port}/hook?timeout={timeout}s": {reason}'
    )


def _never(cluster: WebhookCluster) -> Behaviour:
    """Answers when the server is closed: longer than any limit of these cases."""

    def behave(review: Document) -> Reply:
        cluster.server.released.wait(15)
        return Reply(b"{}")

    return behave


def case_nobody_listens(cluster: WebhookCluster) -> None:
    client = {"url": "https://127.0.0.1:1/hook"}
    reply = _call(cluster, "validating", None, clientConfig=client)
    reason = 'Post "https://127.0.0.1:1/hook?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {reason}"))
    assert reply.body["reason"] == "InternalError"
    cause = reply.message.removeprefix("Internal error occurred: ")
    assert reply.body["details"] == {"causes": [{"message": cause}]}


def case_nobody_listens_and_nobody_minds(cluster: WebhookCluster) -> None:
    client = {"url": "https://127.0.0.1:1/hook"}
    cluster.register("mutating", cluster.webhook("b.example.com", "/hook", clientConfig=client, failurePolicy="Ignore"))
    assert _call(cluster, "validating", None, clientConfig=client, failurePolicy="Ignore").code == 201


def case_a_mutating_webhook_that_nobody_listens_for(cluster: WebhookCluster) -> None:
    client = {"url": "https://127.0.0.1:1/"}
    reply = _call(cluster, "mutating", None, clientConfig=client)
    reason = 'Post "https://127.0.0.1:1/?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {reason}"))


def case_a_refusal_is_no_failure(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", deny(message="no"), failurePolicy="Ignore")
    assert reply.message == f'admission webhook "{_NAME}" denied the request: no'


def case_a_webhook_takes_too_long(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", _never(cluster), timeoutSeconds=1)
    assert (reply.code, reply.message) == (500, _posted(cluster, "context deadline exceeded", timeout=1))


def case_a_webhook_takes_too_long_and_nobody_minds(cluster: WebhookCluster) -> None:
    assert _call(cluster, "mutating", _never(cluster), timeoutSeconds=1, failurePolicy="Ignore").code == 201


def case_a_timeout_that_is_none(cluster: WebhookCluster) -> None:
    reply = cluster.request("POST", f"{cluster.path('configmaps')}?timeout=soon", config_map("a"))
    expected = 'invalid timeout specified in the request URL - time: invalid duration "soon"'
    assert (reply.code, reply.message) == (400, expected)


def case_somebody_who_speaks_no_tls(cluster: WebhookCluster) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _PlainHttp) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_address[1]}/hook"
        reply = _call(cluster, "validating", None, clientConfig={"url": url})
        server.shutdown()
    reason = f'Post "{url}?timeout=10s": http: server gave HTTP response to HTTPS client'
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {reason}"))


class _PlainHttp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def case_somebody_who_hangs_up(cluster: WebhookCluster) -> None:
    def hang_up(review: Document) -> Reply:
        raise ConnectionAbortedError

    reply = _call(cluster, "validating", hang_up)
    assert (reply.code, reply.message) == (500, _posted(cluster, "EOF"))


def case_an_unknown_authority(cluster: WebhookCluster) -> None:
    client = {**cluster.client("/hook"), "caBundle": bundle(Authority("somebody else"))}
    reply = _call(cluster, "validating", allow(), clientConfig=client)
    reason = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    assert (reply.code, reply.message) == (500, _posted(cluster, reason))


def case_a_certificate_for_another_name(cluster: WebhookCluster) -> None:
    client = {"url": f"https://localhost:{cluster.server.port}/hook", "caBundle": cluster.server.ca_bundle}
    reply = _call(cluster, "validating", allow(), clientConfig=client)
    reason = (
        f'failed to call webhook: Post "https://localhost:{cluster.server.port}/hook?timeout=10s": '
        "tls: failed to verify certificate: x509: certificate is valid for hook.default.svc, not localhost"
    )
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_a_bundle_without_a_certificate(cluster: WebhookCluster) -> None:
    client = {**cluster.client("/hook"), "caBundle": "bm90aGluZw=="}
    reply = _call(cluster, "validating", allow(), clientConfig=client)
    reason = "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_no_such_path(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", None)
    reason = "failed to call webhook: the server could not find the requested resource"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_the_webhook_fails(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw("boom", 500, "text/plain"))
    reason = 'failed to call webhook: an error on the server ("boom") has prevented the request from succeeding'
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_the_webhook_fails_with_json(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw('{"error":"boom"}', 502))
    reason = 'failed to call webhook: an error on the server ("unknown") has prevented the request from succeeding'
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_the_webhook_is_overloaded(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw("later", 429, "text/plain"))
    why = "the server has received too many requests and has asked us to try again later"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {why}"))


def case_the_webhook_has_no_time(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw("later", 503, "text/plain"))
    why = "the server is currently unable to handle the request"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {why}"))


def case_an_unknown_status(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw("?", 418, "text/plain"))
    why = "the server responded with the status code 418 but did not return more information"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {why}"))


def case_an_empty_response(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw(""))
    why = "0-length response with status code: 200 and content type: application/json"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {why}"))


def case_a_response_that_is_no_json(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", raw("<html>", content_type="text/html"))
    found = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    why = f"couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type {found}"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {why}"))


def case_a_response_without_a_response(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", envelope(response=None))
    reason = "received invalid webhook response: webhook response was absent"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_a_response_to_another_question(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", respond(uid="other", allowed=True))
    uid = cluster.server.requests[0].request["uid"]
    reason = f'received invalid webhook response: expected response.uid="{uid}", got "other"'
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_a_response_without_version_and_kind(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", envelope(apiVersion=None, kind=None))
    what = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    assert (reply.code, reply.message) == (500, _failed(f"received invalid webhook response: {what}"))


def case_a_response_in_another_version(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", envelope(apiVersion="admission.k8s.io/v1beta1"))
    what = "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
    assert (reply.code, reply.message) == (500, _failed(f"failed to call webhook: {what}"))


def case_a_validating_webhook_may_not_patch(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "validating", patch({"op": "add", "path": "/data", "value": {}}))
    reason = "received invalid webhook response: validating webhook may not return response.patch"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_a_patch_needs_its_type(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "mutating", respond(allowed=True, patch="W10="))
    reason = "received invalid webhook response: webhook returned response.patch but not response.patchType"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_a_type_needs_its_patch(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "mutating", respond(allowed=True, patchType="JSONPatch"))
    reason = "received invalid webhook response: webhook returned response.patchType but not response.patch"
    assert (reply.code, reply.message) == (500, _failed(reason))


def case_an_unknown_type_of_patch(cluster: WebhookCluster) -> None:
    operations = [{"op": "add", "path": "/data", "value": {}}]
    reply = _call(cluster, "mutating", patch(*operations, patchType="Merge"))
    assert (reply.code, reply.message) == (500, _failed('unsupported patch type "Merge"'))


def case_an_empty_patch_changes_nothing(cluster: WebhookCluster) -> None:
    assert _call(cluster, "mutating", patch()).code == 201


def case_patches_that_do_not_apply(cluster: WebhookCluster) -> None:
    for operation, why in (
        (
            {"op": "add", "path": "/no/such", "value": 1},
            'add operation does not apply: doc is missing path: "/no/such": missing value',
        ),
        (
            {"op": "remove", "path": "/none"},
            "error in remove for path: '/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            {"op": "replace", "path": "/no/such", "value": 1},
            "replace operation does not apply: doc is missing path: /no/such: missing value",
        ),
        (
            {"op": "test", "path": "/kind", "value": "Pod"},
            "testing value /kind failed: test failed",
        ),
        ({"op": "bend", "path": "/kind"}, "Unexpected kind: bend"),
    ):
        cluster.server.behaviours["/hook"] = patch(operation)
        if not cluster.configurations:
            cluster.register("mutating", cluster.webhook(_NAME, "/hook"))
        reply = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
        assert (reply.code, reply.message) == (500, f"Internal error occurred: {why}")


def case_a_patch_to_another_type(cluster: WebhookCluster) -> None:
    reply = _call(cluster, "mutating", patch({"op": "add", "path": "/data", "value": [1]}))
    why = "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"
    assert (reply.code, reply.message) == (500, f"Internal error occurred: {why}")
