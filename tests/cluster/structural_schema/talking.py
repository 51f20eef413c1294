"""The cases of ``tests/real/schema_cases.py`` on one server, with responses that can be compared with another's."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koordinator.api.document import Document, copied
from tests.cluster.admission_webhooks.api_server import ApiServer, HttpResponse
from tests.real.schema_cases import DEFINITIONS, GROUP, SPECS, STATUS_DEFINITIONS, WITH_STATUS, Request, Talk

DEFINITIONS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KEPT = ("generation", "labels", "annotations", "finalizers", "name")
_SETTLE_SECONDS = 20.0
_WHOLE = re.compile(
    r'Invalid value: ("\{.*\}": |\{.*\}: (?=only \[)|\[.*\]: (?=must (contain unique|have exactly)))', re.DOTALL
)
"""Patched objects, and whole schemas, which the real server prints with the names of Go fields."""
_SELF_TYPE = re.compile(r"selfType\d*")
"""The name of the type of ``self``, which has a number of the moment there."""


def define(plural: str, schema: Document, **version: Any) -> Document:
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [served],
        },
    }


RECORDED: Document = json.loads((Path(__file__).parent / "responses.json").read_text())
"""What kube-apiserver v1.35 said: of definitions by name, and in talks."""


class Speaker:
    """Whoever talks to one server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = ApiServer(kubeconfig)

    def decision(self, name: str) -> Document:
        """What the server says of a definition, which does not come to be."""
        schema = DEFINITIONS.get(name)
        version = {} if schema else WITH_STATUS
        schema = schema or STATUS_DEFINITIONS[name]
        response = self._api.request(
            "POST", f"{DEFINITIONS_PATH}?dryRun=All", define(name.replace("-", ""), schema, **version)
        )
        reported = heard(response)
        reported.pop("object", None)
        return reported

    def decision_on_spec(self, name: str) -> Document:
        """The same, where it is not the schema that counts."""
        definition = define("things", {"type": "object"})
        definition["spec"].update(SPECS[name])
        reported = heard(self._api.request("POST", f"{DEFINITIONS_PATH}?dryRun=All", definition))
        reported.pop("object", None)
        return reported

    def talk(self, talk: Talk) -> list[Document]:
        """The responses to the requests, in their order."""
        definition = define(talk.plural, talk.schema, **talk.version)
        response = self._api.request("POST", DEFINITIONS_PATH, definition)
        assert response.code == 201, response.message
        collection = f"/apis/{GROUP}/v1/{talk.plural}"
        self._await(lambda: self._api.request("GET", collection).code == 200)
        try:
            return [self._send(talk, collection, request) for request in talk.requests]
        finally:
            self._api.request("DELETE", f"{DEFINITIONS_PATH}/{talk.plural}.{GROUP}")

    def _send(self, talk: Talk, collection: str, request: Request) -> Document:
        if request.method == "DEFINE":
            return self._redefine(talk, collection, request.body)
        body = copied(request.body)
        if isinstance(body, dict) and request.method in ("POST", "PUT"):
            body = {"apiVersion": f"{GROUP}/v1", "kind": talk.plural.capitalize(), **body}
            if body["metadata"].get("resourceVersion") == "$":
                current = self._api.request("GET", f"{collection}/{body['metadata']['name']}").body
                body["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
        return heard(self._api.request(request.method, collection + request.path, body, media=request.media))

    def _redefine(self, talk: Talk, collection: str, schema: Document) -> Document:
        """Returns when the server goes by the new schema, which tells itself by a field of its own."""
        marked = copied(schema)
        marked["properties"]["marker"] = {"type": "string", "default": str(time.monotonic_ns())}
        path = f"{DEFINITIONS_PATH}/{talk.plural}.{GROUP}"
        definition = self._api.request("GET", path).body
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = marked
        response = self._api.request("PUT", path, definition)
        assert response.code == 200, response.message
        probe = {"apiVersion": f"{GROUP}/v1", "kind": talk.plural.capitalize(), "metadata": {"generateName": "probe-"}}
        wanted = marked["properties"]["marker"]["default"]

        def goes_by_it() -> bool:
            return bool(self._api.request("POST", f"{collection}?dryRun=All", probe).body.get("marker") == wanted)

        self._await(goes_by_it)
        return {"code": 200}

    def _await(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _SETTLE_SECONDS
        while not holds():
            assert time.monotonic() < end, "the server did not follow the definition in time"
            time.sleep(0.05)


def heard(response: HttpResponse) -> Document:
    """What must be the same everywhere of a response."""
    reported: Document = {"code": response.code}
    if response.warnings:
        reported["warnings"] = response.warnings
    if response.code >= 400:
        causes = (response.body.get("details") or {}).get("causes") or []
        reported["reason"] = response.body.get("reason")
        reported["causes"] = sorted(
            [
                cause.get("reason") or "",
                cause.get("field") or "",
                _text(cause.get("message") or ""),
            ]
            for cause in causes
        )
        # The order of several causes is that of a Go map.
        reported["message"] = _text(response.message) if len(causes) < 2 else ""
    elif "items" in response.body:
        reported["items"] = [_kept(item) for item in response.body["items"]]
    else:
        reported["object"] = _kept(response.body)
    return reported


def _text(message: str) -> str:
    return _SELF_TYPE.sub("selfType", _WHOLE.sub("Invalid value: …: ", message))


def _kept(document: Document) -> Document:
    metadata = {name: value for name, value in document["metadata"].items() if name in _KEPT}
    rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "marker", "metadata")}
    return {"metadata": metadata, **rest}
