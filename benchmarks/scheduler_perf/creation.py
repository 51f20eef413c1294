"""Writes what operations create: namespaces, nodes, pods with their volumes, and anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks import workload
from benchmarks.scheduler_perf import objects
from benchmarks.scheduler_perf.kind_table import kind_of
from benchmarks.scheduler_perf.operations import CreateAny, CreateNamespaces, CreateNodes, CreatePods
from benchmarks.scheduler_perf.pod_tracker import OBSERVED_PODS, Key
from benchmarks.scheduler_perf.templates import Document, Templates
from koordinator.api.kinds import CSI_NODES, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from koordinator.base.errors import ConfigurationError
from koordinator.kube.interface import Client, PatchType

_CONCURRENCY: Final = 30
"""As many as scheduler_perf creates at a time."""
_BOUND: Final = {"status": {"phase": "Bound"}}


@dataclass(frozen=True, slots=True)
class _Volumes:
    claim: Document
    volume: Document


class Creator:
    """``default_pod`` is the template of operations that name none."""

    def __init__(self, client: Client, templates: Templates, default_pod: str | None) -> None:
        self._client = client
        self._templates = templates
        self._default_pod = default_pod
        self._nodes = 0
        self._namespaces: set[str] = set()

    async def namespace(self, name: str, document: Document | None = None) -> None:
        """Create the namespace unless it is there."""
        if name in self._namespaces:
            return
        body = document or {}
        metadata = {**body.get("metadata", {}), "name": name}
        await workload.create(self._client, NAMESPACES, {**body, "metadata": metadata})
        self._namespaces.add(name)

    async def namespaces(self, operation: CreateNamespaces) -> None:
        path = operation.namespace_template_path
        document = self._templates.at(path).document() if path is not None else None
        for number in range(operation.count):
            await self.namespace(f"{operation.prefix}-{number}", document)

    async def nodes(self, operation: CreateNodes, number: int) -> None:
        path = operation.node_template_path
        template = self._templates.at(path) if path is not None else None
        documents = objects.nodes(operation, template, f"node-{number}-", self._nodes)
        self._nodes += operation.count
        await workload.together((self._node(document, operation) for document in documents), _CONCURRENCY)

    async def pods(self, operation: CreatePods, namespace: str) -> dict[Key, Mapping[str, str]]:
        """Create the pods. Returns which ones, with their labels."""
        pod_of = self._pod_of(operation)
        volumes = self._volumes(operation)
        pods: dict[Key, Mapping[str, str]] = {}

        async def one(index: int) -> None:
            document = pod_of(index)
            if volumes is not None:
                await self._bound_volume(volumes, namespace, index)
                document = objects.with_claim(document, index)
            created = await self._client.create(OBSERVED_PODS, document, namespace)
            pods[namespace, created.metadata.name] = created.metadata.labels

        await workload.together((one(index) for index in range(operation.count)), _CONCURRENCY)
        return pods

    async def any(self, operation: CreateAny) -> None:
        if operation.namespace:
            await self.namespace(operation.namespace)
        template = self._templates.at(operation.template_path)
        count = 1 if operation.count is None else operation.count
        for index in range(count):
            document = template.document(index, count)
            kind = kind_of(document)
            if kind.namespaced != bool(operation.namespace):
                allowed = "a namespace for a namespaced kind, and none for any other"
                raise ConfigurationError(f"the namespace of {operation.template_path}", operation.namespace, allowed)
            await self._client.create(kind, document, operation.namespace)

    async def _node(self, document: Document, operation: CreateNodes) -> None:
        await self._client.create(NODES, document)
        strategy = operation.node_allocatable_strategy
        if strategy is not None:
            await workload.create(self._client, CSI_NODES, objects.csi_node(document["metadata"]["name"], strategy))

    def _pod_of(self, operation: CreatePods) -> Callable[[int], Document]:
        path = operation.pod_template_path or self._default_pod
        if path is None:
            return lambda _: objects.BASE_POD
        template = self._templates.at(path)
        return lambda index: template.document(index, operation.count)

    def _volumes(self, operation: CreatePods) -> _Volumes | None:
        claim, volume = operation.persistent_volume_claim_template_path, operation.persistent_volume_template_path
        if claim is None:
            return None
        if volume is None:
            raise ConfigurationError("persistentVolumeTemplatePath", None, "a path where there is one for claims")
        return _Volumes(self._templates.at(claim).document(), self._templates.at(volume).document())

    async def _bound_volume(self, templates: _Volumes, namespace: str, index: int) -> None:
        """There is nobody to bind them: both say from the start that they are bound."""
        claim, volume = objects.bound_volume(templates.claim, templates.volume, namespace, index)
        claim_name, volume_name = claim["metadata"]["name"], volume["metadata"]["name"]
        client, merge = self._client, PatchType.MERGE
        await client.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
        await client.patch(PERSISTENT_VOLUME_CLAIMS, claim_name, _BOUND, merge, namespace, subresource="status")
        await client.create(PERSISTENT_VOLUMES, volume)
        await client.patch(PERSISTENT_VOLUMES, volume_name, _BOUND, merge, subresource="status")
