"""The client of a real API server: typed verbs over a transport, with credentials, limits and retries.

Retries are in ``sender``; responses are decoded in ``decoding`` and ``watch``.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from copy import copy
from typing import Any, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.time_limits import Limit, TimeLimits
from koordinator.kube.decoding import (
    SLICE_BYTES,
    decode_created,
    decode_deleted,
    decode_list,
    decode_list_in_slices,
    decode_object,
)
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import ListPage, PatchType, WatchEvent, WriteThroughCache
from koordinator.kube.request import (
    Request,
    delete_options,
    encode_body,
    encode_object,
    query_string,
    require_name,
    target,
)
from koordinator.kube.sender import Sender
from koordinator.kube.watch import EventReader

T = TypeVar("T", bound=Object)

# A watch lasts a random time between this and twice this, so that the watches of many clients do not all end together.
_MIN_WATCH_SECONDS = 300
_WATCH_MARGIN_SECONDS = 30.0
_WHOLE = ("", "status")
"""The subresources of which a response is the whole object."""


class KubeClient:
    """``koordinator.kube.interface.Client`` over HTTP.

    ``watch_stall_seconds`` is how long a watch may be silent before it counts as broken; None means its own duration
    plus half a minute. With ``lists_in_slices``, decoding a long list yields to the event loop in between.
    """

    def __init__(
        self,
        sender: Sender,
        limits: TimeLimits,
        randomness: random.Random,
        *,
        watch_stall_seconds: float | None = None,
        lists_in_slices: bool = False,
    ) -> None:
        self._sender = sender
        self.backlog = sender.backlog
        self._limits = limits
        self._random = randomness
        self._watch_stall_seconds = watch_stall_seconds
        self._lists_in_slices = lists_in_slices
        self._caches: list[WriteThroughCache] = []
        """Shared with the clients that are made of this one."""

    def fenced(self, may_write: Callable[[], bool]) -> KubeClient:
        """Return a client for work that only a leader may do: while ``may_write`` returns false, writes raise
        FencedError and are not sent. The caller closes the original client, not this one."""
        fenced = copy(self)
        fenced._sender = self._sender.fenced(may_write)
        return fenced

    def once(self) -> KubeClient:
        once = copy(self)
        once._sender = self._sender.once()
        return once

    def write_through(self, cache: WriteThroughCache) -> None:
        self._caches.append(cache)

    def _stored(self, kind: Kind[T], obj: T) -> T:
        for cache in self._caches:
            cache.put(kind, obj)
        return obj

    def _removed(self, kind: Kind[Any], name: str, namespace: str, uid: str) -> None:
        for cache in self._caches if uid else ():
            cache.remove(kind, f"{namespace}/{name}" if namespace else name, uid)

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        request = Request("GET", target(kind, namespace, require_name(name)))
        return self._stored(kind, decode_object(kind, await self._sender.call(request), f"GET {request.target}"))

    async def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage[T]:
        query = query_string(
            {
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "limit": limit,
                "continue": continue_token,
                "resourceVersion": resource_version,
            }
        )
        request = Request("GET", target(kind, namespace, query=query))
        body, what = await self._sender.call(request), f"GET {request.target}"
        if self._lists_in_slices and len(body) > SLICE_BYTES:
            return await decode_list_in_slices(kind, body, what)
        return decode_list(kind, body, what)

    async def watch(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        seconds = timeout_seconds or round(_MIN_WATCH_SECONDS * self._random.uniform(1.0, 2.0))
        query = query_string(
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "resourceVersion": resource_version,
                "timeoutSeconds": seconds,
            }
        )
        request = Request("GET", target(kind, namespace, query=query))
        stall_seconds = self._watch_stall_seconds or seconds + _WATCH_MARGIN_SECONDS
        stream = await self._sender.stream(request)
        reader, limit = EventReader(kind), Limit(stream.abort)
        self._limits.extend(limit, stall_seconds)
        self._limits.add(limit)
        try:
            async for chunk in stream.chunks():
                self._limits.extend(limit, stall_seconds)
                for event in reader.feed(chunk):
                    yield event
        except TransportError as error:
            if limit.expired:
                raise _stalled(stall_seconds) from error
            raise
        finally:
            self._limits.remove(limit)
            # However the watch ended, the connection is in the middle of a response and cannot be reused.
            stream.abort()
        if limit.expired:
            raise _stalled(stall_seconds)
        reader.end()

    async def create(
        self,
        kind: Kind[T],
        body: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        where = target(kind, namespace, name, subresource, "dryRun=All" if dry_run else "")
        encoded = encode_body(body) if subresource else encode_object(kind, body)
        response = await self._sender.call(Request("POST", where, encoded, repeatable=dry_run))
        if subresource:
            return decode_created(kind, response, f"POST {where}")
        created = decode_object(kind, response, f"POST {where}")
        return created if dry_run else self._stored(kind, created)

    async def update(self, kind: Kind[T], body: Any, name: str, namespace: str = "", *, subresource: str = "") -> T:
        where = target(kind, namespace, require_name(name), subresource)
        response = await self._sender.call(Request("PUT", where, encode_object(kind, body)))
        updated = decode_object(kind, response, f"PUT {where}")
        return self._stored(kind, updated) if subresource in _WHOLE else updated

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        query = query_string({"fieldManager": field_manager, "force": "true" if force else ""})
        where = target(kind, namespace, require_name(name), subresource, query)
        encoded = encode_object(kind, body) if patch_type is PatchType.APPLY else encode_body(body)
        # A JSON patch may append to a list, so that repeating it would append twice.
        request = Request("PATCH", where, encoded, patch_type.value, repeatable=patch_type is not PatchType.JSON)
        patched = decode_object(kind, await self._sender.call(request), f"PATCH {where}")
        return self._stored(kind, patched) if subresource in _WHOLE else patched

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation_policy: str = "",
    ) -> None:
        body = delete_options(uid, resource_version, grace_period_seconds, propagation_policy)
        try:
            response = await self._sender.call(Request("DELETE", target(kind, namespace, require_name(name)), body))
        except ApiStatusError as error:
            # Of the object, and not of its kind.
            if error.is_not_found and error.details.name == name:
                self._removed(kind, name, namespace, uid)
            raise
        if not self._caches:
            return
        left, gone = decode_deleted(kind, response)
        if left is not None:
            self._stored(kind, left)
        self._removed(kind, name, namespace, gone)

    async def delete_collection(
        self, kind: Kind[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None:
        query = query_string({"labelSelector": label_selector, "fieldSelector": field_selector})
        await self._sender.call(Request("DELETE", target(kind, namespace, query=query)))

    async def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the response body. ``path`` is sent unchanged, so it must be URL-encoded, including the query."""
        return await self._sender.call(Request(method, path, body, repeatable=method in ("GET", "HEAD")))

    async def close(self) -> None:
        await self._sender.close()
        await self._limits.close()


def _stalled(seconds: float) -> TransportError:
    return TransportError(f"the watch stalled: nothing for {seconds:g} s", timed_out=True)
