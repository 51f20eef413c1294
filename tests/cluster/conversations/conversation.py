"""Requests and what the real kube-apiserver v1.35 answered to them: one corpus for it and for the embedded API.

``NAME.yaml`` holds conversations, each a list of requests that build on each other in a namespace of their own;
``NAME.json`` has the responses, written by ``python -m tests.cluster.conversations.record KUBECONFIG``. A request is
``METHOD GROUPVERSION PATH`` with its body:

    POST v1 configmaps: {metadata: {name: a}}
    JSON-PATCH apps/v1 deployments/web/scale: [{op: replace, path: /spec/replicas, value: 2}]

``TABLE`` requests what ``kubectl get`` prints; ``AWAIT`` gets until it is there and ``DROP`` deletes, and of these two
only the code counts. ``$namespace`` is that of the conversation, ``$uid`` and ``$version`` are those of the object that
was answered last, and ``$times 3 x`` is ``xxx``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.admission_webhooks.api_server import ApiServer, HttpResponse
from tests.yaml_documents import yaml_documents

_HERE = Path(__file__).parent
_MEDIA = {
    "APPLY": "application/apply-patch+yaml",
    "PATCH": "application/merge-patch+json",
    "JSON-PATCH": "application/json-patch+json",
    "STRATEGIC-PATCH": "application/strategic-merge-patch+json",
}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSION = re.compile(r"(in precondition|in object meta|in record)( \(|: )\d+")
_REVISION = re.compile(r'("resourceVersion":")\d+')
_PATCHED = re.compile(r'(patch: Invalid value|^Invalid value): "\{.*\}"', re.DOTALL)
_GENERATED = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_STORAGE_ERROR = re.compile(
    r"StorageError: invalid object, Code: 4, Key: [^,]*, ResourceVersion: 0, AdditionalErrorMsg: "
)
_TIMES = re.compile(r"\$times (\d+) (.*)")
_AGE = re.compile(r"\d+s")
_LONGEST = 2000
_WAIT_SECONDS = 20.0
_LEFT_OUT = ("description",)


@dataclass(frozen=True)
class Conversation:
    """``answers`` has one entry for each request: code, body and warnings, without what differs from run to run."""

    name: str
    requests: list[dict[str, Any]]
    responses: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.name


def files() -> list[str]:
    return sorted(path.stem for path in _HERE.glob("*.yaml"))


def conversations(file: str) -> list[Conversation]:
    (written,) = yaml_documents((_HERE / f"{file}.yaml").read_text())
    responses = _HERE / f"{file}.json"
    recorded = json.loads(responses.read_text()) if responses.exists() else {}
    return [Conversation(f"{file}-{name}", requests, recorded.get(name, [])) for name, requests in written.items()]


def every_conversation() -> list[Conversation]:
    return [conversation for file in files() for conversation in conversations(file)]


def record(file: str, responses: dict[str, list[dict[str, Any]]]) -> None:
    (_HERE / f"{file}.json").write_text(json.dumps(responses, indent=1, sort_keys=True) + "\n")


def play(kubeconfig: Path, namespace: str, conversation: Conversation) -> list[dict[str, Any]]:
    """What a server sends back, in the form of ``Conversation.responses``."""
    server = ApiServer(kubeconfig)
    made = server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.code == 201, made.message
    try:
        return [_comparable(response, namespace) for response in _responses(server, namespace, conversation)]
    finally:
        server.request("DELETE", f"/api/v1/namespaces/{namespace}")


def _responses(server: ApiServer, namespace: str, conversation: Conversation) -> Iterator[HttpResponse]:
    known = {"$namespace": namespace}
    for request in conversation.requests:
        ((line, body),) = request.items()
        method, group_version, path = _filled(line, known).split(" ", 2)
        base = f"/api/{group_version}" if group_version == "v1" else f"/apis/{group_version}"
        scope = "" if path.startswith("/") else f"/namespaces/{namespace}/"
        response = _request(server, method, f"{base}{scope}{path}", _filled(body, known))
        metadata = response.body.get("metadata") or {}
        if metadata.get("resourceVersion") and metadata.get("uid"):
            known |= {"$uid": metadata["uid"], "$version": metadata["resourceVersion"]}
        yield response


def _request(server: ApiServer, method: str, path: str, body: Any) -> HttpResponse:
    if method == "AWAIT":
        end = time.monotonic() + _WAIT_SECONDS
        while (response := server.request("GET", path)).code != 200 and time.monotonic() < end:
            time.sleep(0.05)
        return HttpResponse(response.code, {}, [])
    if method == "DROP":
        return HttpResponse(server.request("DELETE", path).code, {}, [])
    media = _MEDIA.get(method, "")
    verb = "PATCH" if media else "GET" if method == "TABLE" else method
    return server.request(verb, path, body, media=media, accept=_TABLE if method == "TABLE" else "application/json")


def _filled(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_filled(key, known): _filled(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, known) for item in value]
    if not isinstance(value, str):
        return value
    if times := _TIMES.fullmatch(value):
        return times[2] * int(times[1])
    for name, text in known.items():
        value = value.replace(name, text)
    return value


def _comparable(response: HttpResponse, namespace: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"code": response.code, "body": _steady(response.body, namespace)}
    if response.warnings:
        shown["warnings"] = [_steady(text, namespace) for text in response.warnings]
    return shown


def _manager(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name)) for name in ("operation", "manager", "apiVersion", "subresource"))


def _steady(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        steady = {key: _steady(item, namespace) for key, item in value.items() if key not in _LEFT_OUT}
        if steady.get("details") == {}:
            del steady["details"]
        items = steady.get("items")
        for item in items if isinstance(items, list) else ():
            # The embedded API names the kind of every item, as the real server does for custom resources.
            item.pop("apiVersion", None)
            item.pop("kind", None)
        if steady.get("kind") == "CustomResourceDefinition":
            # The real server accepts a definition a moment later.
            steady.pop("status", None)
        if isinstance(steady.get("managedFields"), list):
            # Within the same second they are sorted by name, and over its end by time.
            steady["managedFields"].sort(key=_manager)
        if steady.get("username") == "admin":
            # The list of tokens that the real server reads names its administrator's UID.
            steady.pop("uid", None)
        if steady.get("resourceVersion"):
            steady["resourceVersion"] = "VERSION"
        return steady
    if isinstance(value, list):
        return [_steady(item, namespace) for item in value]
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST:
        return f"{len(value)} characters"
    # What the real server says of its own storage is nobody's business.
    value = _STORAGE_ERROR.sub("", value)
    text = _REVISION.sub(r"\1VERSION", _GENERATED.sub("?????", _PATCHED.sub(r'\1: "{…}"', value)))
    text = _VERSION.sub(r"\1\2VERSION", _TIME.sub("TIME", _UUID.sub("UID", text))).replace(namespace, "NAMESPACE")
    return "AGE" if _AGE.fullmatch(text) else text
