"""Objects that an admission depends on and that no informer shows yet: they are read, and the handler is asked again.

A pod may be created right after its namespace, and a profile used right after its priority class; a watch brings either
a moment later. What is read enters the informers (``kube``, write-through).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client

logger = logging.getLogger(__name__)

_SECONDS: Final = 5.0
"""For one read: API servers wait ten seconds for a webhook."""
_READ_AGAIN: Final = 5.0
"""Seconds after which an object that could not be read is read again, whoever needs it: a profile that names a priority
class that does not exist must not cost a request for each pod."""
_MOST_ABSENT: Final = 1000

_Key = tuple[Kind[Any], str]


class MissingObjects:
    """Reads objects of kinds without namespaces by kind and name, each of them once at a time."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._reading: dict[_Key, asyncio.Lock] = {}
        self._absent: dict[_Key, float] = {}
        """When each was looked for in vain (monotonic), the oldest first."""

    async def read(self, kind: Kind[Any], name: str) -> bool:
        """Whether informers show the object now."""
        key = kind, name
        lock = self._reading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return not self._is_absent(key) and await self._read(key)
        finally:
            if not lock.locked():
                self._reading.pop(key, None)

    async def _read(self, key: _Key) -> bool:
        try:
            await within(self._clock, _SECONDS, self._client.get(*key))
        except (KubeError, TimeoutError) as error:
            logger.info("%s %s is not known and could not be read: %s", key[0].name, key[1], error)
            self._absent.pop(key, None)
            self._absent[key] = self._clock.monotonic()
            if len(self._absent) > _MOST_ABSENT:
                del self._absent[next(iter(self._absent))]
            return False
        return True

    def _is_absent(self, key: _Key) -> bool:
        at = self._absent.get(key)
        return at is not None and self._clock.monotonic() < at + _READ_AGAIN
