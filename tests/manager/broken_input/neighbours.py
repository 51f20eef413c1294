"""A node that something is wrong with, and a good one beside it that must not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.manager.broken_input.bench import ManagerBench
from tests.manager.broken_input.documents import BAD

READABLE = (
    "-5",
    "-1e30",
    "1e30",
    "9223372036854775808",
    "99999999999999999999Ei",
    "1e-30",
    "0",
    "1n",
    -5,
    1e30,
    10**30,
)
"""Amounts that can be read and make no sense."""


def run(bench: ManagerBench, story: Callable[[], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with bench.working():
            await story()

    asyncio.run(scenario())


def with_neighbour() -> ManagerBench:
    """A good node and one that something is to be wrong with; both offer 25 CPUs while all is well."""
    bench = ManagerBench()
    bench.configure()
    for name in ("good", BAD):
        bench.add_node(name)
        bench.report(name)
    return bench


def problems(bench: ManagerBench) -> tuple[str, ...]:
    """What ``koord explain node`` says cannot be used."""
    explanation = bench.node_resource.explanations.of(BAD)
    assert explanation is not None
    return explanation.problems


async def neighbour_follows(bench: ManagerBench) -> None:
    await bench.clock.advance(60)
    bench.report("good", "60")
    await bench.until_offered("good", 5_000)


async def corrected(bench: ManagerBench) -> None:
    """Reports of before are forgotten after five minutes without contradictions."""
    for cpu in ("31", "32", "33"):
        await bench.clock.advance(160)
        bench.report(BAD, cpu)
        await bench.until_idle()
    await bench.clock.advance(60)
    bench.report(BAD, "10")
    await bench.until_offered(BAD, 55_000)


def within_bounds(amount: int | None) -> bool:
    return amount is None or 0 <= amount <= 100_000
