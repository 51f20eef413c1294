"""Does work that is submitted in groups, each piece when ``RequestSlots`` say that it is its turn.

What waits for its turn has no task: only requests in flight do, and a task that has ended its work takes the next
piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
        self._ready: deque[Ticket] = deque()
        self._resting: list[asyncio.Future[None]] = []
        """The tasks that wait for the next item: to make one for each costs more than all else here."""
        self._comes_back = False
        """Whether the task that runs takes the next item at once."""

    def submit(self, group: str, item: T) -> None:
        """Do the work of ``item`` in its turn among those of all groups."""
        self._slots.ask(group, self._on_turn, item)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for _ in self._ready:
                self._wake()
            try:
                await self._slots.run()
            finally:
                # A task that is cancelled gives its slot back, and nobody must take it any more.
                self._tasks = None
                self._resting.clear()

    def _on_turn(self, ticket: Ticket, error: UnsentError | None) -> None:
        if error is not None:
            self._unsent(ticket.item, error)
            return
        self._ready.append(ticket)
        if self._comes_back:
            self._comes_back = False
        else:
            self._wake()

    def _wake(self) -> None:
        if self._resting:
            self._resting.pop().set_result(None)
        elif self._tasks is not None:
            self._tasks.create_task(self._work(), name=self._name)

    async def _work(self) -> None:
        ready, slots, loop = self._ready, self._slots, asyncio.get_running_loop()
        while True:
            while ready:
                ticket = ready.popleft()
                slots.begin(ticket)
                answered = True
                try:
                    answered = await self._do(ticket.item, ticket)
                    self._comes_back = True
                finally:
                    slots.give_back(ticket, answered=answered)
                    self._comes_back = False
            rest = loop.create_future()
            self._resting.append(rest)
            await rest
