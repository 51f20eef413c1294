"""Pods that the scheduler has just bound."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.in_memory_api import Document

_CREATED = "2026-01-01T00:00:00Z"
_CONTAINER_DEFAULTS = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
"""What the API server fills in: without it, a change of the status would change the rest, too, and be refused."""


def pod_document(name: str, node: str, *, cpu: str = "1", memory: str = "1Gi", **more: Any) -> Document:
    resources = {"requests": {"cpu": cpu, "memory": memory}} if cpu else {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _CREATED}
    container = {"name": "main", "image": "app:1", "resources": resources, **_CONTAINER_DEFAULTS}
    spec = {**_DEFAULTS, "nodeName": node, "containers": [container], **more}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


def long_ago() -> datetime:
    """When everything here was created."""
    return datetime(2026, 1, 1, tzinfo=UTC)
