"""The client of a ``ClusterInMemory``: reads go through the decoders of the real one, so what cannot be read is
``Malformed`` here as there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from koordinator.api.codec import decode_any, encode, to_document
from koordinator.api.document import copied
from koordinator.api.kinds import Kind
from koordinator.api.kubernetes_types.table import named
from koordinator.api.meta import Object
from koordinator.cluster.json_patch import apply_json_patch
from koordinator.cluster.patch import apply_merge_patch
from koordinator.kube.decoding import decode_item, decode_object
from koordinator.kube.errors import FencedError, TransportError
from koordinator.kube.interface import ListPage, Malformed, PatchType, WatchEvent
from koordinator.model.patch.strategic import apply_strategic_patch
from tests.kube.fake_client import already_exists, conflict, not_found
from tests.manager.broken_input.cluster_in_memory import ClusterInMemory, Document, is_selected

T = TypeVar("T", bound=Object)
_NODE = named("io.k8s.api.core.v1.Node")


class ClientInMemory:
    """Writes only while ``may_write`` says so, and nothing arrives any more once ``dead`` is set."""

    def __init__(self, cluster: ClusterInMemory, may_write: Callable[[], bool] = lambda: True) -> None:
        self._cluster = cluster
        self._may_write = may_write
        self.dead = False

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return _typed(kind, self._read(kind, name, namespace))

    async def list(self, kind: Kind[T], namespace: str = "", *, field_selector: str = "", **_: Any) -> ListPage[T]:
        self._answer()
        items: list[T] = []
        malformed: list[Malformed] = []
        for document in self._cluster.all(kind, namespace, field_selector):
            item = decode_item(kind, _bytes(document))
            if isinstance(item, Malformed):
                malformed.append(item)
            else:
                items.append(item)
        return ListPage(items, malformed, str(self._cluster.version), "", None)

    async def watch(
        self, kind: Kind[T], namespace: str = "", *, field_selector: str = "", resource_version: str = "", **_: Any
    ) -> AsyncIterator[WatchEvent[T]]:
        self._answer()
        cluster, seen = self._cluster, int(resource_version)
        while True:
            if cluster.away:
                raise TransportError("connection reset by peer")
            changed, news = cluster.changed, [each for each in cluster.history if each.version > seen]
            for version, plural, change, document in news:
                seen = version
                if plural == kind.plural and is_selected(document, namespace, field_selector):
                    yield WatchEvent(change, decode_item(kind, _bytes(document)), str(version))
            if changed is cluster.changed:
                await changed.wait()

    async def create(
        self, kind: Kind[T], body: Any, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> T:
        self._answer(writes=True)
        document: Document = decode_any(body) if isinstance(body, bytes) else copied(to_document(body))
        name = document["metadata"]["name"]
        if namespace:
            document["metadata"]["namespace"] = namespace
        if self._cluster.found(kind, name, namespace) is not None:
            raise already_exists(name)
        return self._stored(kind, "create", document)

    async def update(self, kind: Kind[T], body: Any, name: str, namespace: str = "", *, subresource: str = "") -> T:
        current, document = self._read(kind, name, namespace, writes=True), to_document(body)
        _compare(current, document)
        return self._stored(kind, "update", document)

    async def patch(
        self, kind: Kind[T], name: str, body: Any, patch_type: PatchType, namespace: str = "", **_: Any
    ) -> T:
        current = copied(self._read(kind, name, namespace, writes=True))
        changes = decode_any(body if isinstance(body, bytes) else encode(body))
        if patch_type is PatchType.JSON:
            return self._stored(kind, "patch", apply_json_patch(current, changes))
        _compare(current, changes)
        if patch_type is PatchType.STRATEGIC:
            node = _NODE if kind.plural == "nodes" else None
            return self._stored(kind, "patch", apply_strategic_patch(current, changes, node))
        return self._stored(kind, "patch", apply_merge_patch(current, changes))

    async def delete(self, kind: Kind[T], name: str, namespace: str = "", *, uid: str = "", **_: Any) -> None:
        current = self._read(kind, name, namespace, writes=True)
        if uid and current["metadata"]["uid"] != uid:
            raise conflict(name)
        self._cluster.writes["delete", kind.plural] += 1
        self._cluster.remove(kind, name, namespace)

    def _answer(self, *, writes: bool = False) -> None:
        if writes and not self._may_write():
            raise FencedError("this replica does not lead")
        if self.dead:
            raise TransportError("the process has ended")
        self._cluster.requests += 1
        if self._cluster.away:
            raise TransportError("connection refused", maybe_applied=False)

    def _read(self, kind: Kind[Any], name: str, namespace: str, *, writes: bool = False) -> Document:
        self._answer(writes=writes)
        found = self._cluster.found(kind, name, namespace)
        if found is None:
            raise not_found(name)
        return found

    def _stored(self, kind: Kind[T], verb: str, document: Document) -> T:
        self._cluster.writes[verb, kind.plural] += 1
        return _typed(kind, self._cluster.put(kind, document))


def _compare(current: Document, wanted: Document) -> None:
    """Optimistic concurrency."""
    version = wanted.get("metadata", {}).get("resourceVersion")
    if version and version != current["metadata"]["resourceVersion"]:
        raise conflict(current["metadata"]["name"])


def _typed(kind: Kind[T], document: Document) -> T:
    return decode_object(kind, _bytes(document), f"{kind.name} {document['metadata']['name']}")


def _bytes(document: Document) -> bytes:
    """As Python writes it, since that has no bounds for numbers."""
    return json.dumps(document).encode()
