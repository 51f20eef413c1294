"""Pods that arrive together, conflicts and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.options import QuotaUpdateOptions
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.manager.webhook.quota_accounts import WAIT_SECONDS, QuotaBatches, retries_for
from tests.model.quota_tree.quota_objects import wire_quota

KEY = "kube-system/a"
CONFLICT = ApiStatusError(409, "Conflict", "the object has been modified")
DOWN = ApiStatusError(500, "InternalError", "no")


class FakeAccounts:
    """One quota of ten CPUs; ``failures`` are raised by writes, in order, ``stolen`` used by others meanwhile."""

    def __init__(self, *failures: ApiStatusError, used: int = 0) -> None:
        self.failures = list(failures)
        self.used = used
        self.stolen = 0
        self.gone = False
        self.writes: list[int] = []
        self.refreshed = 0
        self.gate: asyncio.Event | None = None

    def latest(self, key: str) -> ElasticQuota | None:
        if self.gone:
            return None
        return wire_quota("a", max={"cpu": 10}, annotations={"child-request": {"cpu": self.used}})

    async def write_used(self, quota: ElasticQuota, used: ResourceList) -> None:
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        self.writes.append(used["cpu"].value)
        if self.failures:
            self.used += self.stolen
            raise self.failures.pop(0)
        self.used = used["cpu"].value

    async def refresh(self, key: str) -> None:
        self.refreshed += 1


def cpus(value: int) -> ResourceList:
    return {"cpu": Quantity.from_value(value)}


def batches(accounts: FakeAccounts, clock: ManualClock | None = None, **options: object) -> QuotaBatches:
    given = QuotaUpdateOptions(**options)  # type: ignore[arg-type]
    return QuotaBatches(accounts, given, clock or ManualClock(), Random(1))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(timed())


async def outcomes(counting: QuotaBatches, wanted: Sequence[int]) -> list[str]:
    found = await asyncio.gather(*(counting.count(KEY, cpus(each)) for each in wanted), return_exceptions=True)
    return ["" if each is None else str(each) for each in found]


def test_a_pod_is_counted_before_it_is_admitted() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts(used=3)
        await batches(accounts).count(KEY, cpus(2))
        assert accounts.used == 5

    run(scenario)


def test_pods_that_arrive_during_a_write_share_the_next() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        assert await outcomes(batches(accounts), [1, 2, 3, 4]) == ["", "", "", ""]
        assert accounts.writes == [1, 10]

    run(scenario)


def test_those_that_do_not_fit_are_refused_and_the_others_stay() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        found = await outcomes(batches(accounts), [1, 6, 5, 3])
        assert [bool(each) for each in found] == [False, False, True, False]
        assert accounts.used == 10

    run(scenario)


def test_a_pod_of_which_nothing_counts_costs_no_write() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        await batches(accounts).count(KEY, {"memory": Quantity.from_value(1)})
        assert accounts.writes == []

    run(scenario)


def test_after_a_conflict_it_counts_anew() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts(CONFLICT, used=2)
        accounts.stolen = 2
        await batches(accounts).count(KEY, cpus(5))
        assert accounts.writes == [7, 9]

    run(scenario)


def test_what_others_took_meanwhile_can_be_too_much() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts(CONFLICT, used=2)
        accounts.stolen = 4
        with pytest.raises(QuotaRefused, match="requested: cpu=5, used: cpu=6, limited: cpu=10"):
            await batches(accounts).count(KEY, cpus(5))

    run(scenario)


def test_it_gives_up_after_three_retries_with_the_error() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts(*[DOWN] * 9)
        with pytest.raises(ApiStatusError):
            await batches(accounts, max_retries=10).count(KEY, cpus(1))
        assert len(accounts.writes) == 4

    run(scenario)


@pytest.mark.parametrize(("pods", "retries"), [(0, 3), (1, 3), (2, 4), (3, 4), (4, 5), (127, 9), (128, 10), (9999, 10)])
def test_more_pods_are_worth_more_retries(pods: int, retries: int) -> None:
    assert retries_for(pods, 10) == retries
    assert retries_for(pods, 0) == 3


def test_a_quota_that_is_gone_takes_nobody() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        accounts.gone = True
        with pytest.raises(QuotaRefused, match="elastic quota kube-system/a not found"):
            await batches(accounts).count(KEY, cpus(1))

    run(scenario)


def test_it_reads_anew_after_a_conflict_where_it_is_told_to() -> None:
    async def scenario() -> None:
        for fresh in (False, True):
            accounts = FakeAccounts(CONFLICT, DOWN)
            await batches(accounts, conflict_fresh_get=fresh).count(KEY, cpus(1))
            assert accounts.refreshed == int(fresh)

    run(scenario)


def test_pauses_stay_within_their_total() -> None:
    async def scenario() -> None:
        accounts, clock = FakeAccounts(*[CONFLICT] * 3), ManualClock()
        jitter = {"retry_jitter": timedelta(seconds=1), "max_total_jitter": timedelta(seconds=2)}
        counting = asyncio.create_task(batches(accounts, clock, **jitter).count(KEY, cpus(1)))
        started = clock.monotonic()
        while not counting.done():
            await clock.advance(0.125)
            await asyncio.sleep(0)
        await counting
        assert 1.0 <= clock.monotonic() - started <= 2.5

    run(scenario)


def test_a_write_that_hangs_refuses_after_ten_seconds_and_lets_the_next_try() -> None:
    async def scenario() -> None:
        accounts, clock = FakeAccounts(), ManualClock()
        accounts.gate = asyncio.Event()
        counting = batches(accounts, clock)
        first = asyncio.create_task(counting.count(KEY, cpus(1)))
        await asyncio.sleep(0)
        await clock.advance(WAIT_SECONDS - 1)
        second = asyncio.create_task(counting.count(KEY, cpus(2)))
        await asyncio.sleep(0)
        await clock.advance(1)
        with pytest.raises(QuotaRefused, match="elastic quota evaluation timed out"):
            await first
        accounts.gate.set()
        await second
        assert accounts.writes == [2]

    run(scenario)


def test_whoever_is_counted_along_goes_on_when_the_one_who_counts_gives_up() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        accounts.gate = asyncio.Event()
        counting = batches(accounts)
        tasks = [asyncio.create_task(counting.count(KEY, cpus(each))) for each in (1, 2, 3)]
        for _ in range(5):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        accounts.gate.set()
        await asyncio.gather(*tasks[1:])
        assert accounts.used == 5

    run(scenario)


def test_whoever_gave_up_is_not_counted_by_the_next() -> None:
    async def scenario() -> None:
        accounts = FakeAccounts()
        accounts.gate = asyncio.Event()
        counting = batches(accounts)
        tasks = [asyncio.create_task(counting.count(KEY, cpus(each))) for each in (1, 2, 3)]
        for _ in range(5):
            await asyncio.sleep(0)
        for task in (tasks[1], tasks[0]):
            task.cancel()
        await asyncio.gather(*tasks[:2], return_exceptions=True)
        accounts.gate.set()
        await tasks[2]
        assert accounts.used == 3

    run(scenario)


@given(st.lists(st.integers(0, 6), max_size=12), st.lists(st.sampled_from([CONFLICT, DOWN]), max_size=6))
def test_what_is_admitted_is_what_is_stored(wanted: list[int], failures: list[ApiStatusError]) -> None:
    async def scenario() -> None:
        accounts = FakeAccounts(*failures)
        found = await outcomes(batches(accounts), wanted)
        admitted = sum(each for each, refusal in zip(wanted, found, strict=True) if not refusal)
        assert accounts.used == admitted <= 10

    run(scenario)
