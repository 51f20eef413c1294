"""An API server for clients in the same process that lists what it was given and shows the changes that it is told.

It does as little as it can: what a program costs is to be measured, not what a server does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from koordinator.api.codec import convert, encode
from koordinator.api.kinds import PODS, Kind
from koordinator.cluster.verbs.selection import parse_field_selector
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import ListPage, PatchType, WatchEvent, WriteThroughCache

Document = dict[str, Any]
_Selection = list[tuple[str, str, str]]
"""Terms of a field selector."""


class ScriptedApi:
    """Implements ``koordinator.kube.interface.Client``. Every pod that is bound is shown with its node at once."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        """Pod -> node."""
        self.patched: list[tuple[str, str]] = []
        """(plural, name) of what was patched."""
        self._objects: dict[str, dict[str, Document]] = {}
        self._watches: dict[str, list[tuple[_Selection, asyncio.Queue[WatchEvent[Any]]]]] = {}
        self._revision = 0

    def once(self) -> ScriptedApi:
        return self

    def write_through(self, cache: WriteThroughCache) -> None:
        """Every write is shown by the watches at once."""

    def backlog(self) -> float:
        return 0.0

    def put(self, kind: Kind[Any], document: Document) -> None:
        """Create or replace an object."""
        self.show(kind, self.prepared(kind, document))

    def prepared(self, kind: Kind[Any], document: Document) -> WatchEvent[Any]:
        """Store an object. Watches are shown the event later."""
        self._revision += 1
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        stored = {**document, "metadata": {**metadata, "resourceVersion": str(self._revision)}}
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        objects = self._objects.setdefault(kind.plural, {})
        change: Literal["ADDED", "MODIFIED"] = "MODIFIED" if key in objects else "ADDED"
        objects[key] = stored
        return WatchEvent(change, convert(stored, kind.type), str(self._revision))

    def show(self, kind: Kind[Any], event: WatchEvent[Any]) -> None:
        """To all watches that select the object. None of those here is selected at one time and not at another."""
        shown: Any = event.object
        metadata = shown.metadata
        document = self._objects[kind.plural][f"{metadata.namespace if kind.namespaced else ''}/{metadata.name}"]
        for selection, queue in self._watches.get(kind.plural, ()):
            if is_selected(document, selection):
                queue.put_nowait(event)

    def metadata(self, kind: Kind[Any]) -> list[Document]:
        """Of all objects."""
        return [document["metadata"] for document in self._objects[kind.plural].values()]

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        found = self._objects.get(kind.plural, {}).get(f"{namespace}/{name}")
        if found is None:
            raise ApiStatusError(404, "NotFound", f"{kind.plural} {name} not found")
        return convert(found, kind.type)

    async def list(self, kind: Kind[Any], namespace: str = "", field_selector: str = "", **_: Any) -> ListPage[Any]:
        selection, documents = parse_field_selector(field_selector), self._objects.get(kind.plural, {}).values()
        items = [convert(document, kind.type) for document in documents if is_selected(document, selection)]
        return ListPage(items, (), str(self._revision), "", None)

    async def watch(
        self, kind: Kind[Any], namespace: str = "", field_selector: str = "", **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        queue: asyncio.Queue[WatchEvent[Any]] = asyncio.Queue()
        self._watches.setdefault(kind.plural, []).append((parse_field_selector(field_selector), queue))
        while True:
            yield await queue.get()

    async def create(
        self,
        kind: Kind[Any],
        body: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        if subresource != "binding" or dry_run:
            return body
        document = json.loads(body if isinstance(body, bytes | str) else encode(body))
        node = self.bound[name] = document["target"]["name"]
        pod = self._objects[kind.plural][f"{namespace}/{name}"]
        metadata = {**pod["metadata"]}
        if annotations := document["metadata"].get("annotations"):
            metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
        self.put(PODS, {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}})
        return None

    async def patch(
        self, kind: Kind[Any], name: str, body: Any, patch_type: PatchType, namespace: str = "", **_: Any
    ) -> Any:
        self.patched.append((kind.plural, name))
        document = self._objects[kind.plural][f"{namespace}/{name}"]
        changes = json.loads(body) if isinstance(body, bytes | str) else json.loads(encode(body))
        self.put(kind, _merged(document, changes) if isinstance(changes, dict) else document)
        return await self.get(kind, name, namespace)

    async def update(self, kind: Kind[Any], body: Any, name: str, namespace: str = "", **_: Any) -> Any:
        return body

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "", **_: Any) -> None:
        raise NotImplementedError(f"nothing deletes {kind.plural} here")

    async def delete_collection(self, kind: Kind[Any], namespace: str = "", **_: Any) -> None:
        raise NotImplementedError(f"nothing deletes {kind.plural} here")

    async def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        raise NotImplementedError(f"nothing requests {path} here")

    async def close(self) -> None:
        return None


def is_selected(document: Document, selection: _Selection) -> bool:
    return all((_field(document, path) == value) is (operator == "=") for path, operator, value in selection)


def _field(document: Document, path: str) -> str:
    value: Any = document
    for name in path.split("."):
        value = value.get(name, {})
    # What a server gives a pod that says nothing.
    return str(value or ("Pending" if path == "status.phase" else ""))


def _merged(document: Document, changes: Document) -> Document:
    """A merge patch. Lists of a strategic one are replaced, which is right for what is patched here."""
    merged = {**document}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merged(document.get(name) or {}, value)
        else:
            merged[name] = value
    return merged
