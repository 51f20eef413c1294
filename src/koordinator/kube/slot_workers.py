"""Does work that is submitted in groups, each piece when ``RequestSlots`` say that it is its turn.

What waits for its turn has no task: only requests in flight do, and a task that has ended its work takes the next
piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from koordinator.kube.errors import UnsentError
from koordinator.kube.request_slots import RequestSlots, Ticket

T = TypeVar("T")


class SlotWorkers(Generic[T]):
    """``work`` makes the request of an item, whose ticket it gets, and says whether the server has answered it (see
    ``RequestSlots.give_back``); ``unsent`` is called for an item whose request must not be sent any more. Neither may
    raise. ``run`` must run."""

    def __init__(
        self,
        slots: RequestSlots,
        work: Callable[[T, Ticket], Awaitable[bool]],
        unsent: Callable[[T, UnsentError], None],
        name: str,
    ) -> None:
        self._slots = slots
        self._do = work
        self._unsent = unsent
        self._name = name
        self._tasks: asyncio.TaskGroup | None = None
        self._early: list[Ticket] = []
        """The tickets whose turn it was before ``run``."""
        self._resting: list[asyncio.Future[Ticket]] = []
        """The tasks that wait for the next item: to make one for each costs more than all else here."""
        self._comes_back = False
        """Whether the task that runs takes the next item at once."""
        self._next: Ticket | None = None
        """The one that it takes."""

    def submit(self, group: str, item: T) -> None:
        """Do the work of ``item`` in its turn among those of all groups."""
        self._slots.ask(group, self._on_turn, item)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for ticket in self._early:
                self._on_turn(ticket, None)
            self._early.clear()
            try:
                await self._slots.run()
            finally:
                # A task that is cancelled gives its slot back, and nobody must take it any more.
                self._tasks = None
                self._resting.clear()

    def _on_turn(self, ticket: Ticket, error: UnsentError | None) -> None:
        if error is not None:
            self._unsent(ticket.item, error)
        elif self._comes_back:
            self._comes_back = False
            self._next = ticket
        elif self._resting:
            self._resting.pop().set_result(ticket)
        elif self._tasks is not None:
            self._tasks.create_task(self._work(ticket), name=self._name)
        else:
            self._early.append(ticket)

    async def _work(self, ticket: Ticket) -> None:
        slots, loop = self._slots, asyncio.get_running_loop()
        while True:
            slots.begin(ticket)
            answered = True
            try:
                answered = await self._do(ticket.item, ticket)
                self._comes_back = True
            finally:
                slots.give_back(ticket, answered=answered)
                self._comes_back = False
            if self._next is not None:
                ticket, self._next = self._next, None
                continue
            rest = loop.create_future()
            self._resting.append(rest)
            ticket = await rest
