"""Background work gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.yielding import CooperativeYielding
from koordinator.kube.reconciler import Reconciler, Reconcilers

SLICE = 1.0


class WorkClock(ManualClock):
    """Stands still but for what work takes."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = 0.0

    def monotonic(self) -> float:
        return self.spent


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(timed())


async def rounds_of(clock: WorkClock, longest: list[float]) -> None:
    """Notes what each round of the loop spent on work."""
    while True:
        before = clock.spent
        await asyncio.sleep(0)
        longest.append(clock.spent - before)


def reconciled(controllers: int, keys: int, workers: int, cost: float) -> tuple[list[tuple[int, int]], list[float]]:
    """What was worked on, in order, and the work in each round of the loop, when no reconcile ever waits."""
    done: list[tuple[int, int]] = []
    spent: list[float] = []

    async def scenario() -> None:
        clock, finished = WorkClock(), asyncio.Event()
        reconcilers = Reconcilers(clock, Metrics(), "reconcile_total", slice_seconds=SLICE)

        def make(controller: int) -> Reconciler[int]:
            async def reconcile(key: int) -> None:
                clock.spent += cost
                done.append((controller, key))
                if len(done) == controllers * keys:
                    finished.set()

            return reconcilers.make(f"controller-{controller}", reconcile, lambda: range(keys), workers=workers)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(rounds_of(clock, spent))]
            running += [tasks.create_task(make(number).run()) for number in range(controllers)]
            await finished.wait()
            for task in running:
                task.cancel()

    run(scenario)
    return done, spent


def test_work_that_never_waits_leaves_the_loop_after_each_slice() -> None:
    done, spent = reconciled(controllers=3, keys=50, workers=4, cost=0.3)
    assert sorted(done) == [(controller, key) for controller in range(3) for key in range(50)]
    assert max(spent) <= SLICE + 0.3


def test_a_piece_longer_than_a_slice_is_alone_in_its_round() -> None:
    _, spent = reconciled(controllers=2, keys=10, workers=2, cost=5.0)
    assert max(spent) == 5.0


def test_controllers_take_turns() -> None:
    done, _ = reconciled(controllers=2, keys=50, workers=1, cost=SLICE)
    assert {controller for controller, _ in done[:4]} == {0, 1}


def test_whoever_is_cancelled_while_waiting_does_not_hold_up_the_others() -> None:
    async def scenario() -> None:
        clock = WorkClock()
        yielding = CooperativeYielding(clock, SLICE)

        async def take() -> None:
            await yielding.checkpoint()
            clock.spent += SLICE

        for _ in range(2):
            waiting = [asyncio.ensure_future(take()) for _ in range(4)]
            await asyncio.sleep(0)
            for index in (0, 2):
                waiting[index].cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 2

    run(scenario)
