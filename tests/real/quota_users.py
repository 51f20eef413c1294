"""Users of an API server with quotas, and what they are told."""

from __future__ import annotations

import time

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
PODS = "/api/v1/namespaces/default/pods"
ADMISSION = ("--enable-leader-election=false", "--feature-gates=EnableQuotaAdmission=true")
"""Arguments of a manager that counts pods when they are created."""
_PATIENCE = 20.0


class Users:
    """What they request, and what they are told."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self.reported: list[tuple[int, str]] = []

    def send(self, method: str, path: str, document: Document | None = None) -> tuple[int, str]:
        status, response = self._cluster.request(method, path, document)
        message = response.get("message", "") if status >= 400 else ""
        return status, message

    def notify(self, method: str, path: str, document: Document | None = None) -> None:
        self.reported.append(self.send(method, path, document))

    def wait(self, status: int, method: str, path: str, document: Document | None = None) -> None:
        """Until the webhooks have seen what was stored; nothing of it is told."""
        deadline = time.monotonic() + _PATIENCE
        while (found := self.send(method, path, document))[0] != status:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def stored(self, name: str) -> Document:
        found: Document = self._cluster.request("GET", f"{QUOTAS}/{name}")[1]
        return found
