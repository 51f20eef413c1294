"""The single-object verbs of a client, bounded by request slots and repeated with patience: a pause holds no slot."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.clock import Clock
from koordinator.kube.attempts import PATIENCE, Attempts, Patience, persist
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.request_slots import RequestSlots

R = TypeVar("R")
T = TypeVar("T", bound=Object)


class BoundedClient:
    """The verbs are those of ``koordinator.kube.interface.Client``; requests are grouped by namespace."""

    def __init__(
        self, client: Client, slots: RequestSlots, clock: Clock, random: Random, patience: Patience = PATIENCE
    ) -> None:
        self._client = client.once()
        self._slots = slots
        self._clock = clock
        self._random = random
        self._patience = patience

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return await self._persist(namespace, lambda: self._client.get(kind, name, namespace))

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
        """Made once, unless it is a dry run: only its caller can find out what has become of a create without an
        answer."""

        def request() -> Coroutine[Any, Any, T]:
            return self._client.create(kind, body, namespace, name=name, subresource=subresource, dry_run=dry_run)

        return await (self._persist if dry_run else self._slots.send)(namespace, request)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> T:
        def request() -> Coroutine[Any, Any, T]:
            return self._client.patch(kind, name, body, patch_type, namespace, subresource=subresource)

        return await self._persist(namespace, request)

    async def delete(self, kind: Kind[T], name: str, namespace: str = "", *, uid: str = "") -> None:
        await self._persist(namespace, lambda: self._client.delete(kind, name, namespace, uid=uid))

    async def _persist(self, namespace: str, request: Callable[[], Coroutine[Any, Any, R]]) -> R:
        attempts = Attempts(self._patience, self._clock, self._random)
        return await persist(lambda: self._slots.send(namespace, request), attempts, self._clock)
