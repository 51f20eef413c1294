"""Odd and hostile requests, byte by byte, and what the real kube-apiserver v1.35 answered to them.

``cases.py`` has the requests, ``responses.json`` the responses, written by ``python -m tests.cluster.requests.record
KUBECONFIG``. The embedded API and the real one are held to the same responses.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# Warnings come as headers, up to a thousand of them here.
http.client._MAXHEADERS = 10_000  # type: ignore[attr-defined]
_RESPONSES = Path(__file__).parent / "responses.json"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CURRENT = re.compile(r"(?<=, current: )\d+")
_PATCHED = re.compile(r'Invalid value: "\{.*\}"', re.DOTALL)
_STORAGE_ERROR = re.compile(r"StorageError: [^,]*, Code: 4, Key: [^,]*, ResourceVersion: 0, AdditionalErrorMsg: ")
_MEDIA_TYPES = re.compile(r"(Available representations|following media types are accepted): .*")
_WHY_REJECTED = re.compile(r"(?<=due to an error in our request): .*", re.DOTALL)
_LONGEST = 1000


@dataclass(frozen=True)
class Request:
    """``path`` is below the namespace of the case unless it begins with a slash."""

    method: str
    path: str
    body: Any = None
    """Text and bytes are sent as they are, all else as JSON."""
    headers: dict[str, str | bytes] = field(default_factory=dict)
    exact: bool = True
    """False where the embedded API says the same in other words: then code and reason count."""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.headers or ''} {str(self.body)[:60]}"


def recorded() -> dict[str, list[dict[str, Any]]]:
    responses: dict[str, list[dict[str, Any]]] = json.loads(_RESPONSES.read_text()) if _RESPONSES.exists() else {}
    return responses


def record(responses: dict[str, list[dict[str, Any]]]) -> None:
    _RESPONSES.write_text(json.dumps(responses, indent=1, sort_keys=True) + "\n")


class Exchange:
    """One server, and a namespace of its own for every case."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._host = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
        self._token = config["users"][0]["user"]["token"]
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def play(self, namespace: str, requests: list[Request]) -> list[dict[str, Any]]:
        self._send(Request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}), namespace)
        try:
            return [self._send(request, namespace) for request in requests]
        finally:
            self._send(Request("DELETE", f"/api/v1/namespaces/{namespace}"), namespace)

    def _send(self, request: Request, namespace: str) -> dict[str, Any]:
        path = request.path if request.path.startswith("/") else f"/api/v1/namespaces/{namespace}/{request.path}"
        body = request.body if isinstance(request.body, (str, bytes)) else json.dumps(request.body)
        sent = None if request.body is None else body.encode() if isinstance(body, str) else body
        headers: dict[str, Any] = {"Authorization": f"Bearer {self._token}"}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(request.headers)
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        try:
            connection.request(
                request.method,
                path.replace("$namespace", namespace),
                sent,
                {n: v for n, v in headers.items() if v != ""},
            )
            response = connection.getresponse()
            return _comparable(response, response.read(), namespace, exact=request.exact)
        finally:
            connection.close()


def _comparable(response: http.client.HTTPResponse, body: bytes, namespace: str, *, exact: bool) -> dict[str, Any]:
    """Without what differs from run to run."""
    shown: dict[str, Any] = {"code": response.status}
    if exact and (warnings := response.headers.get_all("Warning")):
        shown["warnings"] = warnings
    document = json.loads(body) if body.startswith(b"{") else {"text": body.decode(errors="replace")}
    if document.get("kind") != "Status":
        # What a response shows of objects is held to the real server elsewhere.
        return shown
    shown |= {"reason": document.get("reason"), "details": _steady(document.get("details", "absent"), namespace)}
    if not exact:
        del shown["details"]
        return shown
    shown["message"] = _steady(document.get("message"), namespace)
    if retry := response.headers.get("Retry-After"):
        shown["retry after"] = retry
    return shown


def _steady(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {name: _steady(item, namespace) for name, item in value.items()}
    if isinstance(value, list):
        return [_steady(item, namespace) for item in value]
    if not isinstance(value, str):
        return value
    value = _STORAGE_ERROR.sub("", _PATCHED.sub("Invalid value: {…}", value))
    # The embedded API tells why it rejects a patch; and it writes JSON alone.
    value = _WHY_REJECTED.sub("", value)
    value = _MEDIA_TYPES.sub(r"\1: …", value)
    value = _CURRENT.sub("VERSION", _TIME.sub("TIME", _UUID.sub("UID", value))).replace(namespace, "NAMESPACE")
    return value if len(value) < _LONGEST else f"{len(value)} characters"
