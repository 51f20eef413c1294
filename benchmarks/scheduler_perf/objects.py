"""The objects that operations create, as documents: nodes, pods, and volumes bound to claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.scheduler_perf.operations import CreateNodes, NodeAllocatable
from benchmarks.scheduler_perf.templates import Document, Template

HOSTNAME: Final = "kubernetes.io/hostname"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_POD_AMOUNTS: Final = {"cpu": "100m", "memory": "500Mi"}
_NODE_AMOUNTS: Final = {"cpu": "4", "memory": "32Gi", "pods": "110"}

BASE_POD: Final[Document] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.1",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": _POD_AMOUNTS, "requests": _POD_AMOUNTS},
            }
        ]
    },
}
"""For operations that name no template, here and below: what scheduler_perf itself takes then."""


def base_node(prefix: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": _NODE_AMOUNTS,
            "allocatable": _NODE_AMOUNTS,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def nodes(operation: CreateNodes, template: Template | None, prefix: str, first: int) -> Iterator[Document]:
    """The nodes of an operation. ``first``: how many there are already; names are the same in every run."""
    for index in range(operation.count):
        base = template.document(index, operation.count) if template is not None else base_node(prefix)
        metadata = base["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{first + index:05d}"
        labels = {**metadata.get("labels", {}), **_labels(operation, index), HOSTNAME: name}
        yield {
            **base,
            "metadata": {**metadata, "name": name, "labels": labels},
            "status": _status(base.get("status", {}), operation.node_allocatable_strategy),
        }


def _labels(operation: CreateNodes, index: int) -> dict[str, str]:
    in_turn, unique = operation.label_node_prepare_strategy, operation.unique_node_label_strategy
    if in_turn is not None:
        return {in_turn.label_key: in_turn.label_values[index % len(in_turn.label_values)]}
    return {unique.label_key: f"unique-{index}"} if unique is not None else {}


def _status(status: Document, strategy: NodeAllocatable | None) -> Document:
    if strategy is None:
        return status
    amounts: dict[str, str] = status.get("allocatable") or status.get("capacity") or {}
    return {**status, "allocatable": {**amounts, **strategy.node_allocatable}}


def csi_node(name: str, strategy: NodeAllocatable) -> Document:
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": limit.count}}
        for driver, limit in strategy.csi_node_allocatable.items()
    ]
    annotations = {_MIGRATED: ",".join(strategy.migrated_plugins)}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


def bound_volume(claim: Document, volume: Document, namespace: str, index: int) -> tuple[Document, Document]:
    """A claim and a volume that are bound to each other, from their templates."""
    claim_name = f"pvc-{index}"
    volume_name = f"{namespace}-vol-{index}"
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name}
    return (
        {
            **claim,
            "metadata": {**claim.get("metadata", {}), "name": claim_name},
            "spec": {**claim["spec"], "volumeName": volume_name},
        },
        {
            **volume,
            "metadata": {**volume.get("metadata", {}), "name": volume_name},
            "spec": {**volume["spec"], **_source(volume["spec"], volume_name), "claimRef": reference},
        },
    )


def _source(spec: Document, name: str) -> dict[str, Any]:
    """Where the data is: a place of its own for every volume."""
    if "csi" in spec:
        return {"csi": {**spec["csi"], "volumeHandle": name}}
    if "awsElasticBlockStore" in spec:
        return {"awsElasticBlockStore": {**spec["awsElasticBlockStore"], "volumeID": name}}
    return {}


def with_claim(pod: Document, index: int) -> Document:
    """The pod with the claim of ``bound_volume``, and no other volume."""
    volume = {"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{index}"}}
    return {**pod, "spec": {**pod["spec"], "volumes": [volume]}}
