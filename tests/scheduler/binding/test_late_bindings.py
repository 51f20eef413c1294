"""A binding that takes longer than its deadline: said by the health check, counted, and never cancelled."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from koordinator.base.clock import ManualClock
from koordinator.scheduler.binding.binder import DEADLINE, Binder, Outcome, Result
from tests.kube.fake_client import as_client
from tests.scheduler.fakes import make_pod


class SlowServer:
    """Answers once ``answer`` is set."""

    def __init__(self) -> None:
        self.response = asyncio.Event()

    def once(self) -> SlowServer:
        return self

    def backlog(self) -> float:
        return 0.0

    async def create(self, *_: Any, **__: Any) -> None:
        await self.response.wait()


def binding() -> Any:
    """As much of one as the binder reads."""
    times = SimpleNamespace(begin=lambda: 0.0, end=lambda *_: None)
    pod = SimpleNamespace(key="default/p", pod=make_pod("p"))
    return SimpleNamespace(
        annotations={}, placement=SimpleNamespace(pod=pod, node_name="n"), engine=SimpleNamespace(times=times)
    )


def test_a_late_binding_is_named_until_it_ends() -> None:
    async def scenario() -> None:
        clock, server, nodes = ManualClock(), SlowServer(), SimpleNamespace(has_node=lambda name: True)
        outcomes: list[Outcome] = []
        seconds: list[float] = []
        binder = Binder(
            as_client(server),
            nodes,
            lambda _, outcome: outcomes.append(outcome),
            lambda: None,
            seconds.append,
            clock=clock,
            random=Random(1),
        )
        running = asyncio.create_task(binder.run())
        binder.submit(binding())
        await clock.advance(DEADLINE)
        assert binder.check() == ""
        await clock.advance(1)
        assert binder.check() == f"1 bindings have been under way for up to {DEADLINE + 1:.0f}s"
        server.response.set()
        await binder.idle()
        assert (binder.check(), seconds) == ("", [DEADLINE + 1])
        assert [outcome.result for outcome in outcomes] == [Result.BOUND]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
