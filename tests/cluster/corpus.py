"""Objects and the real server's responses to them, recorded once from kube-apiserver v1.35."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from koordinator.api.document import Document
from koordinator.cluster.admission.chain import AdmissionChain
from koordinator.cluster.admission.plugins import OF_OBJECTS
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import RequestContext, Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Attributes, plugins_mutate
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import StoredObjects, Target, encode
from tests.yaml_documents import yaml_documents

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "golden"
RESOURCES = {(resource.api_version, resource.kind): resource for resource in BUILTIN_RESOURCES}
MEDIA_TYPES = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
_HERE = Path(__file__).parent
_TIMES = ("lastTransitionTime", "lastPhaseTransitionTime")


def resource_of(document: Document) -> Resource:
    return RESOURCES[document["apiVersion"], document["kind"]]


def written(name: str) -> list[Document]:
    """The objects of one YAML file as a client sends them: decoded JSON, in the corpus namespace."""
    text = (_HERE / name).read_text()
    return [json.loads(json.dumps(document)) for document in yaml_documents(text) if document]


def recorded(name: str) -> Any:
    return json.loads((_HERE / name).read_text())


def in_namespace(document: Document) -> Document:
    if resource_of(document).namespaced:
        document["metadata"]["namespace"] = NAMESPACE
    return document


def context(*priority_classes: Document) -> RequestContext:
    return context_of({"priorityclasses": priority_classes})


def context_of(objects: Mapping[str, Sequence[Document]]) -> RequestContext:
    """Of a cluster that has these objects, by the plurals of their kinds."""

    def lookup(group: str, plural: str, namespace: str | None, name: str) -> Document | None:
        return next((found for found in objects.get(plural, ()) if found["metadata"]["name"] == name), None)

    def listed(group: str, plural: str, namespace: str | None = None) -> StoredObjects:
        resource = next(each for each in RESOURCES.values() if (each.group, each.plural) == (group, plural))
        return StoredObjects(resource, [Stored("", encode(resource, each), 0) for each in objects.get(plural, ())])

    return RequestContext(NOW, lookup, listed)


def admitted(document: Document, old: Document | None = None, about: RequestContext | None = None) -> Document:
    """A decoded object as it is stored, if it is valid: what the plugins make of it, prepared by its kind. In place."""
    resource, about = resource_of(document), about or context()
    target = Target(resource, NAMESPACE if resource.namespaced else None, document["metadata"].get("name") or "")
    attributes = Attributes("CREATE" if old is None else "UPDATE", target, document, old, about, WriteOptions())
    asyncio.run(plugins_mutate(AdmissionChain(*OF_OBJECTS), attributes))
    if old is None:
        resource.strategy.prepare_create(document, about)
    else:
        resource.strategy.prepare_update(document, old, about)
    return document


def comparable(document: Document) -> Document:
    """Without what differs from run to run, and without what the embedded API does otherwise on purpose."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in _VOLATILE}
    if document["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
        # Protection finalizers: no controller of the embedded cluster would take them away.
        metadata.pop("finalizers", None)
    result = {**document, "metadata": metadata}
    if document["kind"] == "CustomResourceDefinition":
        # The real server's controller accepts the names a moment later.
        result.pop("status", None)
    stripped: Document = _without_times(result)
    return stripped


_VOLATILE = ("uid", "creationTimestamp", "resourceVersion", "managedFields")


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    return value
