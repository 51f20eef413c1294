"""Keeps the records that Events carry, while this replica leads, and answers queries about them.

The watch of Events is not an informer: nothing of them is held but the records that wait to be stored. They wait in
memory while the store fails, the oldest are dropped first, and what is lost is counted. The store is used in a thread
of its own, since webhooks must not wait for a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.audit_answer import AuditAnswer, Coverage
from koordinator.api.codec import DecodeError
from koordinator.api.meta import Object
from koordinator.api.modification import AUDIT_ACTION, decode_record
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.said_once import SaidOnce
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import Malformed, WatchEvent
from koordinator.kube.reflector import Reflector, Selection
from koordinator.manager.audit.options import AuditOptions
from koordinator.manager.audit.store import AuditStore, AuditStoreError, Query, ReceivedRecord
from koordinator.manager.controllers import ControllerContext

logger = logging.getLogger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Begins a call at once, and returns what waits for its result."""
_MEBIBYTE: Final = 1 << 20
_WAITING: Final = 10_000
_BATCH: Final = 500
_STORE_SECONDS: Final = 1.0
"""Between two writes of the store."""
_LISTEN_SECONDS: Final = 30.0
"""How often it is noted that records are received, where none come."""
_CONTACT_SECONDS: Final = 700.0
"""A watch may last for so long without an event: the API server counts as heard."""


class AuditKeeper:
    """A controller: ``run`` keeps records until cancelled, and may be called again. ``find`` answers meanwhile."""

    name = "audit"

    def __init__(self, context: ControllerContext, options: AuditOptions, in_thread: InThread | None = None) -> None:
        """``in_thread`` runs what may wait for a disk, one call after the other."""
        self._clock: Clock = context.clock
        self._store = AuditStore(options.directory, options.megabytes * _MEBIBYTE, options.max_age)
        self._in_thread = in_thread or _thread_of_its_own()
        self._waiting: deque[ReceivedRecord] = deque()
        self._storing: list[ReceivedRecord] = []
        """They stay here until the store has them."""
        self._is_wanted = asyncio.Event()
        self._has_batch = asyncio.Event()
        """As many wait as one write of the store takes."""
        self._is_running = False
        self._lost = 0
        self._refused: set[str] = set()
        """UIDs of Events, at most so many as records may wait: a list shows each of them again."""
        self._problem = ""
        self._said = SaidOnce(logger, over=lambda _: f"the audit keeps records again; {self._lost} were lost")
        self._reflector: Reflector[Object]
        self._make_reflector: Callable[[], Reflector[Object]] = lambda: Reflector(
            context.client,
            Selection(EVENTS_V1, label_selector=AUDIT_ACTION),
            self,
            clock=context.clock,
            random=context.random,
        )
        results = context.metrics.counter(
            "koord_manager_audit_records_total",
            "Records of modifications by what became of them: kept, refused for what they say, or lost because nothing "
            "could be kept",
            ("result",),
        )
        self._kept_count, self._refused_count, self._lost_count = map(results.labels, ("kept", "refused", "lost"))
        self._used = context.metrics.gauge("koord_manager_audit_store_bytes", "The space that kept records take")

    async def run(self) -> None:
        self._lost, self._refused = 0, set()
        self._reflector = self._make_reflector()
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._reflector.run(), name="audit events")
                await self._keep()
        finally:
            self._is_running = False
            # It is not waited for: a disk that does not respond must not keep the next leader waiting. The next term
            # of this one, and the end of the process, come after it.
            last, self._storing, self._waiting = [*self._storing, *self._waiting], [], deque()
            self._in_thread(partial(self._finish, last, self._clock.now()))

    async def find(self, query: Query) -> AuditAnswer | None:
        """A page of records, with the reason where there are none; None while this replica does not lead."""
        if not self._is_running:
            return None
        now = self._clock.now()
        try:
            found: AuditAnswer = await self._in_thread(partial(self._look_up, query, now))
            problem = self._problem or self._watch_problem()
        except AuditStoreError as error:
            found, problem = AuditAnswer(coverage=Coverage(in_memory=self._store.is_in_memory)), str(error)
        coverage = replace(found.coverage, lost=self._lost, refused=len(self._refused), problem=problem)
        return replace(found, coverage=coverage)

    # What the reflector brings.

    def begin_replace(self, *, authoritative: bool) -> None:
        """Implements ``Sink``: what is listed anew may be known already, which the store finds out."""

    def replace_page(self, items: Sequence[Object], malformed: Sequence[Malformed]) -> None:
        for event in items:
            self._receive(event)
        for unreadable in malformed:
            self._refuse(unreadable.uid, unreadable.error)

    def end_replace(self, version: str) -> None:
        self._is_wanted.set()

    def apply(self, event: WatchEvent[Object]) -> None:
        if event.type == "ADDED":
            if isinstance(event.object, Object):
                self._receive(event.object)
            elif event.object is not None:
                self._refuse(event.object.uid, event.object.error)

    def _receive(self, event: Object) -> None:
        metadata = event.metadata
        try:
            record = decode_record(metadata)
        except DecodeError as error:
            self._refuse(metadata.uid, f"{metadata.key}: {error}")
            return
        self._waiting.append(ReceivedRecord(metadata.uid, metadata.key, record))
        if len(self._waiting) > _WAITING:
            self._waiting.popleft()
            self._lost += 1
            self._lost_count.inc()
        if len(self._waiting) >= _BATCH:
            self._has_batch.set()
        self._is_wanted.set()

    def _refuse(self, uid: str, why: str) -> None:
        if uid in self._refused or len(self._refused) >= _WAITING:
            return
        self._refused.add(uid)
        self._refused_count.inc()
        logger.debug("a record of the audit is refused: %s", why)

    # What is stored.

    async def _keep(self) -> None:
        while True:
            with suppress(TimeoutError):
                await within(self._clock, _LISTEN_SECONDS, self._is_wanted.wait())
            self._is_wanted.clear()
            await self._store_waiting()
            await self._pause()

    async def _pause(self) -> None:
        """Not while a whole batch waits: a list may bring more in a second than there is room for."""
        if self._problem:
            await self._clock.sleep(_STORE_SECONDS)
            return
        if len(self._waiting) < _BATCH:
            self._has_batch.clear()
        with suppress(TimeoutError):
            await within(self._clock, _STORE_SECONDS, self._has_batch.wait())

    async def _store_waiting(self) -> None:
        while self._waiting and len(self._storing) < _BATCH:
            self._storing.append(self._waiting.popleft())
        with self._said.round():
            try:
                added = await self._in_thread(partial(self._put, self._storing, self._clock.now()))
            except AuditStoreError as error:
                # Tried again with the next record, or after a while.
                self._problem = str(error)
                self._said.say(f"the audit keeps no records: {error}; they wait in memory", about=self.name)
                return
        self._storing, self._problem = [], ""
        self._kept_count.inc(added)
        if self._waiting:
            self._is_wanted.set()

    def _look_up(self, query: Query, now: datetime) -> AuditAnswer:
        self._open()
        return self._store.find(query, now)

    def _open(self) -> None:
        if problem := self._store.open():
            logger.warning("audit: %s", problem)

    def _put(self, batch: Sequence[ReceivedRecord], now: datetime) -> int:
        self._open()
        added = self._store.add(batch, now, listens=self._hears())
        self._used.set(self._store.used_bytes())
        return added

    def _finish(self, last: Sequence[ReceivedRecord], now: datetime) -> None:
        try:
            if last:
                self._kept_count.inc(self._put(last, now))
        except AuditStoreError as error:
            # A leader that follows finds them where the API has their Events still.
            logger.warning("the audit could not store its last %d records: %s", len(last), error)
        finally:
            # After a full disk it is still open, and locked.
            self._store.close()

    def _hears(self) -> bool:
        return self._clock.monotonic() - self._reflector.statistics.last_contact < _CONTACT_SECONDS

    def _watch_problem(self) -> str:
        return "" if self._hears() else f"Events cannot be read: {self._reflector.statistics.last_error or 'not yet'}"


def _thread_of_its_own() -> InThread:
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")

    return lambda function: asyncio.get_running_loop().run_in_executor(thread, function)
