"""What belongs to each node: its pods, and what they refer to. Follows the store, as the Node authorizer asks for each
request of a kubelet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.document import Document
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Change, Storage, Stored
from koordinator.cluster.verbs.target import decode

Reference = tuple[str, str, str]
"""Plural, namespace and name."""
_SECRET_REFERENCES: Final = ("secretRef", "nodePublishSecretRef")
_OF_VOLUMES: Final = (
    "secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef", "controllerPublishSecretRef",
    "controllerExpandSecretRef",
)  # fmt: skip


class _Volume(NamedTuple):
    claim: Reference
    secrets: frozenset[Reference]


class NodeGraph:
    """Changed as the objects of the store are."""

    def __init__(self) -> None:
        self._pods: dict[Reference, tuple[str, frozenset[Reference]]] = {}
        self._on: dict[str, set[Reference]] = {}
        self._volumes: dict[str, _Volume] = {}
        self._nodes_of: dict[tuple[str, str], str] = {}
        """Plural and name of what names its node itself."""

    def belongs(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether something is there for a pod of the node, or for the node."""
        if plural in ("volumeattachments", "resourceslices"):
            return self._nodes_of.get((plural, name)) == node
        wanted = (plural, namespace, name)
        pods = self._on.get(node, ())
        if plural == "pods":
            return wanted in pods
        if plural == "persistentvolumes":
            volume = self._volumes.get(name)
            return volume is not None and self._is_used(volume.claim, pods)
        if self._is_used(wanted, pods):
            return True
        volumes = (each for each in self._volumes.values() if wanted in each.secrets)
        return plural == "secrets" and any(self._is_used(each.claim, pods) for each in volumes)

    def _is_used(self, wanted: Reference, pods: Iterable[Reference]) -> bool:
        return any(wanted in self._pods[pod][1] for pod in pods)

    def put_pod(self, pod: Document) -> None:
        metadata = pod["metadata"]
        key = ("pods", metadata["namespace"], metadata["name"])
        self.remove(*key)
        node = pod["spec"].get("nodeName")
        if node:
            is_mirror = CONFIG_MIRROR in (metadata.get("annotations") or {})
            self._pods[key] = (node, frozenset() if is_mirror else frozenset(references(pod)))
            self._on.setdefault(node, set()).add(key)

    def put_volume(self, volume: Document) -> None:
        spec = volume["spec"]
        claim = spec.get("claimRef") or {}
        namespace = claim.get("namespace") or ""
        found = [
            ("secrets", reference.get("namespace") or namespace, reference.get("name") or "")
            for source in spec.values()
            if isinstance(source, dict)
            for name in _OF_VOLUMES
            if (reference := source.get(name)) is not None
        ]
        reference = ("persistentvolumeclaims", namespace, claim.get("name") or "")
        self._volumes[volume["metadata"]["name"]] = _Volume(reference, frozenset(found))

    def put_owned(self, plural: str, name: str, node: str) -> None:
        self._nodes_of[plural, name] = node

    def remove(self, plural: str, namespace: str, name: str) -> None:
        if plural == "pods":
            found = self._pods.pop((plural, namespace, name), None)
            if found is not None:
                self._on[found[0]].discard((plural, namespace, name))
        elif plural == "persistentvolumes":
            self._volumes.pop(name, None)
        else:
            self._nodes_of.pop((plural, name), None)


def references(pod: Document) -> Iterator[Reference]:
    """The objects that a pod's kubelet reads for it; some names may be empty."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    yield "serviceaccounts", namespace, spec.get("serviceAccountName") or ""
    for each in spec.get("imagePullSecrets") or ():
        yield "secrets", namespace, each.get("name") or ""
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            yield from _of_container(container, namespace)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume, namespace, pod["metadata"]["name"])
    for claim in spec.get("resourceClaims") or ():
        if claim.get("resourceClaimName"):
            yield "resourceclaims", namespace, claim["resourceClaimName"]
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status.get("resourceClaimName"):
            yield "resourceclaims", namespace, status["resourceClaimName"]


def _of_container(container: Document, namespace: str) -> Iterator[Reference]:
    sources = [variable.get("valueFrom") or {} for variable in container.get("env") or ()]
    for source in (*sources, *(container.get("envFrom") or ())):
        for plural, names in (
            ("secrets", ("secretKeyRef", "secretRef")),
            ("configmaps", ("configMapKeyRef", "configMapRef")),
        ):
            for name in names:
                if (source.get(name) or {}).get("name"):
                    yield plural, namespace, source[name]["name"]


def _of_volume(volume: Document, namespace: str, pod: str) -> Iterator[Reference]:
    for source in volume.values():
        for name in _SECRET_REFERENCES if isinstance(source, dict) else ():
            if source.get(name) is not None:
                yield "secrets", namespace, source[name].get("name") or ""
    for kind in ("secret", "azureFile"):
        if (volume.get(kind) or {}).get("secretName"):
            yield "secrets", namespace, volume[kind]["secretName"]
    if (volume.get("configMap") or {}).get("name"):
        yield "configmaps", namespace, volume["configMap"]["name"]
    if (volume.get("persistentVolumeClaim") or {}).get("claimName"):
        yield "persistentvolumeclaims", namespace, volume["persistentVolumeClaim"]["claimName"]
    if volume.get("ephemeral") is not None:
        yield "persistentvolumeclaims", namespace, f"{pod}-{volume['name']}"
    for source in (volume.get("projected") or {}).get("sources") or ():
        for kind, plural in (("secret", "secrets"), ("configMap", "configmaps")):
            if (source.get(kind) or {}).get("name"):
                yield plural, namespace, source[kind]["name"]


# Following the store.


_FOLLOWED: Final = {
    "pods": "", "persistentvolumes": "", "volumeattachments": "storage.k8s.io", "resourceslices": "resource.k8s.io"
}  # fmt: skip


def followed_graph(storage: Storage, registry: Registry) -> NodeGraph:
    """What is decided by it holds for the request that comes after a write."""
    graph = NodeGraph()
    resources = {
        resource.prefix: resource
        for plural, group in _FOLLOWED.items()
        if (resource := registry.stored[group, plural]) is not None
    }
    for prefix, resource in resources.items():
        for stored in storage.list(prefix).items:
            _put(graph, resource, stored)
    storage.observe(_observer(graph, resources))
    return graph


def _observer(graph: NodeGraph, resources: Mapping[str, Resource]) -> Callable[[Sequence[Change]], None]:
    def observe(changes: Sequence[Change]) -> None:
        for change in changes:
            _, group, plural, *rest = change.key.split("/")
            resource = resources.get(f"/{group}/{plural}/")
            if resource is None:
                continue
            if change.type == "deleted":
                graph.remove(plural, rest[0] if len(rest) > 1 else "", rest[-1])
            else:
                _put(graph, resource, change.current)

    return observe


def _put(graph: NodeGraph, resource: Resource, stored: Stored) -> None:
    obj = decode(resource, stored)
    if resource.plural == "pods":
        graph.put_pod(obj)
    elif resource.plural == "persistentvolumes":
        graph.put_volume(obj)
    else:
        graph.put_owned(resource.plural, obj["metadata"]["name"], obj["spec"].get("nodeName") or "")
