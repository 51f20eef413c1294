"""An API server's memory behind the client's interface, with watches: enough for the simulated nodes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from koordinator.api.codec import convert, to_document
from koordinator.api.kinds import Kind
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.api.meta import Object
from koordinator.cluster.patch import apply_merge_patch, apply_strategic_patch
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import ListPage, PatchType, WatchEvent

T = TypeVar("T", bound=Object)
Document = dict[str, Any]
Key = tuple[str, str, str]

_CREATED = "2026-01-01T00:00:00Z"


class MemoryApi:
    """Keeps every field. Pods are deleted in two steps, as a kubelet is used to.

    ``unserved`` holds the plurals that the server does not know; ``fail`` is called with (verb, plural, name) ahead of
    every request and may raise.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Document] = {}
        self.unserved: set[str] = set()
        self.fail: Callable[[str, str, str], None] = lambda verb, plural, name: None
        self.requests: list[tuple[str, str, str]] = []
        self._version = 0
        self._log: list[tuple[int, str, str, Document]] = []
        self._changed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def document(self, kind: Kind[Any], name: str, namespace: str = "") -> Document:
        return self.objects[kind.plural, namespace, name]

    def names(self, kind: Kind[Any]) -> list[str]:
        return sorted(name for plural, _, name in self.objects if plural == kind.plural)

    def put(self, kind: Kind[Any], document: Document, namespace: str = "") -> None:
        """Create or replace an object behind the programs' backs."""
        name = document["metadata"]["name"]
        uid = {"uid": f"uid-{name}", "creationTimestamp": _CREATED, "namespace": namespace}
        metadata = {**uid, **document["metadata"]}
        self._write(kind, namespace, {"status": {}, **document, "metadata": metadata})

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        self._begin("get", kind, name)
        return convert(self._read(kind, name, namespace), kind.type)

    async def list(self, kind: Kind[T], namespace: str = "", *, field_selector: str = "", **_: Any) -> ListPage[T]:
        self._begin("list", kind, "")
        items = [
            convert(document, kind.type)
            for key, document in self.objects.items()
            if key[0] == kind.plural and _is_selected(document, field_selector)
        ]
        return ListPage(items, [], str(self._version), "", None)

    async def watch(
        self, kind: Kind[T], namespace: str = "", *, resource_version: str = "", field_selector: str = "", **_: Any
    ) -> AsyncIterator[WatchEvent[T]]:
        self._begin("watch", kind, "")
        seen = int(resource_version)
        while True:
            changed = self._changed[kind.plural]
            for version, plural, change, document in self._log[seen:]:
                if plural == kind.plural and _is_selected(document, field_selector):
                    yield WatchEvent(change, convert(document, kind.type), str(version))  # type: ignore[arg-type]
            seen = self._version
            changed.clear()
            await changed.wait()

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", **_: Any) -> T:
        document = json.loads(body) if isinstance(body, bytes) else copy.deepcopy(to_document(body))
        name = document["metadata"]["name"]
        self._begin("create", kind, name)
        if (kind.plural, namespace, name) in self.objects:
            raise ApiStatusError(409, "AlreadyExists", f"{name} already exists")
        self.put(kind, document, namespace)
        return convert(self.document(kind, name, namespace), kind.type)

    async def patch(
        self, kind: Kind[T], name: str, body: Any, patch_type: PatchType, namespace: str = "", **_: Any
    ) -> T:
        self._begin("patch", kind, name)
        current = self._read(kind, name, namespace)
        if body.get("metadata", {}).get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
            raise ApiStatusError(409, "Conflict", "the uid is another one")
        if patch_type is PatchType.STRATEGIC:
            of = kind_type(kind.api_version, kind.name)
            changed = apply_strategic_patch(copy.deepcopy(current), copy.deepcopy(body), of)
        else:
            changed = apply_merge_patch(copy.deepcopy(current), copy.deepcopy(body))
        self._write(kind, namespace, changed)
        return convert(self.document(kind, name, namespace), kind.type)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        **_: Any,
    ) -> None:
        self._begin("delete", kind, name)
        current = self._read(kind, name, namespace)
        if uid and current["metadata"]["uid"] != uid:
            raise ApiStatusError(409, "Conflict", "the uid is another one")
        grace = 30 if grace_period_seconds is None else grace_period_seconds
        if kind.plural == "pods" and (grace > 0 or current["metadata"].get("finalizers")):
            marks = {"deletionTimestamp": _CREATED, "deletionGracePeriodSeconds": grace}
            self._write(kind, namespace, {**current, "metadata": {**current["metadata"], **marks}})
            return
        del self.objects[kind.plural, namespace, name]
        self._record(kind, "DELETED", current)

    def _begin(self, verb: str, kind: Kind[Any], name: str) -> None:
        self.requests.append((verb, kind.plural, name))
        self.fail(verb, kind.plural, name)
        if kind.plural in self.unserved:
            raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")

    def _read(self, kind: Kind[Any], name: str, namespace: str) -> Document:
        try:
            return self.objects[kind.plural, namespace, name]
        except KeyError:
            raise ApiStatusError(404, "NotFound", f"{name} not found") from None

    def _write(self, kind: Kind[Any], namespace: str, document: Document) -> None:
        key = (kind.plural, namespace, document["metadata"]["name"])
        change = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = self._record(kind, change, document)

    def _record(self, kind: Kind[Any], change: str, document: Document) -> Document:
        self._version += 1
        stored = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._version)}}
        self._log.append((self._version, kind.plural, change, stored))
        self._changed[kind.plural].set()
        return stored


def _is_selected(document: Document, field_selector: str) -> bool:
    """By the selector of one object's name; every other selector selects all objects."""
    field, _, value = field_selector.partition("=")
    return field != "metadata.name" or document["metadata"]["name"] == value


def pod_document(name: str, node: str, *, cpu: str = "1", memory: str = "1Gi", **more: Any) -> Document:
    """A pod that the scheduler has just bound."""
    resources = {"requests": {"cpu": cpu, "memory": memory}} if cpu else {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _CREATED}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "app:1", "resources": resources}], **more}
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


def long_ago() -> datetime:
    """When everything here was created."""
    return datetime(2026, 1, 1, tzinfo=UTC)
