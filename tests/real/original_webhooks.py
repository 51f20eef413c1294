"""The webhooks of the original koord-manager, asked without an API server in between."""

from __future__ import annotations

import http.client
import ssl

from tests.real.manager_process import ManagerProcess


class Original:
    """Its webhooks, over one connection."""

    def __init__(self, process: ManagerProcess) -> None:
        self.process = process
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection("127.0.0.1", process.webhook_port, timeout=30, context=context)

    def send(self, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        self._connection.request("GET" if body is None else "POST", path, body, headers)
        return self._connection.getresponse().read()

    def close(self) -> None:
        self._connection.close()
