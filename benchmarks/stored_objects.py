"""Nodes and pods as an API server sends them: with all that it and kubelets add to what somebody once wrote.

Most of an object on the wire is nothing that a scheduler reads; what it costs to skip that is part of what taking in
an object costs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.pod_mixes import Document

_TIME: Final = "2026-01-01T00:00:00Z"
_NOT_FINISHED: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def node(document: Document, version: int) -> Document:
    return {
        "metadata": {**_metadata(document, version), "annotations": {"volumes.kubernetes.io/attach-detach": "true"}},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": f"cloud://{version}"},
        "status": {
            **document["status"],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "here"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"architecture": "amd64", "kernelVersion": "6.12", "kubeletVersion": "v1.35.0"},
            "images": [{"names": [f"registry.example/app-{i}:v1"], "sizeBytes": 10_000_000 + i} for i in range(10)],
        },
    }


def node_metric(node_document: Document, status: Document, version: int) -> Document:
    name = node_document["metadata"]["name"]
    return {"metadata": _metadata({"metadata": {"name": name}, "status": status}, version), "status": status}


def pending_pod(document: Document, version: int) -> Document:
    """As admission leaves it."""
    metadata = {**_metadata(document, version), "namespace": "default"}
    return {"metadata": metadata, "spec": _spec(document), "status": {"phase": "Pending", "qosClass": "Guaranteed"}}


def bound_pod(pod: Document, node_name: str, version: int) -> Document:
    """A pending pod right after its binding."""
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": _TIME}
    return {
        "metadata": {**pod["metadata"], "resourceVersion": str(version)},
        "spec": {**pod["spec"], "nodeName": node_name},
        "status": {**pod["status"], "conditions": [condition]},
    }


def running_pod(document: Document, version: int) -> Document:
    """With what its kubelet says of it. ``document`` names its node."""
    pod = bound_pod(pending_pod(document, version), document["spec"]["nodeName"], version)
    conditions = [{"type": name, "status": "True", "lastTransitionTime": _TIME} for name in _NOT_FINISHED]
    container = {
        "name": "main",
        "image": "pause",
        "imageID": "registry.example/pause@sha256:" + "0" * 64,
        "containerID": f"containerd://{version:064x}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": _TIME}},
        "lastState": {},
        "allocatedResources": document["spec"]["containers"][0]["resources"]["requests"],
        "resources": document["spec"]["containers"][0]["resources"],
    }
    pod["metadata"]["managedFields"] = [*pod["metadata"]["managedFields"], _kubelet_fields()]
    pod["status"] = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "conditions": conditions,
        "containerStatuses": [container],
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": _TIME,
    }
    return pod


def pages(kind: str, documents: Sequence[Document], size: int) -> list[bytes]:
    """The responses to requests for a list; a continue token is the number of the next one."""
    starts = range(0, len(documents), size)
    return [
        _encode(
            {
                "kind": f"{kind}List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "1", "continue": str(number) if number < len(starts) else ""},
                "items": documents[start : start + size],
            }
        )
        for number, start in enumerate(starts, 1)
    ]


def watch_line(change: str, kind: str, document: Document) -> bytes:
    return _encode({"type": change, "object": {"kind": kind, "apiVersion": "v1", **document}}) + b"\n"


def _encode(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _metadata(document: Document, version: int) -> dict[str, Any]:
    return {
        **document["metadata"],
        "uid": f"00000000-0000-4000-8000-{version:012d}",
        "resourceVersion": str(version),
        "creationTimestamp": _TIME,
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Update",
                "apiVersion": "v1",
                "time": _TIME,
                "fieldsType": "FieldsV1",
                "fieldsV1": _owned({**document, "metadata": {"labels": document["metadata"].get("labels", {})}}),
            }
        ],
    }


def _owned(value: Any) -> Any:
    """The shape of ``fieldsV1``."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": _owned(member) for name, member in value.items()}


def _kubelet_fields() -> dict[str, Any]:
    conditions: dict[str, Any] = {
        f'k:{{"type":"{name}"}}': {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}}
        for name in _NOT_FINISHED
    }
    fields = {"f:conditions": conditions, "f:containerStatuses": {}, "f:hostIP": {}, "f:podIP": {}, "f:startTime": {}}
    return {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": fields},
        "subresource": "status",
    }


def _spec(document: Document) -> Document:
    container = {
        **document["spec"]["containers"][0],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
        "volumeMounts": [
            {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
        ],
    }
    absences = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        **{name: value for name, value in document["spec"].items() if name != "nodeName"},
        "containers": [container],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in absences
        ],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": _token_sources()}}],
    }


def _token_sources() -> list[Document]:
    return [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
