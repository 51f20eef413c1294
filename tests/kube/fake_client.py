"""A client that answers from memory and fails on command: the API server of the tests of ``kube``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar, cast

from koordinator.api.codec import convert, decode_any, to_document
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, ListPage, Malformed, PatchType, WatchEvent

T = TypeVar("T", bound=Object)

END = object()
"""In a watch script: the server ends the watch."""
HANG = object()
"""In a watch script: the connection stalls."""


def as_client(fake: object) -> Client:
    """A fake has the verbs that its test needs, not all."""
    return cast("Client", fake)


def not_found(name: str = "object") -> ApiStatusError:
    return ApiStatusError(404, "NotFound", f"{name} not found")


def conflict(name: str = "object") -> ApiStatusError:
    return ApiStatusError(409, "Conflict", f"{name} has been modified")


def already_exists(name: str = "object") -> ApiStatusError:
    return ApiStatusError(409, "AlreadyExists", f"{name} already exists")


def expired() -> ApiStatusError:
    return ApiStatusError(410, "Expired", "too old resource version")


def metadata(name: str, version: int | str, uid: str = "", namespace: str = "default", **more: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-{name}", resource_version=str(version), **more)


def added(obj: T) -> WatchEvent[T]:
    return WatchEvent("ADDED", obj, obj.metadata.resource_version)


def modified(obj: T) -> WatchEvent[T]:
    return WatchEvent("MODIFIED", obj, obj.metadata.resource_version)


def deleted(obj: T) -> WatchEvent[T]:
    return WatchEvent("DELETED", obj, obj.metadata.resource_version)


def bookmark(version: int) -> WatchEvent[Any]:
    return WatchEvent("BOOKMARK", None, str(version))


def page(*items: Object, version: int, token: str = "", malformed: Sequence[Malformed] = ()) -> ListPage[Any]:
    return ListPage(list(items), list(malformed), str(version), token, None)


class ScriptedClient:
    """Lists and watches come from scripts, in order; every call is kept in ``calls``.

    A list script holds pages or exceptions; each watch takes one sequence of events, exceptions, END or HANG. When the
    scripts are used up, lists and watches hang until they are cancelled.
    """

    def __init__(self) -> None:
        self.lists: deque[ListPage[Any] | Exception] = deque()
        self.watches: deque[Sequence[Any]] = deque()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.idle = asyncio.Event()

    def watched_from(self) -> list[str]:
        return [arguments["resource_version"] for verb, arguments in self.calls if verb == "watch"]

    async def list(self, kind: Kind[T], namespace: str = "", **arguments: Any) -> ListPage[T]:
        self.calls.append(("list", {"kind": kind, "namespace": namespace, **arguments}))
        if not self.lists:
            await self._hang()
        answer = self.lists.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, kind: Kind[T], namespace: str = "", **arguments: Any) -> AsyncIterator[WatchEvent[T]]:
        self.calls.append(("watch", {"kind": kind, "namespace": namespace, **arguments}))
        for step in self.watches.popleft() if self.watches else [HANG]:
            if step is END:
                return
            if step is HANG:
                await self._hang()
            if isinstance(step, Exception):
                raise step
            yield cast("WatchEvent[T]", step)

    async def _hang(self) -> None:
        self.idle.set()
        await asyncio.Event().wait()


class MemoryClient:
    """One API server's memory of whole documents, with optimistic concurrency.

    ``before`` is awaited with (verb, name) ahead of each call and ``after`` behind it: raise there to fail a request
    before or after it took effect.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.version = 0
        self.calls: list[tuple[str, str, Any]] = []
        self.before: Callable[[str, str], Any] | None = None
        self.after: Callable[[str, str], Any] | None = None

    def documents(self, kind: Kind[Any]) -> list[dict[str, Any]]:
        return [document for (plural, _, _), document in self.objects.items() if plural == kind.qualified]

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return await self._do("get", kind, name, lambda: self._read(kind, name, namespace))

    async def create(
        self, kind: Kind[T], body: Any, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> T:
        document = _document(body)
        name = name or document["metadata"]["name"]
        key = (kind.qualified, namespace, name)

        def store() -> dict[str, Any]:
            if key in self.objects:
                raise already_exists(name)
            return self._write(key, {**document, "metadata": {**document["metadata"], "uid": f"uid-{name}"}})

        return await self._do("create", kind, name, store, document)

    async def update(self, kind: Kind[T], body: Any, name: str, namespace: str = "", *, subresource: str = "") -> T:
        document = _document(body)

        def store() -> dict[str, Any]:
            self._expect(document, self._read(kind, name, namespace))
            return self._write((kind.qualified, namespace, name), document)

        return await self._do("update", kind, name, store, document)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        patch_type: PatchType,
        namespace: str = "",
        **_: Any,
    ) -> T:
        document = _document(body)

        def store() -> dict[str, Any]:
            current = self._read(kind, name, namespace)
            if isinstance(document, dict):
                self._expect(document, current)
            return self._write((kind.qualified, namespace, name), _merge(current, document))

        return await self._do("patch", kind, name, store, document)

    async def _do(self, verb: str, kind: Kind[T], name: str, work: Callable[[], dict[str, Any]], body: Any = None) -> T:
        self.calls.append((verb, name, body))
        if self.before is not None:
            await self.before(verb, name)
        result = convert(work(), kind.type)
        if self.after is not None:
            await self.after(verb, name)
        return result

    def _read(self, kind: Kind[Any], name: str, namespace: str) -> dict[str, Any]:
        try:
            return self.objects[kind.qualified, namespace, name]
        except KeyError:
            raise not_found(name) from None

    def _expect(self, document: dict[str, Any], current: dict[str, Any]) -> None:
        """What names a version is written on that version alone."""
        version = document.get("metadata", {}).get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            raise conflict(current["metadata"]["name"])

    def _write(self, key: tuple[str, str, str], document: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        self.objects[key] = stored
        return stored


def _document(body: Any) -> dict[str, Any]:
    if isinstance(body, bytes):
        return cast("dict[str, Any]", decode_any(body))
    return cast("dict[str, Any]", to_document(body))


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
