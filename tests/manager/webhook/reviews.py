"""AdmissionReviews as API servers write them, and handlers that respond as told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

from koordinator.manager.webhook.admission import AdmissionRequest, AdmissionResponse

POD = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}


def review(version: str = "v1", **request: Any) -> bytes:
    """A question about the creation of POD, but for what is said."""
    return json.dumps(
        {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{version}",
            "request": {
                "uid": "705ab4f5",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "name": "web",
                "namespace": "default",
                "operation": "CREATE",
                "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
                "object": POD,
                "oldObject": None,
                "dryRun": False,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
                **request,
            },
        }
    ).encode()


def answered(body: bytes) -> dict[str, Any]:
    """The response of an AdmissionReview, its patch decoded."""
    response: dict[str, Any] = json.loads(body)["response"]
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response


def at_once(responding: Coroutine[Any, Any, bytes]) -> dict[str, Any]:
    """The response of a webhook that waits for nothing, its patch decoded."""
    try:
        responding.send(None)
    except StopIteration as end:
        return answered(end.value)
    raise AssertionError("the webhook waits for something")


class Handler:
    """Answers with a function, and remembers the requests."""

    def __init__(self, path: str, respond: Callable[[AdmissionRequest], AdmissionResponse]) -> None:
        self.path = path
        self._respond = respond
        self.requests: list[AdmissionRequest] = []

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        self.requests.append(request)
        return self._respond(request)
