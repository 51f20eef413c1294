"""What plugins may do with the API while a pod is being bound: patch objects, and wait for what others make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from koordinator.api.kinds import Kind
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.interface import Client, PatchType


class ApiWriter:
    """Implements ClusterWriter. ``notify`` is called after every event that reached the cluster state."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting = 0
        self._changed = asyncio.Event()

    async def patch(self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any]) -> None:
        """See ClusterWriter."""
        await self._client.patch(kind, name, patch, PatchType.MERGE, namespace)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """See ClusterWriter."""
        deadline = self._clock.monotonic() + seconds
        self._waiting += 1
        try:
            while not condition():
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                try:
                    await within(self._clock, left, self._changed.wait())
                except TimeoutError:
                    return condition()
        finally:
            self._waiting -= 1
        return True

    def notify(self) -> None:
        """Something has happened: conditions may hold now."""
        if self._waiting:
            self._changed.set()
            self._changed = asyncio.Event()
