"""Handlers that fail on an object: told of it again, as it is then, and as a change of what they knew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from koordinator.api.pod import Pod
from koordinator.kube.handlers import TRIES
from tests.kube.fake_client import ScriptedClient, page
from tests.kube.informer_log import Bench, EventLog, pod


class Failing(EventLog):
    """Fails as long as it is ``broken``, and writes down what it was told when it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = True
        self.failures = 0

    def _reported(self) -> None:
        if self.broken:
            self.failures += 1
            raise RuntimeError("disk full")

    def on_add(self, obj: Pod, initial: bool, /) -> None:  # type: ignore[override]
        self._reported()
        super().on_add(obj, initial)

    def on_update(self, old: Pod, new: Pod) -> None:  # type: ignore[override]
        self._reported()
        super().on_update(old, new)

    def on_delete(self, obj: Pod) -> None:  # type: ignore[override]
        self._reported()
        super().on_delete(obj)


def one_pod() -> ScriptedClient:
    client = ScriptedClient()
    client.lists.append(page(pod("a", 1), version=1))
    return client


async def reported(*changes: Callable[[Bench, Failing], None], broken_at_first: bool) -> tuple[list[str], list[str]]:
    """What a handler that fails during ``changes`` has noted at the end, and what another one has."""
    bench, failing = Bench(one_pod()), Failing()
    failing.broken = broken_at_first
    bench.informer.add_handlers(
        name="failing", on_add=failing.on_add, on_update=failing.on_update, on_delete=failing.on_delete
    )
    running = asyncio.create_task(bench.informer.run())
    await bench.clock.advance(0)
    failing.broken = True
    for change in changes:
        change(bench, failing)
    failing.broken = False
    await bench.clock.advance(2)
    noted = list(failing.lines)
    await bench.clock.advance(600)
    assert failing.lines == noted
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return noted, bench.log.lines


def modify(version: int, *, works: bool = False) -> Callable[[Bench, Failing], None]:
    def change(bench: Bench, failing: Failing) -> None:
        failing.broken = not works
        cache = bench.informer.cache
        old = cache.store.get("default/a")
        new = pod("a", version)
        cache.store.put("default/a", new)
        cache.handlers.updated("default/a", old or new, new)

    return change


def delete(bench: Bench, failing: Failing) -> None:
    failing.broken = True
    cache = bench.informer.cache
    old = cache.store.remove("default/a")
    assert old is not None
    cache.handlers.deleted("default/a", old)


@pytest.mark.parametrize(
    ("changes", "knows_it", "expected"),
    [
        ((), False, ["+a@1*"]),
        ((modify(2),), False, ["+a@2*"]),
        ((modify(2, works=True),), False, ["+a@2*"]),
        ((delete,), False, ["-a@1"]),
        ((modify(2),), True, ["+a@1*", "a@1>2"]),
        ((modify(2), modify(3)), True, ["+a@1*", "a@1>3"]),
        ((modify(2), modify(3, works=True)), True, ["+a@1*", "a@1>3"]),
        ((modify(2), delete), True, ["+a@1*", "-a@2"]),
        ((delete,), True, ["+a@1*", "-a@1"]),
    ],
)
def test_it_is_told_of_the_change_from_what_it_knew(
    changes: tuple[Callable[[Bench, Failing], None], ...], knows_it: bool, expected: list[str]
) -> None:
    noted, others = asyncio.run(reported(*changes, broken_at_first=not knows_it))
    assert noted == expected
    assert len(others) == 1 + len(changes)


def test_it_is_reported_a_limited_number_of_times_and_complains_twice(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> int:
        bench, failing = Bench(one_pod()), Failing()
        bench.informer.add_handlers(name="failing", on_add=failing.on_add)
        running = asyncio.create_task(bench.informer.run())
        await bench.clock.advance(3600)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return failing.failures

    assert asyncio.run(run()) == 1 + TRIES
    assert [record.message for record in caplog.records if "failing" in record.message] == [
        "handler failing failed on Pod default/a",
        f"handler failing failed on Pod default/a {TRIES} more times and is not notified again before its next change",
    ]
