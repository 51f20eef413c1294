"""The page of metrics is rendered for all who request it at the same time, and not all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.metrics_page import MetricsPage
from tests.waiting import wait_for

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class SlowClock(ManualClock):
    """A clock on which a rendering takes two seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.spent


class Counting(Collector):
    """How often a page was rendered."""

    def __init__(self, clock: SlowClock) -> None:
        self.clock = clock
        self.rendered = 0

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        self.rendered += 1
        self.clock.spent += 2
        return [GaugeMetricFamily("renderings", "So many times.", self.rendered)]


def made() -> tuple[SlowClock, Counting, MetricsPage]:
    clock, metrics = SlowClock(), Metrics()
    counting = Counting(clock)
    metrics.register(counting)
    return clock, counting, MetricsPage(metrics, clock)


def test_those_who_request_it_at_the_same_time_share_it() -> None:
    async def scenario() -> None:
        _, counting, page = made()
        pages = await asyncio.gather(*(page.rendered("") for _ in range(40)))
        assert counting.rendered == 1
        assert all(b"renderings 1.0" in body for body, _ in pages)

    asyncio.run(scenario())


def test_the_next_one_is_put_off_and_shows_what_was_then() -> None:
    async def scenario() -> None:
        clock, counting, page = made()
        await page.rendered("")
        later = [asyncio.create_task(page.rendered(accept)) for accept in ("", "", OPEN_METRICS)]
        await wait_for(lambda: clock.sleepers == 2)
        await clock.advance(5)
        assert counting.rendered == 1
        await clock.advance(1)
        await wait_for(later[0].done)
        assert (counting.rendered, later[2].done()) == (2, False)
        await clock.advance(6)
        assert b"renderings 2.0" in (await later[1])[0]
        assert (await later[2])[1].startswith("application/openmetrics-text")
        assert counting.rendered == 3

    asyncio.run(scenario())


def test_who_goes_away_takes_it_from_nobody() -> None:
    async def scenario() -> None:
        _, _, page = made()
        first, second = (asyncio.create_task(page.rendered("")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert b"renderings" in (await second)[0]

    asyncio.run(scenario())
