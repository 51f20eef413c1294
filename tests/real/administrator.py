"""An administrator's requests to a real API server, for what a test needs around what it tests.

Connections are kept: a handshake costs both sides more CPU than a request, and tests that wait ask again and again.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

_SECONDS: Final = 30.0


class Administrator:
    """May be used by several threads; each has a connection of its own, which ``close`` closes."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._kept: dict[int, http.client.HTTPSConnection] = {}
        """By the thread's number, which may be that of a thread that has ended."""

    @classmethod
    def of(cls, kubeconfig: Path) -> Administrator:
        """The administrator that a kubeconfig of ``ControlPlane`` is for."""
        document = json.loads(kubeconfig.read_text())
        port = urlsplit(document["clusters"][0]["cluster"]["server"]).port
        assert port is not None
        return cls(port, document["users"][0]["user"]["token"])

    def request(
        self, method: str, path: str, document: Any = None, *, user: str = "", group: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """One request with a JSON body. Returns the status code and the response. A PATCH is a merge patch.
        Where there is no such resource yet, the response is empty. It acts as ``user``, in ``group``, where named."""
        media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        body = None if document is None else json.dumps(document).encode()
        acting = {"Impersonate-User": user} if user else {}
        acting |= {"Impersonate-Group": group} if group else {}
        status, response = self._exchange(method, path, body, {**self._headers, **acting, "Content-Type": media_type})
        found: dict[str, Any] = json.loads(response) if response.startswith(b"{") else {}
        return status, found

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        thread = threading.get_ident()
        if thread in self._kept:
            try:
                return _send(self._kept[thread], method, path, body, headers)
            except (OSError, http.client.HTTPException):
                # The API server may have been another process when it was opened.
                del self._kept[thread]
        # The certificate is made by the API server itself, and is there no earlier than that.
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=_SECONDS, context=unverified())
        found = _send(connection, method, path, body, headers)
        self._kept[thread] = connection
        return found

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()


def _send(
    connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except BaseException:
        connection.close()
        raise


def unverified() -> ssl.SSLContext:
    """Before the API server has made its certificate there is nothing to verify it with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
