"""Many electors, an unreliable server and unreliable clocks: never two leaders at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElector
from koordinator.kube.leader_election_config import LeaderElectionConfig
from tests.examples import examples
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_client import as_client


class OffsetClock:
    """Another machine's clocks: both are off, and the wall clock jumps."""

    def __init__(self, base: ManualClock, random: Random) -> None:
        self._base = base
        self._random = random
        self._monotonic_offset = random.uniform(0, 1e6)

    def now(self) -> datetime:
        return self._base.now() + timedelta(seconds=self._random.uniform(-3600, 3600))

    def monotonic(self) -> float:
        return self._base.monotonic() + self._monotonic_offset

    async def sleep(self, seconds: float) -> None:
        await self._base.sleep(seconds)


class UnreliableClient:
    """Requests travel, are carried out even when their sender gave up, and their responses get lost."""

    def __init__(self, server: Client, clock: ManualClock, random: Random, tasks: asyncio.TaskGroup) -> None:
        self._server = server
        self._clock = clock
        self._random = random
        self._tasks = tasks
        self.cut_until = 0.0

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._serve(verb, arguments, response))
            return await response

        return call

    async def _serve(self, verb: str, arguments: Any, response: asyncio.Future[Any]) -> None:
        if self._clock.monotonic() < self.cut_until or self._random.random() < 0.1:
            return _settle(response, TransportError("lost on the way there"))
        await self._travel()
        try:
            result = await getattr(self._server, verb)(*arguments)
        except Exception as error:
            result = error
        await self._travel()
        lost = self._random.random() < 0.1
        return _settle(response, TransportError("lost on the way back") if lost else result)

    async def _travel(self) -> None:
        slow = self._random.random() < 0.1
        await self._clock.sleep(self._random.uniform(2, 7) if slow else self._random.uniform(0, 0.2))


def _settle(response: asyncio.Future[Any], result: Any) -> None:
    if response.done():
        return
    if isinstance(result, Exception):
        response.set_exception(result)
    else:
        response.set_result(result)


class Simulation:
    """``leaders`` holds those whose work runs."""

    def __init__(self, seed: int, electors: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.server = InMemoryApi(self.clock).client()
        self.leaders: set[str] = set()
        self.terms = 0
        self.electors = electors

    async def run(self, minutes: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._machine(f"elector-{n}", tasks)) for n in range(self.electors)]
            await self.clock.advance(60.0 * minutes)
            for task in running:
                task.cancel()
            await self.clock.advance(60.0)

    async def _machine(self, identity: str, tasks: asyncio.TaskGroup) -> None:
        client = UnreliableClient(self.server, self.clock, self.random, tasks)
        tasks_of_machine = (self._elect(identity, client), self._cut(client))
        async with asyncio.TaskGroup() as own:
            for work in tasks_of_machine:
                own.create_task(work)

    async def _cut(self, client: UnreliableClient) -> None:
        while True:
            await self.clock.sleep(self.random.uniform(5, 40))
            client.cut_until = self.clock.monotonic() + self.random.choice([5, 30, 30])

    async def _elect(self, identity: str, client: UnreliableClient) -> None:
        clock = OffsetClock(self.clock, self.random)
        while True:
            release = self.random.random() < 0.5
            # As close to the lease's duration as can be: what is wrong by a second shows.
            config = LeaderElectionConfig(
                "lease", "koordinator-system", identity, renew_deadline=14.5, release_on_cancel=release
            )
            elector = LeaderElector(as_client(client), config, clock=clock, random=self.random)
            await elector.run(lambda: self._work(identity))

    async def _work(self, identity: str) -> None:
        assert not self.leaders, f"{identity} leads beside {self.leaders}"
        self.leaders.add(identity)
        self.terms += 1
        try:
            await self.clock.sleep(self.random.choice([20, 1e9, 1e9]))
        finally:
            self.leaders.remove(identity)


@settings(max_examples=examples(6), deadline=None)
@given(st.integers(0, 1_000_000), st.integers(2, 4))
def test_never_two_leaders_at_once(seed: int, electors: int) -> None:
    simulation = Simulation(seed, electors)
    asyncio.run(simulation.run(minutes=4))
    assert simulation.terms > 0
