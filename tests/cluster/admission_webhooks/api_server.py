"""Plain HTTP requests to an API server: codes, bodies and warnings as they came."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_MEDIA = {"PATCH": "application/merge-patch+json"}


@dataclass(frozen=True)
class HttpResponse:
    code: int
    body: dict[str, Any]
    warnings: list[str]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class ApiServer:
    """Of a kubeconfig; the user may do everything."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._root = config["clusters"][0]["cluster"]["server"]
        self._token = config["users"][0]["user"]["token"]
        # Servers on loopback with certificates of their own making.
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def request(
        self, method: str, path: str, body: Any = None, *, media: str = "", accept: str = "application/json"
    ) -> HttpResponse:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": media or _MEDIA.get(method, "application/json"),
            "Accept": accept,
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=60) as response:
                return _response(response.status, response.read(), response.headers.get_all("Warning"))
        except urllib.error.HTTPError as error:
            with error:
                return _response(error.code, error.read(), error.headers.get_all("Warning"))


def _response(code: int, body: bytes, warnings: list[str] | None) -> HttpResponse:
    # Some paths respond with plain text, those of a group that is not served yet among them.
    document = json.loads(body) if body.startswith(b"{") else {"message": body.decode()}
    return HttpResponse(code, document, [text.partition('"')[2].removesuffix('"') for text in warnings or []])
