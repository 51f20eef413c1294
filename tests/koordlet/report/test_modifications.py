"""What koordlet hands to the audit of what it does again and again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.modification import RESIZED, SUPPRESSED, Cause, Modification, decode_record
from koordinator.base.clock import ManualClock
from koordinator.koordlet.report.modifications import PERIOD, Summary
from koordinator.kube.event_series import EVENTS_V1
from tests.koordlet.suppressed_node import SuppressedNode

HELD = Cause(code="cfsQuota", text="65 % of 8 CPUs")


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.records: list[tuple[float, Modification]] = []
        self.summary = Summary(self.clock, self.record, SUPPRESSED, "BECPUSuppress")

    def record(self, modification: Modification) -> None:
        self.records.append((self.clock.monotonic(), modification))

    def go_on(self, minutes: float, cpus: float | None = None, pod: str = "shop/job") -> None:
        """For so long the pod is held down to so many CPUs, or not at all."""
        for _ in range(int(minutes * 60 / PERIOD)):
            if cpus is not None:
                self.summary.add(HELD, [pod], {"cpus": cpus}, changes=1)
            self.summary.record_if_due()
            asyncio.run(self.clock.advance(PERIOD))

    @property
    def minutes(self) -> list[float]:
        return [round(at / 60, 1) for at, _ in self.records]


def test_what_lasts_is_recorded_when_it_begins_and_every_hour() -> None:
    bench = Bench()
    bench.go_on(150, 2.0)
    assert bench.minutes == [0.0, 60.0, 120.0]


def test_what_comes_and_goes_is_recorded_every_ten_minutes_at_most() -> None:
    bench = Bench()
    for _ in range(20):
        bench.go_on(1, 2.0)
        bench.go_on(2)
    assert bench.minutes == [0.0, 10.8, 20.8, 31.8, 41.8, 52.8]


def test_a_record_says_between_which_figures_and_of_which_pods() -> None:
    bench = Bench()
    bench.go_on(1, 3.0)
    bench.go_on(1, 1.5, "shop/other")
    bench.go_on(20)
    record = bench.records[-1][1]
    assert record.numbers == {"pods": 2.0, "cpus.least": 1.5, "cpus.most": 3.0}
    assert (record.pods, record.cause, record.count) == (["shop/job", "shop/other"], HELD, 11)


def test_nothing_is_recorded_of_what_does_not_happen() -> None:
    bench = Bench()
    bench.go_on(200)
    assert bench.records == []


def records_of(node: SuppressedNode) -> list[Modification]:
    found: list[dict[str, Any]] = node.api.all(EVENTS_V1)
    metadata = [convert(each["metadata"], ObjectMeta) for each in found]
    return [decode_record(each) for each in metadata if each.labels]


def test_an_agent_records_that_it_holds_pods_down(tmp_path: Path) -> None:
    async def run() -> list[Modification]:
        node = SuppressedNode(tmp_path)
        async with node.running():
            await node.pass_seconds(60)
            return records_of(node)

    (record,) = [each for each in asyncio.run(run()) if each.action != RESIZED]
    assert (record.program, record.action, record.actor) == ("koordlet", SUPPRESSED, "BECPUSuppress")
    assert record.pods == ["jobs/job"]
    assert record.cause.code == "cfsQuota"


def test_what_is_not_summarised_yet_is_written_before_the_node_is_only_observed(tmp_path: Path) -> None:
    async def run() -> list[Modification]:
        node = SuppressedNode(tmp_path)
        node.follows_configuration = True
        async with node.running():
            await node.pass_seconds(60)
            node.configure(observe_only="true")
            await node.pass_seconds(5)
            return records_of(node)

    first, last = [each for each in asyncio.run(run()) if each.action == SUPPRESSED]
    assert first.time is not None
    assert last.since is not None
    assert last.since > first.time


def test_an_agent_that_stops_writes_what_it_has_not_summarised_yet(tmp_path: Path) -> None:
    async def run() -> list[Modification]:
        node = SuppressedNode(tmp_path)
        async with node.running():
            await node.pass_seconds(60)
        return records_of(node)

    first, last = [each for each in asyncio.run(run()) if each.action == SUPPRESSED]
    assert first.time is not None
    assert last.since is not None
    assert last.since > first.time
