"""Events about objects: recorded at once, written in the background, repetitions aggregated as series.

As in upstream's broadcaster, an event is created when it first happens; if one that agrees with it in everything but
note and time happens within six minutes, a patch turns the object into a series, and from then on repetitions are only
counted in memory until the series ends (six minutes without one) or is refreshed (every thirty minutes). While the API
server is unreachable, events wait in a bounded buffer and are retried; dropped events are counted, and logged if their
reason is an essential one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Final, Literal

from koordinator.api.meta import ObjectReference
from koordinator.api.modification import Modification, complete
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import (
    ApiStatusError,
    MalformedObjectError,
    TransportError,
    UnsentError,
    WriteRefusedError,
)
from koordinator.kube.event_series import (
    EVENTS_V1,
    EventEntry,
    EventKey,
    EventOptions,
    SpamFilter,
    event_name,
    limit_note,
    spam_key,
)
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.lacks import Lack, lack_for_write
from koordinator.kube.request_slots import OverdueRequests, RequestSlots, Ticket
from koordinator.kube.slot_workers import SlotWorkers
from koordinator.kube.workqueue import WorkQueue

logger = logging.getLogger(__name__)

_INSTANCE_LENGTH: Final = 128
"""Longer names of an instance are rejected."""

EventType = Literal["Normal", "Warning"]


class EventRecorder:
    """Records events of one source (``reportingController``); created by ``EventBroadcaster.recorder``."""

    def __init__(self, broadcaster: EventBroadcaster, controller: str) -> None:
        self._broadcaster = broadcaster
        self._controller = controller

    def event(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: ObjectReference | None = None,
        modification: Modification | None = None,
    ) -> None:
        """Record what happened to ``regarding``. Never blocks and never fails.

        An event with a ``modification`` is kept by the audit of koord-manager (``koord audit``): it is an essential
        one and forms no series, so whoever acts many times a minute records a summary of that."""
        key = EventKey(type_, action, reason, self._controller, regarding, related)
        self._broadcaster.record(key, note, modification)


class EventBroadcaster:
    """Buffers, aggregates and writes the events of a program."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str = "",
        host: str = "",
        program: str = "",
        clock: Clock,
        random: Random,
        metrics: Metrics | None = None,
        options: EventOptions | None = None,
    ) -> None:
        """``instance`` is ``reportingInstance``; if empty, that is ``CONTROLLER-HOST``, as in upstream. ``program`` is
        that of the modifications which events carry; without one, none may."""
        # A pause is the queue's: no writer waits for it.
        self._client = client.once()
        self._instance = instance
        self._host = host
        self._program = program
        self._clock = clock
        self._random = random
        self._options = options or EventOptions()
        self._spam = SpamFilter(clock)
        # OrderedDict, not dict: its oldest entry is found in constant time, even after many deletions before it.
        self._entries: OrderedDict[EventKey, EventEntry] = OrderedDict()
        self._pending: OrderedDict[EventEntry, None] = OrderedDict()
        self._pending_essential: OrderedDict[EventEntry, None] = OrderedDict()
        self._retries: WorkQueue[EventEntry] = WorkQueue(clock)
        """The events that are written again after a pause."""
        self._lack = Lack("events")
        self._last_nanoseconds = 0
        self._drained = asyncio.Event()
        self._is_busy: Callable[[], bool] = lambda: False
        self._hurries = False
        self._slots = RequestSlots(
            self._options.writers, clock, overdue=OverdueRequests(self._options.overdue), backlog=client.backlog
        )
        self._writers = SlotWorkers(self._slots, self._write_in_turn, self._not_sent, "event writer")
        metrics = metrics or Metrics()
        self._heartbeat = LoopMetrics(clock, metrics).loop("events")
        written = metrics.counter("event_recorder_written_total", "Events created or patched", ("operation",))
        self._created, self._patched = written.labels("create"), written.labels("patch")
        self._dropped = metrics.counter("event_recorder_dropped_total", "Events that were not written", ("reason",))
        metrics.gauge("event_recorder_pending", "Events that wait to be written").set_function(lambda: self.pending)

    @property
    def pending(self) -> int:
        """The number of events that wait to be written."""
        return len(self._pending) + len(self._pending_essential)

    def give_way_while(self, is_busy: Callable[[], bool]) -> None:
        """While ``is_busy`` returns true, such as while the program binds the pods that its events are about, write few
        events concurrently: if the API server is the bottleneck, events should not delay that work, but they should not
        fall behind forever either. Otherwise many concurrent requests cost this program, and the server, less than
        sequential ones."""
        self._is_busy = is_busy

    def recorder(self, controller: str) -> EventRecorder:
        """Return a recorder for one source, such as a scheduler profile."""
        return EventRecorder(self, controller)

    def record(self, key: EventKey, note: str, modification: Modification | None = None) -> None:
        """Record one event."""
        now = self._clock.now()
        if modification is not None:
            assert self._program, "whoever records modifications says which program it is"
            carrying = self._new_entry(key, note, now, essential=True)
            carrying.modification = complete(modification, self._program, key.regarding, note, now)
            self._enqueue(carrying)
            return
        entry = self._entries.get(key)
        if entry is not None:
            entry.count += 1
            entry.last_observed = now
            if entry.count != 2 or entry.written_count == 0:
                return
        essential = key.reason in self._options.essential_reasons
        if not essential and not self._spam.allows(spam_key(key)):
            self._dropped.labels("spam").inc()
            return
        if entry is None:
            entry = self._entries[key] = self._new_entry(key, note, now, essential)
            if len(self._entries) > self._options.series_capacity:
                self._end_oldest_series()
        self._enqueue(entry)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._retries.run_timers(), name="event timers")
            tasks.create_task(self._end_series(), name="event series")
            tasks.create_task(self._writers.run(), name="event writers")
            tasks.create_task(self._submit_retries(), name="event retries")

    async def flush(self, deadline: float) -> int:
        """Write pending events and the counts of running series, for at most ``deadline`` seconds; ``run`` must run.

        Returns the number of events left unwritten; they are counted, and logged one by one and by number.
        """
        for entry in self._entries.values():
            if entry.written_count != entry.count and not entry.dropped:
                self._enqueue(entry)
        for entry in [*self._pending_essential, *self._pending]:
            # Retry now, without waiting for the pause of the last failure.
            self._submit(entry)
        self._drained.clear()
        if not self.pending:
            return 0
        try:
            self._hurries = True
            self._set_limit()
            await within(self._clock, deadline, self._drained.wait())
        except TimeoutError:
            left = [*self._pending_essential, *self._pending]
            for entry in left:
                self._drop(entry, "shutdown")
                logger.warning("event not written before the end: %s", _describe(entry))
            logger.warning("%d events could not be written before the end", len(left))
            return len(left)
        finally:
            self._hurries = False
        return 0

    def _new_entry(self, key: EventKey, note: str, now: datetime, essential: bool) -> EventEntry:
        # Names need distinct nanoseconds; two events may happen within one tick of the clock.
        nanoseconds = max(self._last_nanoseconds + 1, round(now.timestamp() * 1e6) * 1000)
        self._last_nanoseconds = nanoseconds
        return EventEntry(
            key=key,
            name=event_name(key.regarding.name, nanoseconds),
            namespace=key.regarding.namespace or "default",
            note=limit_note(note),
            event_time=now,
            essential=essential,
            last_observed=now,
            refreshed=now,
        )

    def _end_oldest_series(self) -> None:
        _, oldest = self._entries.popitem(last=False)
        if oldest.written_count != oldest.count:
            self._enqueue(oldest)

    def _waiting(self, entry: EventEntry) -> OrderedDict[EventEntry, None]:
        """Return the queue in which an entry waits to be written: that of essential events or that of the others."""
        return self._pending_essential if entry.essential else self._pending

    def _enqueue(self, entry: EventEntry) -> None:
        self._waiting(entry)[entry] = None
        if self.pending > self._options.capacity:
            oldest = next(iter(self._pending or self._pending_essential))
            self._drop(oldest, "buffer_full")
            if oldest.essential:
                logger.error("event dropped, %d wait already: %s", self.pending, _describe(oldest))
        self._set_limit()
        if not entry.dropped:
            self._submit(entry)

    def _drop(self, entry: EventEntry, reason: str) -> None:
        entry.dropped = True
        self._dropped.labels(reason).inc()
        self._forget(entry)
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _forget(self, entry: EventEntry) -> None:
        self._waiting(entry).pop(entry, None)
        if not self.pending:
            self._drained.set()
        self._set_limit()

    def _set_limit(self) -> None:
        """One request at a time while the program is busy, and one more for each so many events that wait."""
        options = self._options
        gives_way = self._is_busy() and not self._hurries
        limit = min(1 + self.pending // options.backlog_per_writer, options.writers) if gives_way else options.writers
        if limit != self._slots.limit:
            self._slots.limit = limit

    def _submit(self, entry: EventEntry) -> None:
        """Have the event written in its turn; after the present request, if there is one."""
        if entry.is_being_written:
            entry.is_wanted_again = True
        elif not entry.is_in_line:
            entry.is_in_line = True
            self._writers.submit(entry.namespace, entry)

    async def _submit_retries(self) -> None:
        while True:
            entry = await self._retries.get()
            self._retries.done(entry)
            self._submit(entry)

    async def _write_in_turn(self, entry: EventEntry, _: Ticket) -> bool:
        entry.is_in_line, entry.is_being_written = False, True
        try:
            return await self._write(entry) if entry in self._waiting(entry) else True
        finally:
            entry.is_being_written = False
            if entry.is_wanted_again:
                entry.is_wanted_again = False
                self._submit(entry)

    def _not_sent(self, entry: EventEntry, error: UnsentError) -> None:
        entry.is_in_line = False
        self._retry(entry, str(error))

    async def _write(self, entry: EventEntry) -> bool:
        """Whether the server has answered; False for a failure of the server."""
        count = entry.count
        try:
            await self._send(entry)
        except ApiStatusError as error:
            if error.is_already_exists and not entry.written_count:
                # An earlier attempt reached the server, but its response was lost. Repetitions since then are written
                # next.
                entry.written_count = 1
                self._written(entry)
            elif error.is_server_error or error.is_too_many_requests:
                self._retry(entry, str(error), error.retry_after)
                return False
            elif not entry.dropped:
                lack = lack_for_write(error, "write events")
                if lack:
                    self._lack.found(lack)
                else:
                    logger.warning("the server refused the event, it is dropped: %s: %s", _describe(entry), error)
                self._drop(entry, "rejected")
        except MalformedObjectError:
            # The event was written; only the response could not be decoded.
            entry.written_count = count
            self._written(entry)
        except TransportError as error:
            self._retry(entry, str(error))
            return False
        except WriteRefusedError as error:
            logger.info("%s: %s", error, _describe(entry))
            self._drop(entry, "refused")
        except Exception:
            logger.exception("event could not be written: %s", _describe(entry))
            self._drop(entry, "error")
        else:
            self._heartbeat.beat()
            self._lack.is_over()
            entry.written_count = count
            self._written(entry)
        return True

    async def _send(self, entry: EventEntry) -> None:
        if entry.written_count:
            try:
                patch = entry.series_patch()
                await self._client.patch(EVENTS_V1, entry.name, patch, PatchType.STRATEGIC, entry.namespace)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                # The event object expired or was deleted meanwhile.
                entry.written_count = 0
            else:
                self._patched.inc()
                return
        instance = self._instance or f"{entry.key.controller}-{self._host}"
        await self._client.create(EVENTS_V1, entry.encoded(instance[:_INSTANCE_LENGTH]), entry.namespace)
        self._created.inc()

    def _written(self, entry: EventEntry) -> None:
        entry.tries = 0
        if entry.dropped:
            return
        if entry.written_count == 1 and entry.count > 1:
            self._submit(entry)
            return
        self._forget(entry)

    def _retry(self, entry: EventEntry, reason: str, retry_after: float | None = None) -> None:
        if entry.dropped:
            return
        entry.tries += 1
        if entry.tries >= self._options.tries and not entry.essential:
            logger.warning("event given up after %d tries: %s: %s", entry.tries, _describe(entry), reason)
            self._drop(entry, "retries")
            return
        logger.log(logging.WARNING if entry.tries == 1 else logging.DEBUG, "event not written yet: %s", reason)
        pause = max(self._options.pause_after(entry.tries), min(retry_after or 0.0, self._options.retry_maximum))
        self._retries.add_after(entry, pause)

    async def _end_series(self) -> None:
        end, refresh = timedelta(seconds=self._options.series_end), timedelta(seconds=self._options.series_refresh)
        while True:
            # Jittered, because programs that started at the same time would otherwise write their counts at the same
            # time.
            await self._clock.sleep(self._options.series_end * (1 + 0.1 * self._random.random()))
            now = self._clock.now()
            for entry in list(self._entries.values()):
                ended = now - entry.last_observed > end
                if ended:
                    del self._entries[entry.key]
                if entry.written_count != entry.count and (ended or now - entry.refreshed > refresh):
                    entry.refreshed = now
                    self._enqueue(entry)


def _describe(entry: EventEntry) -> str:
    about = entry.key.regarding
    return f"{entry.key.reason} of {about.kind} {about.namespace}/{about.name}: {entry.note}"
