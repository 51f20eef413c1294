"""Questions about nodes."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.manager.webhook.admission import AdmissionRequest, Operation

RATIO = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"


def node(labels: dict[str, str] | None = None, /, *, name: str = "test-node0", **status: Any) -> Document:
    """A node that also has what this project does not know."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "managedFields": [{"manager": "kubelet"}]},
        "spec": {"providerID": "x"},
        "status": {"nodeInfo": {"architecture": "amd64"}, "unknown": [1], **status},
    }


def about(
    new: Document, old: Document | None = None, operation: Operation = "UPDATE", sub_resource: str = ""
) -> AdmissionRequest:
    return AdmissionRequest(
        operation=operation,
        group="",
        version="v1",
        resource="nodes",
        sub_resource=sub_resource,
        name="test-node0",
        object=new,
        old_object=old,
    )
