"""A client whose lists and watches are written down beforehand, for tests of exact sequences of events; what only needs
an API server has that of ``tests.in_memory_api``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar, cast

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, ListPage, Malformed, WatchEvent, WriteThroughCache

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

    A list script holds pages or exceptions; each watch takes one sequence of events, exceptions, END or HANG, and of
    functions that are called between them. When the scripts are used up, lists and watches hang until they are
    cancelled.
    """

    def __init__(self) -> None:
        self.lists: deque[ListPage[Any] | Exception] = deque()
        self.watches: deque[Sequence[Any]] = deque()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.idle = asyncio.Event()

    def write_through(self, cache: WriteThroughCache) -> None:
        """Nothing is written."""

    def watched_from(self) -> list[str]:
        return [arguments["resource_version"] for verb, arguments in self.calls if verb == "watch"]

    async def list(self, kind: Kind[T], namespace: str = "", **arguments: Any) -> ListPage[T]:
        self.calls.append(("list", {"kind": kind, "namespace": namespace, **arguments}))
        if not self.lists:
            await self._hang()
        response = self.lists.popleft()
        if isinstance(response, Exception):
            raise response
        return response

    async def watch(self, kind: Kind[T], namespace: str = "", **arguments: Any) -> AsyncIterator[WatchEvent[T]]:
        self.calls.append(("watch", {"kind": kind, "namespace": namespace, **arguments}))
        for step in self.watches.popleft() if self.watches else [HANG]:
            if step is END:
                return
            if callable(step):
                step()
                continue
            if step is HANG:
                await self._hang()
            if isinstance(step, Exception):
                raise step
            yield cast("WatchEvent[T]", step)

    async def _hang(self) -> None:
        self.idle.set()
        await asyncio.Event().wait()
