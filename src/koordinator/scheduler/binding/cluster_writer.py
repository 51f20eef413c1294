"""API access for plugins while a pod is being bound: patch objects, and wait for what other components make of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from random import Random
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import ObjectMeta
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.pod_eviction import evict
from koordinator.kube.request_slots import OverdueRequests, RequestSlots
from koordinator.scheduler.engine.binding_points import ObjectPatch
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 24
"""Concurrent requests of all plugins."""
_ANY: Final = ("", "")
"""The key of waiters that do not name the object that they wait for."""
_PAUSE: Final = 0.1
"""Seconds between two checks of such waiters: each of a thousand events a second must not wake each of a thousand
waiters."""
_Key = tuple[str, str]


class ApiWriter:
    """Implements ControllerWriter. ``notify`` is called after every event that reached the cluster state. ``run`` must
    run; what waits between two attempts of a request, or for an event, keeps nobody else waiting."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        random: Random,
        overdue: OverdueRequests | None = None,
    ) -> None:
        self._slots = RequestSlots(_AT_ONCE, clock, overdue=overdue, backlog=client.backlog)
        self._client = BoundedClient(client, self._slots, clock, random)
        self._tasks: asyncio.TaskGroup | None = None
        self._patching: set[str] = set()
        """Objects of ``patch_each`` with a patch under way."""
        self._clock = clock
        self.waiting: dict[_Key, set[asyncio.Event]] = {}
        """By kind and key of the object that they wait for; entries without waiters are removed."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._slots.run()

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """See ControllerWriter."""

        async def guarded() -> None:
            try:
                await work
            except Exception:
                logger.exception("%s failed", what)

        assert self._tasks is not None, "the writer does not run"
        self._tasks.create_task(guarded(), name=what)

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        """See ClusterWriter."""
        await self._client.patch(kind, name, patch, PatchType.MERGE, namespace, subresource=subresource)

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

    async def create(self, kind: Kind[Any], body: Mapping[str, Any], namespace: str) -> None:
        """See ClusterWriter."""
        await self._client.create(kind, body, namespace)

    async def delete(self, kind: Kind[Any], obj: ObjectMeta) -> None:
        """See ControllerWriter."""
        try:
            await self._client.delete(kind, obj.name, obj.namespace, uid=obj.uid)
        except ApiStatusError as error:
            if not error.is_not_found and not error.is_conflict:
                raise

    def patch_each(self, kind: Kind[Any], patches: Iterable[ObjectPatch]) -> None:
        """See ControllerWriter."""
        for name, namespace, patch in patches:
            about = f"{kind.name} {namespace}/{name}"
            if about not in self._patching:
                self._patching.add(about)
                self.start(self._patch_alone(kind, name, namespace, patch, about), f"patch {about}")

    async def _patch_alone(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], about: str
    ) -> None:
        try:
            await self.patch(kind, name, namespace, patch)
        except KoordinatorError as error:
            self.warn(f"{about} could not be patched: {error}")
        finally:
            self._patching.discard(about)

    def warn(self, text: str) -> None:
        """See ControllerWriter."""
        logger.warning("%s", text)

    async def evict(self, pod: ObjectMeta) -> None:
        """See ClusterWriter."""
        await evict(self._client, pod, {})

    async def sleep(self, seconds: float) -> None:
        """See ClusterWriter."""
        await self._clock.sleep(seconds)

    def monotonic(self) -> float:
        """See ClusterWriter."""
        return self._clock.monotonic()

    def now(self) -> datetime:
        """See ControllerWriter."""
        return self._clock.now()

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
        """Wake the waiters for the object of the event, and those that name no object, to check their condition."""
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
