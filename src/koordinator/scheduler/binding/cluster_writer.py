"""What plugins may do with the API while a pod is being bound: patch objects, and wait for what others make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.interface import Client, PatchType
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo

_ANY: Final = ("", "")
"""In place of an object, for those who do not say what they wait for."""
_PAUSE: Final = 0.1
"""Seconds between two looks of these: each of a thousand events a second must not wake each of a thousand waiters."""
_Key = tuple[str, str]


class ApiWriter:
    """Implements ClusterWriter. ``notify`` is called after every event that reached the cluster state."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.waiting: dict[_Key, set[asyncio.Event]] = {}
        """By kind and key of the object that they wait for; nothing is kept of those who do not wait any more."""

    async def patch(self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any]) -> None:
        """See ClusterWriter."""
        await self._client.patch(kind, name, patch, PatchType.MERGE, namespace)

    async def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        objects: Callable[[], Iterable[tuple[Kind[Any], str]]] | None = None,
    ) -> bool:
        """See ClusterWriter."""
        deadline = self._clock.monotonic() + seconds
        while not condition():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            keys = [_ANY] if objects is None else [(kind.name, key) for kind, key in objects()]
            try:
                await self._happened(keys, left)
            except TimeoutError:
                return condition()
            if objects is None and not condition():
                await self._clock.sleep(min(_PAUSE, max(deadline - self._clock.monotonic(), 0.0)))
        return True

    async def _happened(self, keys: Iterable[_Key], seconds: float) -> None:
        """Wait for the next event about one of these objects; raises TimeoutError."""
        happened = asyncio.Event()
        for key in keys:
            self.waiting.setdefault(key, set()).add(happened)
        try:
            await within(self._clock, seconds, happened.wait())
        finally:
            for key in keys:
                waiters = self.waiting.get(key, set())
                waiters.discard(happened)
                if not waiters:
                    self.waiting.pop(key, None)

    def notify(self, event: ClusterEvent) -> None:
        """Something has happened: who waits for that object, or does not say for what, looks whether its condition
        holds now."""
        if not self.waiting:
            return
        for key in (_key_of(event), _ANY):
            for happened in self.waiting.get(key, ()):
                happened.set()


def _key_of(event: ClusterEvent) -> _Key:
    about = event.new if event.new is not None else event.old
    kind = event.kind.partition("/")[0]
    if isinstance(about, PodInfo):
        return kind, about.key
    return (kind, about.metadata.key) if about is not None else _ANY
