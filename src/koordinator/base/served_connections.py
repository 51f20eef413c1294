"""The connections to the servers of a program: how many there may be, how long each of them may take, and which one is
closed when there is no room for another.

A client that connects and says nothing costs a file and memory for as long as it likes, and it needs no credentials for
that; enough of them keep all others out. So whoever sends requests comes before whoever does not: when a server is
full, the connection that has waited longest for its client is closed for the new one. A connection whose request is
being worked on, such as a watch, is never closed for another.

There is no limit for one address: API servers behind a proxy or a tunnel share one.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from enum import StrEnum
from math import inf
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.base.said_once import Bursts
from koordinator.base.server_limits import OLDEST_SAMPLE_SECONDS, SLOWEST, STALLED_SECONDS, ServerLimits
from koordinator.base.time_limits import Limit, TimeLimits

logger = logging.getLogger(__name__)

_MOST_RESERVED_FILES: Final = 256


class Reason(StrEnum):
    """Why a connection was closed: the label of the metric, and the words of the log line."""

    ENDED = "ended"
    HANDSHAKE = "handshake"
    HEADER = "header"
    BODY = "body"
    IDLE = "idle"
    RESPONSE = "response"
    ROOM = "room"
    FILES = "files"
    MALFORMED = "malformed"
    CALL = "call"
    """Not the connection was closed: one of many requests on it has failed."""


_WORDS: Final = {
    Reason.HANDSHAKE: "no first byte and TLS handshake in time, or a handshake that failed",
    Reason.HEADER: "no complete request header in time",
    Reason.BODY: "no complete request body in time",
    Reason.RESPONSE: "its client did not read the response in time",
    Reason.ROOM: "there was no room for another, and of all it had waited longest for its client",
    Reason.FILES: "the process has hardly any file descriptors left",
    Reason.MALFORMED: "what its client sent is not HTTP",
    Reason.CALL: "no complete request in time",
}
"""Of the reasons that are worth a log line; the other two are what clients do all day."""


class ServedConnection:
    """One connection, and what it is doing: waiting for a request, busy with one, or idle between two."""

    __slots__ = (
        "_late",
        "_limit",
        "_pool",
        "_reason",
        "_seen",
        "_seen_at",
        "_state",
        "address",
        "drop",
        "is_known",
        "progress",
    )

    def __init__(self, pool: ServedConnections, address: str, drop: Callable[[], object]) -> None:
        self._pool = pool
        self._limit = Limit(self._expire)
        self._late: Callable[[], object] | None = None
        self._reason = Reason.HANDSHAKE
        self._state: dict[ServedConnection, None] | None = None
        self._seen: int | None = None
        self._seen_at = 0.0
        self.address = address
        self.is_known = False
        """Whether the client has shown a certificate: of those with a request, it is closed after all others."""
        self.drop = drop
        """Closes it at once; what has not been sent is lost."""
        self.progress: Callable[[], int | None] = _nothing
        """While it is busy: a number that grows by one with each byte that the client reads or writes; None if it is
        not the client that is waited for."""

    @property
    def is_open(self) -> bool:
        return self._state is not None

    @property
    def limits(self) -> ServerLimits:
        return self._pool.limits

    @property
    def is_idle(self) -> bool:
        return self._state is self._pool.idle

    def await_handshake(self) -> None:
        """It has been accepted."""
        self._state = self._pool.waiting
        self._state[self] = None
        self._pool.time_limits.add(self._limit)
        self._within(self._pool.limits.handshake, Reason.HANDSHAKE)

    def hear(self) -> None:
        """The first byte is here, and the server is to move next: others have waited longer for their clients."""
        self._move(self._pool.waiting)

    def await_header(self) -> None:
        """The handshake is done, or a later request has begun: the rest of its header is to come."""
        self._move(self._pool.waiting)
        self._within(self._pool.limits.header, Reason.HEADER)

    def begin(self) -> None:
        """The header is there. How long the request may take from here on is its handler's affair."""
        self._move(self._pool.busy)
        self._limit.at = inf

    def await_body(self, late: Callable[[], object]) -> None:
        """The rest of the body is to come. ``late`` is called if it does not: then the request fails, and its
        connection ends with the response."""
        self._late = late
        self._seen = None
        self._within(self._pool.limits.body, Reason.BODY)

    def work(self) -> None:
        """The body is there."""
        if self._late is not None:
            self._late = None
            self._limit.at = inf

    def deliver(self, size: int) -> None:
        """A response of ``size`` bytes is to be read by the client."""
        self._late = None
        self._seen = None
        self._within(self._pool.limits.reading(size), Reason.RESPONSE)

    def rest(self, *, is_complete: bool) -> None:
        """The response is sent, though the body of its request may not have come completely."""
        self._move(self._pool.idle)
        limits = self._pool.limits
        self._within(limits.idle if is_complete else limits.body, Reason.IDLE)

    def follow(self, *, has_requests: bool, is_cut: bool) -> None:
        """After each step of a protocol with many requests at once: whether any is in progress; if not, whether the
        client has begun to send something that is not complete."""
        if has_requests:
            if self._state is not self._pool.busy:
                self.begin()
        elif not is_cut:
            if not self.is_idle:
                self.rest(is_complete=True)
        elif self._state is not self._pool.waiting:
            self.await_header()

    def limit(self, late: Callable[[], object], seconds: float) -> Limit:
        """Of one of many requests: ``late`` is called if the client has not moved on in time; the others go on."""
        limit = Limit(late)
        self._pool.time_limits.add(limit)
        self._pool.time_limits.extend(limit, seconds)
        return limit

    def lift(self, limit: Limit) -> None:
        """The client has moved on."""
        self._pool.time_limits.remove(limit)

    def complain(self, reason: Reason) -> None:
        """Log that it is about to be closed."""
        self._pool.complain(self, reason)

    def close(self, reason: Reason) -> None:
        """Close it from this side."""
        if self._state is not None:
            drop = self.drop
            self.closed(reason)
            drop()

    def closed(self, reason: Reason = Reason.ENDED) -> None:
        """It has been closed, by the client or after a response that says so."""
        if self._state is not None:
            self._pool.time_limits.remove(self._limit)
            self._leave(self._state)
            self._state = None
            self._pool.forget(self, reason)
            # What it leads to leads back to it, with 50 KiB of TLS, which the garbage collector would come to late.
            self.drop, self.progress, self._late, self._limit.expire = _nothing, _nothing, None, _nothing

    def is_stalled(self, now: float) -> bool:
        """Whether its client has hardly moved since the last look, a second ago or more."""
        seen, before, elapsed = self.progress(), self._seen, now - self._seen_at
        if seen is None or before is None or elapsed > OLDEST_SAMPLE_SECONDS:
            self._seen, self._seen_at = seen, now
            return False
        if elapsed < STALLED_SECONDS:
            return False
        if seen - before < SLOWEST * elapsed:
            return True
        self._seen, self._seen_at = seen, now
        return False

    def _move(self, state: dict[ServedConnection, None]) -> None:
        if self._state is not None:
            self._leave(self._state)
            self._state = state
            self._seen = None
            state[self] = None
            self._pool.entered(state)

    def _leave(self, state: dict[ServedConnection, None]) -> None:
        del state[self]
        self._pool.left(state)

    def _within(self, seconds: float, reason: Reason) -> None:
        self._reason = reason
        self._pool.time_limits.extend(self._limit, seconds)

    def _expire(self) -> None:
        late, self._late = self._late, None
        if late is None:
            self.close(self._reason)
            return
        self._limit.at, self._limit.expired = inf, False
        self._pool.time_limits.add(self._limit)
        self.complain(self._reason)
        late()


class ServedConnections:
    """The connections of one server, each of them in one of three states; oldest first."""

    def __init__(self, listener: str, limits: ServerLimits, program: ProgramConnections) -> None:
        self.listener = listener
        self.limits = limits
        self.waiting: dict[ServedConnection, None] = {}
        """For their first request, or for the rest of the header of a later one."""
        self.idle: dict[ServedConnection, None] = {}
        self.busy: dict[ServedConnection, None] = {}
        self.quiet = asyncio.Event()
        """Set while no connection is busy."""
        self.quiet.set()
        self.room_made: Callable[[], None] | None = None
        """Called when a connection was closed or has become idle."""
        self.time_limits = TimeLimits(program.clock)
        self._program = program
        self._open = program.open.labels(listener)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.idle) + len(self.busy)

    def open(self, address: str, drop: Callable[[], object]) -> ServedConnection:
        """A connection that has been accepted."""
        connection = ServedConnection(self, address, drop)
        connection.await_handshake()
        self._open.inc()
        return connection

    @property
    def is_full(self) -> bool:
        return len(self) >= self.limits.connections

    def make_room(self) -> bool:
        """Whether one more connection may come; another one is closed for it if need be."""
        return not self.is_full or self.close_one(Reason.ROOM)

    def close_one(self, reason: Reason) -> bool:
        """Close the connection that is needed least. False if each is needed."""
        found = self._least_needed()
        if found is not None:
            found.close(reason)
        return found is not None

    def close_all(self) -> None:
        """The server has ended."""
        self._program.leave(self)
        for connection in [*self.waiting, *self.idle, *self.busy]:
            connection.close(Reason.ENDED)

    def complain(self, connection: ServedConnection, reason: Reason) -> None:
        self._program.complain(self.listener, connection.address, reason)

    def entered(self, state: dict[ServedConnection, None]) -> None:
        if state is self.busy:
            self.quiet.clear()
        elif state is self.idle:
            self._announce_room()

    def left(self, state: dict[ServedConnection, None]) -> None:
        if state is self.busy and not state:
            self.quiet.set()

    def forget(self, connection: ServedConnection, reason: Reason) -> None:
        self._open.dec()
        self._program.closed.labels(self.listener, reason).inc()
        self.complain(connection, reason)
        self._announce_room()

    def may_use(self, descriptor: int) -> bool:
        return self._program.may_use(descriptor)

    def free_descriptor(self) -> bool:
        return self._program.free_descriptor()

    def _announce_room(self) -> None:
        if self.room_made is not None:
            self.room_made()

    def _least_needed(self) -> ServedConnection | None:
        """Beyond the reserve, the one that has waited longest for a request; else the one that was idle longest; if
        none is, one whose client hardly sends the rest of its request or reads its response. One of a known client goes
        after all of these. Those within the reserve go last: a newcomer is unknown until its handshake is done, and
        would otherwise be closed for the next one."""
        now = self._program.clock.monotonic()
        states = (self.waiting, self.idle) if len(self.waiting) > self.limits.reserve else (self.idle,)
        stalled = None
        for is_known in (False, True):
            for state in states:
                found = next((each for each in state if each.is_known is is_known), None)
                if found is not None:
                    return found
            if stalled is None:
                stalled = [each for each in self.busy if each.is_stalled(now)]
            found = next((each for each in stalled if each.is_known is is_known), None)
            if found is not None:
                return found
        return min(self.waiting, key=lambda each: each.is_known, default=None)


class ProgramConnections:
    """The connections to all servers of a program, which share its file descriptors."""

    def __init__(self, metrics: Metrics, clock: Clock, *, most_files: int | None = None) -> None:
        self.clock = clock
        self.open = metrics.gauge(
            "koordinator_server_connections", "Open connections to a port or a socket.", ("port",)
        )
        self.closed = metrics.counter(
            "koordinator_server_closed_connections_total",
            "Connections to a port or a socket that were closed, by reason; ended and idle are the ordinary ones.",
            ("port", "reason"),
        )
        self._files = _usable_files() if most_files is None else most_files
        self._pools: list[ServedConnections] = []
        self._bursts = Bursts(clock)

    def serve(self, listener: str, limits: ServerLimits) -> ServedConnections:
        """The connections of one more server; ``listener`` is the number of its port, or the path of its socket."""
        pool = ServedConnections(listener, limits, self)
        self._pools.append(pool)
        return pool

    def leave(self, pool: ServedConnections) -> None:
        """A server has ended."""
        if pool in self._pools:
            self._pools.remove(pool)

    def may_use(self, descriptor: int) -> bool:
        """Whether a connection may have this file descriptor; one of another connection is freed if need be.

        The kernel gives out the lowest free number, so a high one says that almost all are in use, by whatever. The
        rest is for files, and for connections that the program itself opens.
        """
        return descriptor < self._files or self.free_descriptor()

    def free_descriptor(self) -> bool:
        """Close the connection that is needed least, at the server that has most. False if all are needed."""
        pools = sorted(self._pools, key=len, reverse=True)
        return any(pool.close_one(Reason.FILES) for pool in pools)

    def complain(self, listener: str, address: str, reason: Reason) -> None:
        """Log the first of a burst with its address."""
        words = _WORDS.get(reason)
        if words is None or (more := self._bursts.unsaid((listener, reason))) is None:
            return
        since = f" ({more} more since the last such line)" if more else ""
        where = f"port {listener}" if listener.isdigit() else listener
        event = "has lost a call" if reason is Reason.CALL else "is closed"
        logger.warning("%s: a connection from %s %s: %s%s", where, address, event, words, since)


def _usable_files() -> int:
    """The file descriptors that connections may have: all but a quarter, or 256 of many."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return 1 << 31
    return files - min(files // 4, _MOST_RESERVED_FILES)


def _nothing() -> None:
    """What a connection does that is at work, and one that has been closed."""
