"""Pods of one container on a real node, as the webhooks of koord-manager and koord-scheduler would leave them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.real.real_node import EnforcedNode

IMAGE: Final = "docker.io/library/pause:latest"
BATCH: Final = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
FREE: Final = {"kubernetes.io/free-cpu": "500", "kubernetes.io/free-memory": "64Mi"}


def pod_document(
    node: str, namespace: str, name: str, container: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """On the node without a scheduler, on the network of the node, and gone at once when it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never", **container}],
        },
    }


def offer_batch(node: EnforcedNode, cpu: str, memory: str = "1Gi") -> None:
    """What koord-manager would have the node offer to batch pods, and as much to free pods."""
    amounts = {"cpu": cpu, "memory": memory}
    offered = {f"kubernetes.io/{class_}-{name}": amounts[name] for class_ in ("batch", "free") for name in amounts}
    status = json.dumps({"status": {"capacity": offered, "allocatable": offered}})
    node.kubectl("patch", "node", node.name, "--subresource=status", "--type=merge", "-p", status)


@dataclass(frozen=True)
class NodePods:
    """Pods of one node and namespace, which do nothing."""

    node: str
    namespace: str

    def pod(self, name: str, qos: str, resources: Mapping[str, str], **annotations: Any) -> dict[str, Any]:
        """``annotations`` have ``__`` for ``/`` in their names, and any JSON for values."""
        container = {"resources": {"requests": dict(resources), "limits": dict(resources)}}
        labels = {"koordinator.sh/qosClass": qos}
        document = pod_document(self.node, self.namespace, name, container, labels)
        document["metadata"]["annotations"] = {
            key.replace("__", "/"): json.dumps(value) for key, value in annotations.items()
        }
        return document

    def batch(self, name: str, amounts: Mapping[str, str] = BATCH) -> dict[str, Any]:
        specification = {"containers": {"main": {"requests": amounts, "limits": amounts}}}
        return self.pod(name, "BE", amounts, **{"node.koordinator.sh__extended-resource-spec": specification})

    def pinned(self, name: str) -> dict[str, Any]:
        """To CPU 1."""
        amounts = {"cpu": "500m", "memory": "64Mi"}
        return self.pod(name, "LSR", amounts, **{"scheduling.koordinator.sh__resource-status": {"cpuset": "1"}})
