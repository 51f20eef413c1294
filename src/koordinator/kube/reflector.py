"""List, then watch, for ever: brings every change of a selection of objects to a sink, whatever the connection does.

A watch that ends or breaks is resumed from the last resourceVersion seen (bookmarks keep that fresh); one that the
server no longer remembers (410) is replaced by a new list, from which the sink works out what had changed meanwhile.
Lists request the newest state, page by page, so that no relist ever travels back in time and no page blocks the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, NoReturn, Protocol, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import Client, ListPage, Malformed, WatchEvent
from koordinator.kube.lacks import Lack, lack_for_kind
from koordinator.kube.object_cache import is_older

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

_YIELD_EVERY = 32
_STALE_LISTS_BEFORE_RESTORE = 3


class HistoryError(KoordinatorError):
    """The server's resourceVersions went back: it lags behind another server, or was restored from a backup."""


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """Which objects: a kind, a namespace ("" is all) and selectors."""

    kind: Kind[T]
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def __str__(self) -> str:
        parts = [self.kind.qualified, self.namespace, self.label_selector, self.field_selector]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """Limits, in seconds but for ``page_size``."""

    page_size: int = 500
    watch_timeout: tuple[float, float] = (300.0, 600.0)
    """Each watch is requested for a random time between these, so that load spreads over servers."""
    watch_grace: float = 30.0
    """A watch that outlives the requested time by so much is stuck, and cut."""
    list_deadline: float = 120.0
    """For one page."""
    short_watch: float = 1.0
    """A watch that ends sooner and brought nothing is a failure."""
    backoff: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(initial=0.8, maximum=15.0, reset_after=30.0))
    absent_recheck: float = 30.0
    """How often a kind that the server does not have is requested again."""


@dataclass(slots=True)
class ReflectorStatistics:
    """Counters since the start, and when the server was last heard."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    last_contact: float = float("-inf")
    """Monotonic seconds of the last page, event, bookmark or orderly end of a watch."""
    last_error: str = ""


class Sink(Protocol[T]):
    """What a reflector feeds. Calls are synchronous and in order."""

    def begin_replace(self, *, authoritative: bool) -> None:
        """A list starts; with ``authoritative`` it overrules versions that look newer (the server was restored)."""

    def replace_page(self, items: Sequence[T], malformed: Sequence[Malformed]) -> None:
        """Objects that exist."""

    def end_replace(self, version: str) -> None:
        """The list, made at ``version``, is complete: what it did not name is gone."""

    def apply(self, event: WatchEvent[T]) -> None:
        """One change (never a BOOKMARK)."""


class Reflector(Generic[T]):
    """Feeds one selection to one sink. ``run`` ends only by cancellation."""

    def __init__(
        self,
        client: Client,
        selection: Selection[T],
        sink: Sink[T],
        *,
        clock: Clock,
        random: Random,
        options: ReflectorOptions | None = None,
        absent_is_empty: bool = False,
    ) -> None:
        self._client = client
        self._selection = selection
        self._sink = sink
        self._clock = clock
        self._random = random
        self._options = options or ReflectorOptions()
        self._absent_is_empty = absent_is_empty
        self._backoff = Backoff(self._options.backoff, clock, random)
        self._version = ""
        self._must_list = True
        self._stale_lists = 0
        self._lack = Lack(str(selection))
        self.statistics = ReflectorStatistics()

    @property
    def resource_version(self) -> str:
        """Everything up to this version has been given to the sink."""
        return self._version

    @property
    def lack(self) -> str:
        """What the cluster lacks for it, in a sentence; empty where nothing is known to be lacking."""
        return self._lack.text

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            try:
                if self._must_list:
                    await self._list()
                    self._must_list = False
                await self._watch()
            except Exception as error:
                # Whatever it was, even a fault of ours: the cache must not silently stop being current.
                await self._clock.sleep(self._pause_after(error))

    def _pause_after(self, error: Exception) -> float:
        """The seconds until the next attempt. They grow from failure to failure until there was none for a while: a
        success in between means little, where lists succeed and each watch expires at once."""
        self.statistics.failures += 1
        self.statistics.last_error = str(error) or type(error).__name__
        if isinstance(error, ApiStatusError):
            listing, self._must_list = self._must_list, True
            if error.is_expired and not listing:
                logger.info("watch of %s expired at %s: listing anew soon", self._selection, self._version)
                return self._backoff.next()
            lack = lack_for_kind(error, self._selection.kind, verb := "list" if listing else "watch")
            if lack:
                self.statistics.last_error = lack
                self._lack.found(lack, verb)
                if error.is_not_found and listing and self._absent_is_empty:
                    self._become_empty()
                    return self._options.absent_recheck
                return self._backoff.next()
        elif not isinstance(error, TransportError | TimeoutError):
            self._must_list = True
            if not isinstance(error, KoordinatorError):
                logger.error("unexpected failure while following %s", self._selection, exc_info=error)
        pause = max(self._backoff.next(), getattr(error, "retry_after", None) or 0.0)
        logger.warning(
            "%s of %s failed, next attempt in %.1fs: %s",
            "list" if self._must_list else "watch",
            self._selection,
            pause,
            self.statistics.last_error,
        )
        return pause

    def _become_empty(self) -> None:
        self._sink.begin_replace(authoritative=True)
        self._sink.end_replace("")
        self._version = ""

    async def _list(self) -> None:
        limit = self._options.page_size
        try:
            await self._list_pages(limit)
        except ApiStatusError as error:
            if not error.is_expired or not limit:
                raise
            # The pages took longer than the server remembers; a single response cannot expire.
            await self._list_pages(0)

    async def _list_pages(self, limit: int) -> None:
        selection, token, first = self._selection, "", True
        self.statistics.lists += 1
        while first or token:
            page = await within(
                self._clock,
                self._options.list_deadline,
                self._client.list(
                    selection.kind,
                    selection.namespace,
                    label_selector=selection.label_selector,
                    field_selector=selection.field_selector,
                    limit=limit,
                    continue_token=token,
                ),
            )
            self.statistics.last_contact = self._clock.monotonic()
            if first:
                self._begin_replace(page.resource_version)
            await self._replace_page(page)
            token, first, version = page.continue_token, False, page.resource_version
        self._sink.end_replace(version)
        self._version = version
        self._lack.is_over("list")

    async def _replace_page(self, page: ListPage[T]) -> None:
        """In parts: the handlers of the objects may take a while for each."""
        for start in range(0, len(page.items), _YIELD_EVERY):
            self._sink.replace_page(page.items[start : start + _YIELD_EVERY], ())
            await asyncio.sleep(0)
        self._sink.replace_page((), page.malformed)

    def _begin_replace(self, version: str) -> None:
        stale = is_older(version, self._version)
        self._stale_lists = self._stale_lists + 1 if stale else 0
        restored = self._stale_lists > _STALE_LISTS_BEFORE_RESTORE
        if stale and not restored:
            raise HistoryError(f"list at {version} is older than {self._version}, which was seen before")
        if restored:
            logger.warning("%s: the server's history went back to %s: accepting it", self._selection, version)
            self._stale_lists = 0
        self._sink.begin_replace(authoritative=restored)

    async def _watch(self) -> None:
        low, high = self._options.watch_timeout
        timeout = self._random.uniform(low, high)
        started, events = self._clock.monotonic(), self.statistics.events
        self.statistics.watches += 1
        await within(self._clock, timeout + self._options.watch_grace, self._consume(int(timeout)))
        self._lack.is_over("watch")
        self.statistics.last_contact = ended = self._clock.monotonic()
        if self.statistics.events == events and ended - started < self._options.short_watch:
            raise TransportError("the watch ended at once without bringing anything")

    async def _consume(self, timeout_seconds: int) -> None:
        selection = self._selection
        events = self._client.watch(
            selection.kind,
            selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            resource_version=self._version,
            timeout_seconds=timeout_seconds,
        )
        try:
            await self._handle_events(events)
        finally:
            # What stops halfway (an error of ours, cancellation) must give the connection back now, not some time.
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def _handle_events(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        sink, statistics, monotonic = self._sink, self.statistics, self._clock.monotonic
        async for event in events:
            statistics.events += 1
            statistics.last_contact = monotonic()
            if event.type == "BOOKMARK":
                self._lack.is_over("watch")
                self._take_bookmark(event.resource_version)
                continue
            sink.apply(event)
            if not is_older(event.resource_version, self._version):
                self._version = event.resource_version
            if not statistics.events % _YIELD_EVERY:
                # A burst that is already in the socket's buffer would otherwise keep the loop to itself.
                await asyncio.sleep(0)

    def _take_bookmark(self, version: str) -> None:
        if is_older(version, self._version):
            raise HistoryError(f"bookmark at {version} is older than {self._version}, which was seen before")
        self._version = version
