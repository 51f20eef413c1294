"""The client interface to an API server, which tests and simulations implement in other ways.

Errors are ``koordinator.kube.errors.ApiStatusError`` (the server rejected the request) and ``TransportError`` (no
response).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object

T = TypeVar("T", bound=Object)


class PatchType(Enum):
    """The format of a patch; the value is its media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that could not be decoded; its reader skips it and reports it where the object's author will see it."""

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str
    resource_version: str
    error: str
    node_name: str = ""
    """Of a pod: the node that it is on, as far as that can be read."""
    phase: str = ""
    """That of its status, as far as it can be read."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: Sequence[T]
    malformed: Sequence[Malformed]
    resource_version: str
    continue_token: str
    remaining: int | None


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change. BOOKMARK carries only ``resource_version``."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | Malformed | None
    resource_version: str


class WriteThroughCache(Protocol):
    """Learns what a client has read or written, before a watch shows it."""

    def put(self, kind: Kind[T], obj: T) -> None:
        """The server has responded with this object."""

    def remove(self, kind: Kind[T], key: str, uid: str) -> None:
        """The server has deleted the object with this ``namespace/name`` and this uid."""


class Client(Protocol):
    """Typed verbs. Every call except a watch ends within the client's time limit, with a TransportError if necessary.

    ``body`` is a struct, a plain document or encoded JSON; unknown fields are never sent back."""

    def once(self) -> Client:
        """A client that makes each request once: what may be tried again, and after which pause, is up to the caller,
        who has then given back what others wait for. The caller closes the original client, not this one."""
        ...

    def write_through(self, cache: WriteThroughCache) -> None:
        """Give the cache each object that this client, or a client that was made of it, gets for a read of one object
        or for a write."""
        ...

    def backlog(self) -> float:
        """The seconds for which the client's rate limit would delay a request now."""
        ...

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T: ...

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
    ) -> ListPage[T]: ...

    def watch(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int = 0,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield the events after ``resource_version`` until the server ends the watch.

        Raises ApiStatusError (410 Expired among them) for an ERROR event, TransportError when the connection breaks or
        stalls: nothing, not even a bookmark, for longer than the client's watch stall limit.
        """
        ...

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
        """POST. With ``name`` and ``subresource``, e.g. a Binding or an Eviction (the response may be a Status). With
        ``dry_run``, the server admits and validates it, and stores nothing."""
        ...

    async def update(self, kind: Kind[T], body: Any, name: str, namespace: str = "", *, subresource: str = "") -> T:
        """PUT of a whole object that this program owns; it should carry the resourceVersion at which it was read."""
        ...

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
    ) -> T: ...

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
    ) -> None: ...

    async def delete_collection(
        self, kind: Kind[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None: ...

    async def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send any other request, such as GET /version, and return the response body."""
        ...

    async def close(self) -> None: ...
