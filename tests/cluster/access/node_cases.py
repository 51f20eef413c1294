"""Requests of kubelets, and the objects that they are about; all requests that would change something are dry runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]

_CORE: Final = "/api/v1"
_SPACE: Final = f"{_CORE}/namespaces/default"
_PODS: Final = f"{_SPACE}/pods"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_CSI: Final = "/apis/storage.k8s.io/v1/csinodes"
_MIRROR: Final = "kubernetes.io/config.mirror"


def _pod(name: str, node: str, **spec: Any) -> Document:
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container], **spec}}


_MINE: Final = _pod(
    "mine",
    "a",
    serviceAccountName="builder",
    imagePullSecrets=[{"name": "pull"}],
    container={"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "keyed", "key": "k"}}}]},
    volumes=[
        {"name": "s", "secret": {"secretName": "mounted"}},
        {"name": "c", "configMap": {"name": "settings"}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "claim"}},
    ],
)
_VOLUME: Final[Document] = {
    "metadata": {"name": "volume"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "default", "name": "claim"},
        "csi": {
            "driver": "d.example.com",
            "volumeHandle": "h",
            "nodePublishSecretRef": {"name": "csi", "namespace": "default"},
        },
    },
}
_CLAIM: Final[Document] = {
    "metadata": {"name": "claim"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "volume"},
}
OBJECTS: Final[tuple[tuple[str, Document], ...]] = (
    (f"{_CORE}/nodes", {"metadata": {"name": "a"}}),
    (f"{_CORE}/nodes", {"metadata": {"name": "b"}}),
    *((f"{_SPACE}/secrets", {"metadata": {"name": name}}) for name in ("pull", "keyed", "mounted", "csi", "other")),
    (f"{_SPACE}/configmaps", {"metadata": {"name": "settings"}}),
    (f"{_SPACE}/serviceaccounts", {"metadata": {"name": "builder"}}),
    (f"{_CORE}/persistentvolumes", _VOLUME),
    (f"{_SPACE}/persistentvolumeclaims", _CLAIM),
    (_PODS, _MINE),
    (_PODS, _pod("theirs", "b")),
    (_LEASES, {"metadata": {"name": "a"}}),
    (_LEASES, {"metadata": {"name": "b"}}),
)


@dataclass(frozen=True)
class Case:
    """One request of the kubelet of node ``a``."""

    method: str
    path: str
    body: Any = None
    user: str = "system:node:a"
    group: str = "system:nodes"

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix(_CORE)} {str(self.body or '')[:60]}"


def _reads() -> list[Case]:
    core = f"{_CORE}/namespaces/default"
    named = (
        *(f"{core}/secrets/{name}" for name in ("pull", "keyed", "mounted", "csi", "other", "absent")),
        f"{core}/configmaps/settings", f"{core}/serviceaccounts/builder", f"{core}/serviceaccounts/default",
        f"{core}/persistentvolumeclaims/claim", f"{_CORE}/persistentvolumes/volume",
        f"{_PODS}/mine", f"{_PODS}/theirs", f"{_CORE}/nodes/a", f"{_CORE}/nodes/b", f"{_LEASES}/a", f"{_LEASES}/b",
        f"{core}/endpoints/absent",
    )  # fmt: skip
    lists = (
        f"{core}/secrets", f"{_CORE}/secrets", f"{core}/secrets?fieldSelector=metadata.name%3Dpull", _PODS,
        f"{_CORE}/pods?fieldSelector=spec.nodeName%3Da", f"{_CORE}/pods?fieldSelector=spec.nodeName%3Db",
        f"{_CORE}/nodes", f"{_CORE}/nodes?fieldSelector=metadata.name%3Da", f"{core}/persistentvolumeclaims",
        f"{_CORE}/services", _LEASES, "/apis/resource.k8s.io/v1/resourceslices",
        "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Da", "/apis/storage.k8s.io/v1/csidrivers",
        "/apis/apps/v1/deployments", f"{_CORE}/namespaces",
    )  # fmt: skip
    return [Case("GET", path) for path in (*named, *lists)]


def _owned(**owner: Any) -> Document:
    reference = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "wrong", "controller": True, **owner}
    pod = _pod("mirror", "a")
    return {**pod, "metadata": {**pod["metadata"], "annotations": {_MIRROR: "x"}, "ownerReferences": [reference]}}


def _writes() -> list[Case]:
    dry = "?dryRun=All"
    mirror = _owned()
    return [
        Case("POST", f"{_PODS}{dry}", _pod("new", "a")),
        Case("POST", f"{_PODS}{dry}", mirror),
        Case("POST", f"{_PODS}{dry}", {**mirror, "spec": {**mirror["spec"], "nodeName": "b"}}),
        Case("POST", f"{_PODS}{dry}", {**mirror, "metadata": {**mirror["metadata"], "ownerReferences": []}}),
        Case("POST", f"{_PODS}{dry}", _owned(name="b")),
        Case("POST", f"{_PODS}{dry}", _owned(controller=False)),
        Case("POST", f"{_PODS}{dry}", _owned(blockOwnerDeletion=True)),
        Case("PATCH", f"{_PODS}/mine{dry}", {"metadata": {"labels": {"x": "y"}}}),
        Case("PATCH", f"{_PODS}/mine/status{dry}", {"status": {"phase": "Running"}}),
        Case("PATCH", f"{_PODS}/mine/status{dry}", {"metadata": {"labels": {"x": "y"}}}),
        Case("PATCH", f"{_PODS}/theirs/status{dry}", {"status": {"phase": "Running"}}),
        Case("PATCH", f"{_PODS}/mine/resize{dry}", {}),
        Case("DELETE", f"{_PODS}/mine{dry}"),
        Case("DELETE", f"{_PODS}/theirs{dry}"),
        Case("POST", f"{_PODS}/theirs/eviction{dry}", {"metadata": {"name": "theirs"}}),
        Case("POST", f"{_PODS}/mine/eviction{dry}", {"metadata": {"name": "mine"}}),
        Case("POST", f"{_CORE}/nodes{dry}", {"metadata": {"name": "c"}}),
        Case("PATCH", f"{_CORE}/nodes/b{dry}", {"metadata": {"annotations": {"x": "y"}}}),
        Case("PATCH", f"{_CORE}/nodes/a{dry}", {"metadata": {"annotations": {"x": "y"}}}),
        Case("PATCH", f"{_CORE}/nodes/a{dry}", {"metadata": {"labels": {"own": "y", "kubernetes.io/hostname": "a"}}}),
        Case(
            "PATCH",
            f"{_CORE}/nodes/a{dry}",
            {"metadata": {"labels": {"kubernetes.io/role": "y", "node-restriction.kubernetes.io/x": "y"}}},
        ),
        Case(
            "PATCH", f"{_CORE}/nodes/a{dry}", {"metadata": {"labels": {"node.kubernetes.io/x": "y", "a.k8s.io/b": "y"}}}
        ),
        Case("PATCH", f"{_CORE}/nodes/a{dry}", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        Case(
            "PATCH",
            f"{_CORE}/nodes/a{dry}",
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]}},
        ),
        Case("PATCH", f"{_CORE}/nodes/a/status{dry}", {"status": {"capacity": {"cpu": "1"}}}),
        Case("DELETE", f"{_CORE}/nodes/a{dry}"),
        Case("POST", f"{_LEASES}{dry}", {"metadata": {"name": "c"}}),
        Case("PATCH", f"{_LEASES}/a{dry}", {"metadata": {"labels": {"x": "y"}}}),
        Case("PATCH", f"{_LEASES}/b{dry}", {"metadata": {"labels": {"x": "y"}}}),
        Case("POST", f"{_LEASES.replace('kube-node-lease', 'default')}{dry}", {"metadata": {"name": "a"}}),
        Case("POST", f"{_CSI}{dry}", {"metadata": {"name": "b"}, "spec": {"drivers": []}}),
        Case("POST", f"{_CSI}{dry}", {"metadata": {"name": "a"}, "spec": {"drivers": []}}),
        Case(
            "PATCH", f"{_SPACE}/persistentvolumeclaims/claim/status{dry}", {"status": {"capacity": {"storage": "2Gi"}}}
        ),
        Case("PATCH", f"{_SPACE}/persistentvolumeclaims/claim{dry}", {"metadata": {"labels": {"x": "y"}}}),
        Case("POST", f"{_SPACE}/serviceaccounts/builder/token{dry}", {"spec": {}}),
        Case(
            "POST",
            f"{_SPACE}/serviceaccounts/builder/token{dry}",
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "mine"}}},
        ),
        Case(
            "POST",
            f"{_SPACE}/serviceaccounts/builder/token{dry}",
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "wrong"}}},
        ),
        Case("POST", f"{_SPACE}/serviceaccounts/default/token{dry}", {"spec": {}}),
        Case("POST", f"{_SPACE}/secrets{dry}", {"metadata": {"name": "x"}}),
        Case("GET", f"{_SPACE}/secrets/pull", user="system:node:b"),
        Case("GET", f"{_SPACE}/secrets/pull", user="system:node:"),
        Case("GET", f"{_SPACE}/secrets/pull", group="system:other"),
        Case("GET", f"{_SPACE}/secrets/pull", user="kubelet"),
    ]


CASES: Final = (*_reads(), *_writes())
