"""An API server with webhooks, be it the embedded one or the real one, as the cases see it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.admission_webhooks.api_server import ApiServer, HttpResponse
from tests.cluster.admission_webhooks.webhook_server import Document, WebhookServer, deny

_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_LABEL = "koordinator.test/world"
_SETTLE_SECONDS = 20.0


@dataclass
class WebhookCluster:
    """One namespace of its own in a server. Webhooks are called for what lies in it or carries its label."""

    kubeconfig: Path
    server: WebhookServer
    namespace: str
    configurations: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    """Paths of CustomResourceDefinitions that go with this cluster."""

    def __post_init__(self) -> None:
        self._api = ApiServer(self.kubeconfig)
        self.server.reset()
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    @property
    def labels(self) -> dict[str, str]:
        return {_LABEL: self.namespace}

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def request(self, method: str, path: str, body: Any = None, *, media: str = "") -> HttpResponse:
        return self._api.request(method, path, body, media=media)

    def client(self, path: str) -> Document:
        url = f"https://127.0.0.1:{self.server.port}{path}"
        return {"url": url, "caBundle": self.server.ca_bundle}

    def webhook(self, name: str, path: str, **fields: Any) -> Document:
        """A webhook on new ConfigMaps of this namespace, unless ``fields`` say otherwise."""
        return {
            "name": name,
            "clientConfig": self.client(path),
            "rules": [rule("configmaps")],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **fields,
        }

    def register(self, kind: str, *webhooks: Document, name: str = "") -> None:
        """``kind`` is mutating or validating. Returns when the server calls the webhooks."""
        name = f"{self.namespace}-{name or kind}"
        marker = f"{name}-marker"
        self.server.behaviours["/marker"] = deny(message="marker")
        waiter = self.webhook("marker.koordinator.test", "/marker", objectSelector={"matchLabels": {"marker": marker}})
        # Other webhooks of the configuration must not be queried about the marker, so it is in a namespace of its own.
        waiter["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
        document = {"metadata": {"name": name}, "webhooks": [*webhooks, waiter]}
        plural = f"{kind}webhookconfigurations"
        response = self.request("POST", f"{_REGISTRATION}/{plural}", document)
        assert response.code == 201, response.message
        self.configurations.append(f"{plural}/{name}")
        probe = {"metadata": {"name": "marker", "labels": {"marker": marker}}}
        end = time.monotonic() + _SETTLE_SECONDS
        while self.request("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", probe).code < 400:
            assert time.monotonic() < end, "the webhooks were not called in time"
            time.sleep(0.02)

    def close(self) -> None:
        for configuration in self.configurations:
            self.request("DELETE", f"{_REGISTRATION}/{configuration}")
        for definition in self.definitions:
            self.request("DELETE", definition)
        self.request("DELETE", f"/api/v1/namespaces/{self.namespace}")


def rule(
    resources: str, operations: str = "CREATE", *, groups: str = "", versions: str = "v1", **more: Any
) -> Document:
    """Each text is a list, separated by blanks; empty groups are the core group."""
    return {
        "apiGroups": groups.split(" "),
        "apiVersions": versions.split(" "),
        "operations": operations.split(" "),
        "resources": resources.split(" "),
        **more,
    }
