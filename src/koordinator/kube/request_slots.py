"""Bounds the requests that are in flight for one kind of work, such that nobody waits for what hangs.

A slot is held while a request is in flight, and for no other reason: who waits, for a back-off or for another object,
gives it back before. Groups, which are namespaces mostly, share the slots. A request without an answer for some seconds
is *overdue*: the API server waits for something itself, such as a webhook. It lends its slot to the next one, for as
long as not too many of its namespace are overdue. The further requests of such a namespace wait aside and go one by
one, in case that it is only some that are not answered; if none of it is answered for half a minute, they fail unsent.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final, TypeVar

import msgspec

from koordinator.base.clock import Clock
from koordinator.kube.errors import ApiStatusError, KubeError, UnsentError

T = TypeVar("T")

_PATIENCE: Final = 2.0
"""Seconds until a request without an answer is overdue."""
_LONGEST_ASIDE: Final = 30.0
"""Seconds until a request that waits aside fails: the longest timeout of a webhook."""
_SWEEP: Final = 0.25
_SHARE: Final = 3
"""A group may have as many overdue requests as this times what all groups have left, so that there is always something
left for a group that has none yet."""
_MOST_STUCK: Final = 4
"""So many requests that should be overdue, and cannot be, lend their slots all the same."""
_RESERVE: Final = 8
"""The part of all overdue requests that those that go one by one leave to others, as a divisor."""


class OverdueRequests:
    """How many requests are overdue and how many may be, over all the slots that share a client's connections."""

    def __init__(self, most: int = 128) -> None:
        self.most = most
        self.count = 0


OnTurn = Callable[["Ticket", UnsentError | None], None]
"""Called once with the ticket whose turn it is, or with the error for which the request must not be sent any more."""


class Ticket(msgspec.Struct, eq=False):
    """One request: it waits for its turn, holds a slot, is overdue, or has ended."""

    group: str
    on_turn: OnTurn
    item: Any = None
    """What the request is about, for ``on_turn``."""
    aside_since: float = inf
    sent_at: float = inf
    """When the client sends the request, in monotonic seconds."""
    is_overdue: bool = False


class RequestSlots:
    """``limit`` requests in flight that are not overdue. ``backlog``: the seconds for which the client itself would
    delay a request now. ``changed`` is called whenever ``pressing`` has become less. ``run`` must run."""

    def __init__(
        self,
        limit: int,
        clock: Clock,
        *,
        overdue: OverdueRequests | None = None,
        backlog: Callable[[], float] = lambda: 0.0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._overdue = overdue or OverdueRequests()
        self._backlog = backlog
        self._changed = changed
        self._held: dict[Ticket, None] = {}
        self._stuck = 0
        """How many of these had no answer for some seconds when that was looked at last, up to _MOST_STUCK."""
        self._waiting: dict[str, dict[Ticket, None]] = {}
        """By group, in the order in which they have their turns."""
        self._waits = 0
        """How many wait."""
        self._aside: dict[str, deque[Ticket]] = {}
        """The requests of groups with too many overdue ones."""
        self._overdue_of: Counter[str] = Counter()
        self._answered_at: dict[str, float] = {}
        """By group, of some of those with overdue requests: when one was answered last."""
        self._somebody_waits = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._admit()

    @property
    def pressing(self) -> int:
        """The number of requests that hold a slot or wait for their turn; not those that are overdue or aside, or that
        wait behind an overdue one of their group."""
        pressing = len(self._held) + self._waits
        if self._waits and self._overdue.count:
            pressing -= sum(len(self._waiting.get(group, ())) for group in self._overdue_of)
        return pressing

    async def room(self) -> None:
        """Wait until nobody waits for a turn."""
        await self._room.wait()

    def ask(self, group: str, on_turn: OnTurn, item: Any = None) -> Ticket:
        """Get in line for a request of ``group``. ``on_turn`` may be called at once. Unless it gets an error, the
        request is begun, and the ticket is given back when it has ended."""
        ticket = Ticket(group, on_turn, item)
        has_room = len(self._held) < self._limit + self._stuck
        if has_room and not self._waiting and not (self._overdue.count and self._must_step_aside(group)):
            self._held[ticket] = None
            on_turn(ticket, None)
            return ticket
        self._line_up(ticket)
        if has_room:
            self._admit()
        return ticket

    def begin(self, ticket: Ticket) -> None:
        """The request is sent now."""
        ticket.sent_at = self._clock.monotonic() + self._backlog()

    async def turn(self, group: str) -> Ticket:
        """Wait until a request of ``group`` may be sent, and begin it. Raises UnsentError."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_turn(_: Ticket, error: UnsentError | None) -> None:
            if waiter.done():
                # Its caller has been cancelled, and has not run since.
                return
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

        ticket = self.ask(group, on_turn)
        try:
            await waiter
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        self.begin(ticket)
        return ticket

    def give_back(self, ticket: Ticket, *, answered: bool) -> None:
        """The request has ended; ``answered``: as it would with a server at rest, not by a failure of the server."""
        if not ticket.is_overdue:
            del self._held[ticket]
            if self._aside:
                if answered:
                    self._answered_at[ticket.group] = self._clock.monotonic()
                self._call_back()
            elif self._waiting:
                self._admit()
            self._changed()
            return
        group = ticket.group
        self._overdue.count -= 1
        self._overdue_of[group] -= 1
        if not self._overdue_of[group]:
            del self._overdue_of[group]
        if answered:
            self._answered_at[group] = self._clock.monotonic()
        self._call_back()
        self._changed()

    async def send(self, group: str, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make one request in its turn. Raises what it raises, and UnsentError."""
        ticket = await self.turn(group)
        answered = True
        try:
            return await request()
        except KubeError as error:
            answered = is_of_the_request(error)
            raise
        finally:
            self.give_back(ticket, answered=answered)

    async def run(self) -> None:
        """Look for overdue requests while somebody waits, until cancelled."""
        while True:
            await self._somebody_waits.wait()
            await self._clock.sleep(_SWEEP)
            self._find_overdue()
            self._expire()
            self._call_back()
            self._changed()
            if not self._waiting and not self._aside:
                self._answered_at.clear()
                self._stuck = 0
                self._somebody_waits.clear()

    def _is_crowded(self, group: str) -> bool:
        """Whether the group has its share of overdue requests, as every group has when nothing is left."""
        overdue = self._overdue
        return overdue.count > 0 and self._overdue_of[group] >= _SHARE * (overdue.most - overdue.count)

    def _must_step_aside(self, group: str) -> bool:
        return self._is_crowded(group) and any(each.group == group for each in self._held)

    def _admit(self) -> None:
        """Let those in front have their turn, or step aside."""
        while self._waiting and len(self._held) < self._limit + self._stuck:
            ticket = next(iter(self._waiting[self._next_group()]))
            group = ticket.group
            self._step_out(ticket)
            if len(self._waiting) > 1 and group in self._waiting:
                # To the end of the line: it is the turn of the others.
                self._waiting[group] = self._waiting.pop(group)
            if self._overdue.count and self._must_step_aside(group):
                ticket.aside_since = min(ticket.aside_since, self._clock.monotonic())
                self._aside.setdefault(group, deque()).append(ticket)
                continue
            self._held[ticket] = None
            ticket.on_turn(ticket, None)
        if not self._waiting:
            self._room.set()

    def _next_group(self) -> str:
        """Of those that wait, the one that holds the fewest slots: what hangs never takes the share of others."""
        if len(self._waiting) == 1:
            return next(iter(self._waiting))
        held = Counter([each.group for each in self._held])
        return min(self._waiting, key=held.__getitem__)

    def _line_up(self, ticket: Ticket) -> None:
        if not self._waiting:
            self._somebody_waits.set()
            self._room.clear()
        self._waiting.setdefault(ticket.group, {})[ticket] = None
        self._waits += 1

    def _step_out(self, ticket: Ticket) -> None:
        of_group = self._waiting[ticket.group]
        del of_group[ticket]
        self._waits -= 1
        if not of_group:
            del self._waiting[ticket.group]

    def _withdraw(self, ticket: Ticket) -> None:
        """Its caller waits no longer, wherever it is."""
        if ticket in self._held:
            self.give_back(ticket, answered=True)
            return
        if ticket in self._waiting.get(ticket.group, ()):
            self._step_out(ticket)
        if ticket in (aside := self._aside.get(ticket.group, deque())):
            aside.remove(ticket)
        self._admit()
        self._changed()

    def _find_overdue(self) -> None:
        sent_by, stuck = self._clock.monotonic() - _PATIENCE, 0
        for ticket in [each for each in self._held if each.sent_at <= sent_by]:
            left = self._overdue.most - self._overdue.count
            if left <= (self._overdue.most // _RESERVE if self._is_crowded(ticket.group) else 0):
                stuck += 1
                continue
            del self._held[ticket]
            ticket.is_overdue = True
            self._overdue.count += 1
            self._overdue_of[ticket.group] += 1
        self._stuck = min(stuck, _MOST_STUCK)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        # Who is told may ask, or change the limit, so that others step aside meanwhile.
        for group, tickets in list(self._aside.items()):
            answered_at = self._answered_at.get(group, -inf)
            for ticket in [each for each in tickets if now - max(each.aside_since, answered_at) >= _LONGEST_ASIDE]:
                tickets.remove(ticket)
                ticket.on_turn(ticket, UnsentError(self._reason(group)))

    def _call_back(self) -> None:
        """Put those back in line whose groups are not crowded any more."""
        for group in list(self._aside):
            if not self._aside[group]:
                del self._aside[group]
            elif not self._is_crowded(group):
                for ticket in self._aside.pop(group):
                    self._line_up(ticket)
            elif not self._must_step_aside(group):
                self._line_up(self._aside[group].popleft())
        self._admit()

    def _reason(self, group: str) -> str:
        whose = f"in namespace {group}" if group else "of objects without a namespace"
        return (
            f"not sent: {self._overdue_of[group]} earlier requests {whose} have no answer yet, and none has got "
            f"one for {_LONGEST_ASIDE:.0f} s; is there a webhook that does not answer?"
        )


def is_of_the_request(error: KubeError) -> bool:
    """Whether the server has answered the request itself: another try would end in the same way."""
    return isinstance(error, ApiStatusError) and not error.is_server_error and not error.is_too_many_requests
