"""The objects that cases write."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.webhook_server import Document


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Document:
    metadata: Document = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **spec: Any) -> Document:
    containers = [{"name": "main", "image": "image"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }
