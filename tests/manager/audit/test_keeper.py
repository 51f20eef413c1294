"""From an Event that a program writes to the answer of a query, and what happens when records cannot be kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.audit_answer import AuditAnswer
from koordinator.api.codec import convert
from koordinator.api.kinds import PODS
from koordinator.api.meta import Object
from koordinator.api.modification import EVICTED, LONGEST_RECORD, Cause, Modification, complete, event_metadata
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import EVENTS_V1, reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.audit.keeper import AuditKeeper
from koordinator.manager.audit.options import AuditOptions
from koordinator.manager.audit.store import AuditStore, AuditStoreError, DiskFullError, Query
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.options import Options
from tests.in_memory_api import InMemoryApi
from tests.kube.informer_log import pod

POD = reference_to(PODS, pod("web", 7))
RECORD = Modification(action=EVICTED, node="n1", cause=Cause(code="MemoryEvict"))


def inline(function: Callable[[], Any]) -> asyncio.Future[Any]:
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    try:
        found.set_result(function())
    except AuditStoreError as error:
        found.set_exception(error)
    return found


class Bench:
    """A program that writes Events, and the keeper of a leader, on one clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.client = self.api.client()
        self.events = EventBroadcaster(
            self.client, instance="test", program="koord-manager", clock=self.clock, random=Random(1)
        )
        self.metrics = Metrics()
        context = ControllerContext(
            self.client,
            InformerSet(self.client, clock=self.clock, random=Random(1)),
            self.events,
            Options(),
            self.metrics,
            self.clock,
            Random(1),
        )
        self.keeper = AuditKeeper(context, AuditOptions(**{"directory": "", **options}), inline)

    def act(self, record: Modification | None = RECORD) -> None:
        self.events.recorder("koordlet").event(POD, "Warning", "evicted", "Evicting", "for memory", modification=record)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.keeper.run()), tasks.create_task(self.events.run())]
            await self.clock.advance(2)
            try:
                yield
                await self.clock.advance(2)
            finally:
                for task in running:
                    task.cancel()

    async def find(self, **query: Any) -> AuditAnswer:
        await self.clock.advance(2)
        answer = await self.keeper.find(Query(**query))
        assert answer is not None
        return answer

    def carry(self, record: Modification, name: str) -> None:
        """Somebody writes an Event with a record."""
        labels, annotations = event_metadata(record)
        metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
        self.api.put(EVENTS_V1, {"metadata": metadata})


def test_what_a_program_records_is_found_and_other_events_are_not() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.act()
        async with bench.leading():
            bench.act(None)
            bench.act()
            answer = await bench.find(pod="default/web")
            assert [each.record.cause for each in answer.records] == [Cause(code="MemoryEvict", text="for memory")] * 2
            assert answer.coverage.problem == ""
            assert answer.coverage.in_memory
        assert await bench.keeper.find(Query()) is None

    asyncio.run(scenario())


def test_a_long_list_is_stored_without_a_pause() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.carry(complete(RECORD, "koordlet", POD, "", bench.clock.now()), "first")
        async with bench.leading():
            first = convert(bench.api.document(EVENTS_V1, "first", "default"), Object)
            for page in range(3):
                metadata = (replace(first.metadata, uid=f"{page}-{number}") for number in range(500))
                bench.keeper.replace_page([replace(first, metadata=each) for each in metadata], ())
                await bench.clock.advance(0)
            answer = await bench.keeper.find(Query(limit=2000))
            assert answer is not None
            assert len(answer.records) == 1501

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changes", [{"action": "invented"}, {"actor": "x" * LONGEST_RECORD}, {"time": timedelta(hours=1)}]
)
def test_a_forged_record_costs_its_author_alone(changes: dict[str, Any]) -> None:
    async def scenario() -> None:
        bench = Bench()
        good = complete(RECORD, "koordlet", POD, "", bench.clock.now())
        if "time" in changes:
            changes["time"] = bench.clock.now() + changes["time"]
        bench.carry(replace(good, **changes), "forged")
        bench.carry(good, "good")
        async with bench.leading():
            # It is listed anew.
            bench.keeper.replace_page([convert(bench.api.document(EVENTS_V1, "forged", "default"), Object)], ())
            answer = await bench.find()
        assert [each.event for each in answer.records] == ["default/good"]
        assert answer.coverage.refused == 1

    asyncio.run(scenario())


def test_while_nothing_can_be_kept_records_wait_and_it_is_said(tmp_path: Path) -> None:
    other = AuditStore(str(tmp_path), 1 << 20, timedelta(days=1))
    other.open()

    async def scenario() -> None:
        bench = Bench(directory=str(tmp_path))
        async with bench.leading():
            bench.act()
            answer = await bench.find()
            assert "database is locked" in answer.coverage.problem
            other.close()
            await bench.clock.advance(31)
            answer = await bench.find()
            assert (len(answer.records), answer.coverage.problem, answer.coverage.lost) == (1, "", 0)

    asyncio.run(scenario())


def test_the_next_term_finds_what_was_written_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(directory=str(tmp_path))
        async with bench.leading():
            bench.act()
        bench.carry(complete(RECORD, "koordlet", POD, "", bench.clock.now()), "between")
        await bench.clock.advance(1800)
        async with bench.leading():
            answer = await bench.find()
        assert len(answer.records) == 2
        assert answer.coverage.gaps == []

    asyncio.run(scenario())


def test_events_that_cannot_be_read_are_said() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.api.away = True
        async with bench.leading():
            answer = await bench.find()
        assert answer.coverage.problem.startswith("Events cannot be read: ")
        assert answer.coverage.since is None

    asyncio.run(scenario())


def test_a_leader_that_steps_down_while_the_disk_is_full_leaves_the_file_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise DiskFullError("the disk is full")

    async def scenario() -> None:
        bench = Bench(directory=str(tmp_path))
        async with bench.leading():
            bench.act()
            await bench.find()
            monkeypatch.setattr(AuditStore, "add", refuse)
            bench.act()
            assert "the disk is full" in (await bench.find()).coverage.problem
        store = AuditStore(str(tmp_path), 1 << 20, timedelta(days=1))
        assert store.open() == ""
        store.close()

    asyncio.run(scenario())
