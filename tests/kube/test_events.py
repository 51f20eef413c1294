"""What the event recorder writes, joins, filters, retries and drops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import PODS
from koordinator.api.meta import ObjectMeta, ObjectReference
from koordinator.api.modification import AUDIT_ACTION, EVICTED, Cause, Modification, Subject, decode_record
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.event_series import EVENTS_V1, EventOptions, SpamFilter, event_name, limit_note, reference_to
from koordinator.kube.events import EventBroadcaster
from tests.in_memory_api import NO_FAULT, ApiRequest, InMemoryApi, InMemoryConnection, InMemoryResponse
from tests.kube.informer_log import pod

POD = reference_to(PODS, pod("web", 7))


class HoldingConnection(InMemoryConnection):
    """Holds requests back while ``released`` is cleared."""

    def __init__(self, api: InMemoryApi) -> None:
        super().__init__(api)
        self.held = self.at_first = 0
        self.released = asyncio.Event()
        self.released.set()

    async def request(self, *arguments: Any, **options: Any) -> InMemoryResponse:
        self.held += not self.released.is_set()
        await self.released.wait()
        return await super().request(*arguments, **options)


class Bench:
    """A broadcaster over an API server in memory."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.connection = HoldingConnection(self.api)
        self.metrics = Metrics()
        self.broadcaster = EventBroadcaster(
            self.api.client(connection=self.connection),
            instance="koord-scheduler-host",
            program="koordlet",
            clock=self.clock,
            random=Random(1),
            metrics=self.metrics,
            options=EventOptions(**options),
        )
        self.recorder = self.broadcaster.recorder("koord-scheduler")

    def fail(self, reason: str = "FailedScheduling", about: ObjectReference = POD, note: str = "no node") -> None:
        self.recorder.event(about, "Warning", reason, "Scheduling", note)

    def scheduled(self, about: ObjectReference = POD) -> None:
        self.recorder.event(about, "Normal", "Scheduled", "Binding", "Successfully assigned default/web to node-1")

    def play(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> list[dict[str, Any]]:
        """Run the scenario beside the writers; the events on the server afterwards."""

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self.broadcaster.run())
                await scenario()
                await self.clock.advance(0)
                running.cancel()

        asyncio.run(run())
        return self.api.all(EVENTS_V1)

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def about(number: int) -> ObjectReference:
    return reference_to(PODS, pod(f"web-{number}", 7))


def test_event_is_written_as_kube_scheduler_writes_it() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.scheduled()

    bench.play(scenario)
    [received] = bench.api.requests
    event = json.loads(received.body)
    assert received.name == f"web.{1767225600_000000000:x}"
    del event["metadata"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "koord-scheduler",
        "reportingInstance": "koord-scheduler-host",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": "uid-web",
            "resourceVersion": "7",
        },
        "note": "Successfully assigned default/web to node-1",
        "type": "Normal",
    }


@pytest.mark.parametrize(("microseconds", "written"), [(0, "000000"), (1, "000001"), (120_000, "120000")])
def test_the_time_of_an_event_always_has_microseconds(microseconds: int, written: str) -> None:
    bench = Bench()
    bench.clock.set_wall(datetime(2026, 1, 1, microsecond=microseconds, tzinfo=UTC))

    async def scenario() -> None:
        bench.scheduled()

    [event] = bench.play(scenario)
    assert event["eventTime"] == f"2026-01-01T00:00:00.{written}Z"


def test_repetition_becomes_a_series_by_a_patch_and_then_only_counts() -> None:
    bench = Bench()

    async def scenario() -> None:
        for _ in range(5):
            bench.fail()
            await bench.clock.advance(1)

    [event] = bench.play(scenario)
    assert event["series"] == {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    assert [received.verb for received in bench.api.requests] == ["create", "patch"]


def test_series_that_ends_is_written_with_its_final_count() -> None:
    bench = Bench()

    async def scenario() -> None:
        for _ in range(5):
            bench.fail()
            await bench.clock.advance(1)
        await bench.clock.advance(900)

    [event] = bench.play(scenario)
    assert event["series"]["count"] == 5


def test_event_after_six_silent_minutes_is_a_new_one() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.fail()
        await bench.clock.advance(900)
        bench.fail()
        await bench.clock.advance(0)

    assert len(bench.play(scenario)) == 2


def test_running_series_is_refreshed_every_half_hour() -> None:
    bench = Bench()

    async def scenario() -> None:
        for _ in range(40):
            bench.fail()
            await bench.clock.advance(60)

    [event] = bench.play(scenario)
    assert event["series"]["count"] > 25


def test_series_whose_event_is_gone_is_created_again() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.fail()
        await bench.clock.advance(1)
        (event,) = bench.api.all(EVENTS_V1)
        bench.api.remove(EVENTS_V1, event["metadata"]["name"], "default")
        bench.fail()
        await bench.clock.advance(1)

    [event] = bench.play(scenario)
    assert event["series"]["count"] == 2


def test_another_version_of_the_object_is_another_event() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.fail()
        bench.fail(about=reference_to(PODS, pod("web", 8)))

    assert len(bench.play(scenario)) == 2


def test_events_of_one_instant_have_their_own_names() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.fail("One")
        bench.fail("Two")

    assert len(bench.play(scenario)) == 2


def test_spam_about_one_object_is_cut_at_the_burst() -> None:
    bench = Bench()

    async def scenario() -> None:
        for number in range(40):
            bench.fail(f"Reason{number}")

    assert len(bench.play(scenario)) == 25
    assert bench.sample("event_recorder_dropped_total", reason="spam") == 15


def test_scheduled_is_not_filtered() -> None:
    bench = Bench()

    async def scenario() -> None:
        for version in range(40):
            bench.scheduled(reference_to(PODS, pod("web", version + 1)))

    assert len(bench.play(scenario)) == 40


def test_spam_bucket_refills_one_in_five_minutes() -> None:
    clock = ManualClock()
    spam = SpamFilter(clock, burst=2)

    async def scenario() -> list[bool]:
        first = [spam.allows("a") for _ in range(3)]
        await clock.advance(301)
        return [*first, spam.allows("a"), spam.allows("a")]

    assert asyncio.run(scenario()) == [True, True, False, True, False]


def test_spam_filter_forgets_the_least_recently_used() -> None:
    spam = SpamFilter(ManualClock(), burst=1, capacity=1)
    assert [spam.allows("a"), spam.allows("b"), spam.allows("a")] == [True, True, True]


def test_api_server_lost_for_an_hour_loses_no_scheduled_event() -> None:
    bench = Bench()
    bench.api.go_away()

    async def scenario() -> None:
        for number in range(20):
            bench.scheduled(about(number))
        await bench.clock.advance(3600)
        assert bench.broadcaster.pending == 20
        bench.api.come_back()
        await bench.clock.advance(60)

    assert len(bench.play(scenario)) == 20


def test_other_events_are_given_up_after_twelve_tries() -> None:
    bench = Bench()
    bench.api.go_away()

    async def scenario() -> None:
        bench.fail()
        await bench.clock.advance(3600)

    assert bench.play(scenario) == []
    assert bench.sample("event_recorder_dropped_total", reason="retries") == 1


def test_full_buffer_drops_the_oldest_that_is_not_essential() -> None:
    bench = Bench(capacity=3)
    bench.api.go_away()

    async def scenario() -> None:
        bench.scheduled(about(0))
        for number in range(1, 4):
            bench.fail(about=about(number))
        await bench.clock.advance(1)
        bench.api.come_back()
        await bench.clock.advance(60)

    assert {event["regarding"]["name"] for event in bench.play(scenario)} == {"web-0", "web-2", "web-3"}
    assert bench.sample("event_recorder_dropped_total", reason="buffer_full") == 1


def test_lost_essential_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(capacity=1)
    bench.api.go_away()

    async def scenario() -> None:
        bench.scheduled(about(0))
        bench.scheduled(about(1))

    bench.play(scenario)
    assert "event dropped, 1 wait already: Scheduled of Pod default/web-0" in caplog.text


def test_lost_response_of_a_create_does_not_write_twice() -> None:
    bench = Bench()

    def lose_one_response(received: ApiRequest, done: bool) -> Exception | None:
        if not done:
            return None
        bench.api.fault = NO_FAULT
        return TransportError("connection reset")

    bench.api.fault = lose_one_response

    async def scenario() -> None:
        bench.scheduled()
        await bench.clock.advance(60)

    assert len(bench.play(scenario)) == 1
    assert bench.broadcaster.pending == 0


def test_refused_event_is_dropped_and_counted() -> None:
    bench = Bench()
    bench.api.fault = lambda received, done: ApiStatusError(403, "Forbidden", "namespace is being terminated")

    async def scenario() -> None:
        bench.fail()

    assert bench.play(scenario) == []
    assert bench.sample("event_recorder_dropped_total", reason="rejected") == 1


def test_flush_writes_running_series() -> None:
    bench = Bench()

    async def scenario() -> None:
        for _ in range(5):
            bench.fail()
            await bench.clock.advance(1)
        assert await bench.broadcaster.flush(5) == 0

    [event] = bench.play(scenario)
    assert event["series"]["count"] == 5


def test_flush_gives_up_at_its_deadline_and_says_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.api.go_away()

    async def scenario() -> None:
        bench.scheduled()
        flushing = asyncio.ensure_future(bench.broadcaster.flush(5))
        await bench.clock.advance(6)
        assert await flushing == 1

    bench.play(scenario)
    assert "not written before the end: Scheduled of Pod default/web" in caplog.text


@pytest.mark.parametrize(("waiting", "at_a_time"), [(1, 1), (9, 1), (10, 2), (25, 3), (100, 4)])
def test_while_giving_way_more_are_written_at_a_time_the_more_wait(waiting: int, at_a_time: int) -> None:
    bench = Bench(writers=4, backlog_per_writer=10)
    bench.broadcaster.give_way_while(lambda: True)
    under_way = bench.connection

    async def scenario() -> None:
        under_way.released.clear()
        for number in range(waiting):
            bench.scheduled(about(number))
        await bench.clock.advance(0)
        under_way.at_first = under_way.held
        under_way.released.set()
        await bench.broadcaster.flush(5)

    assert len(bench.play(scenario)) == waiting
    assert under_way.at_first == at_a_time


def test_when_there_is_nothing_to_give_way_to_many_are_written_at_a_time() -> None:
    bench = Bench(writers=4, backlog_per_writer=10)
    busy, under_way = [True], bench.connection
    bench.broadcaster.give_way_while(lambda: bool(busy))

    async def scenario() -> None:
        under_way.released.clear()
        for number in range(9):
            bench.scheduled(about(number))
        await bench.clock.advance(0)
        assert under_way.held == 1
        busy.clear()
        bench.scheduled(about(9))
        await bench.clock.advance(0)
        under_way.at_first = under_way.held
        under_way.released.set()
        await bench.broadcaster.flush(5)

    assert len(bench.play(scenario)) == 10
    assert under_way.at_first == 4


def test_flush_writes_as_many_at_a_time_as_it_may() -> None:
    bench = Bench(writers=4, backlog_per_writer=10)
    bench.broadcaster.give_way_while(lambda: True)
    under_way = bench.connection

    async def scenario() -> None:
        under_way.released.clear()
        for number in range(9):
            bench.scheduled(about(number))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bench.broadcaster.flush(5))
            await bench.clock.advance(0)
            under_way.at_first = under_way.held
            under_way.released.set()

    assert len(bench.play(scenario)) == 9
    assert under_way.at_first == 4


def test_events_about_cluster_scoped_objects_go_to_default() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.fail(about=ObjectReference(kind="Node", api_version="v1", name="n1"))

    [event] = bench.play(scenario)
    assert event["metadata"]["namespace"] == "default"


def test_number_of_joined_series_is_bounded() -> None:
    bench = Bench(series_capacity=10)

    async def scenario() -> None:
        for number in range(50):
            bench.scheduled(about(number))
        assert len(bench.broadcaster._entries) == 10

    assert len(bench.play(scenario)) == 50


@pytest.mark.parametrize("note", ["x" * 1024, "short"])
def test_note_within_the_limit_is_kept(note: str) -> None:
    assert limit_note(note) == note


def test_long_note_is_cut_between_characters() -> None:
    cut = limit_note("€" * 1000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("€ ...")


def test_name_that_the_api_would_refuse_is_replaced() -> None:
    assert len(event_name("Not_A_Name", 1)) == 36


def test_that_events_may_not_be_written_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    forbidden = ApiStatusError(403, "Forbidden", 'User "eve" cannot create resource "events"')
    bench.api.fault = lambda received, done: forbidden

    async def scenario() -> None:
        for number in range(5):
            bench.fail(note=f"note {number}", reason=f"Reason{number}")
            await bench.clock.advance(1)
        bench.api.fault = NO_FAULT
        bench.fail(reason="Allowed")
        await bench.clock.advance(1)

    with caplog.at_level("INFO"):
        bench.play(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        'User "eve" cannot create resource "events": grant it with: koord manifests | kubectl apply -f -',
        "events: nothing is lacking any more",
    ]


def test_events_come_from_the_profile_on_this_host() -> None:
    bench = Bench()
    bench.broadcaster = EventBroadcaster(
        bench.api.client(), host="node-1", clock=bench.clock, random=Random(1), options=EventOptions()
    )
    bench.recorder = bench.broadcaster.recorder("batch-scheduler")

    async def scenario() -> None:
        bench.scheduled()
        await bench.clock.advance(1)

    (event,) = bench.play(scenario)
    assert (event["reportingController"], event["reportingInstance"]) == ("batch-scheduler", "batch-scheduler-node-1")


class SelectiveConnection(HoldingConnection):
    """Holds only the requests of one namespace back, for good."""

    async def request(self, method: str, target: str, *arguments: Any, **options: Any) -> InMemoryResponse:
        if "/namespaces/stuck/" in target:
            self.held += 1
            await asyncio.Event().wait()
        return await super().request(method, target, *arguments, **options)


@pytest.mark.parametrize("busy", [False, True])
def test_a_namespace_whose_events_are_never_answered_delays_no_other(busy: bool) -> None:
    bench = Bench()
    connection = SelectiveConnection(bench.api)
    bench.broadcaster = EventBroadcaster(
        bench.api.client(connection=connection), instance="host", clock=bench.clock, random=Random(1)
    )
    bench.broadcaster.give_way_while(lambda: busy)
    bench.recorder = bench.broadcaster.recorder("koord-scheduler")

    async def scenario() -> None:
        for number in range(100):
            bench.fail(about=reference_to(PODS, pod(f"stuck-{number}", 7, namespace="stuck")))
        for number in range(50):
            bench.fail(about=about(number))
        for _ in range(400):
            await bench.clock.advance(0.25)

    written = bench.play(scenario)
    assert connection.held
    assert len([event for event in written if event["metadata"]["namespace"] == "default"]) == 50


def test_an_event_with_a_modification_carries_its_record_and_forms_no_series() -> None:
    bench = Bench()
    record = Modification(action=EVICTED, node="n1", cause=Cause(code="MemoryEvict"))

    async def scenario() -> None:
        for _ in range(30):
            bench.recorder.event(POD, "Warning", "evicted", "Evicting", "for memory", modification=record)

    events = bench.play(scenario)
    # More than the spam filter lets pass.
    assert len(events) == 30
    metadata = convert(events[0]["metadata"], ObjectMeta)
    assert metadata.labels == {AUDIT_ACTION: EVICTED}
    carried = decode_record(metadata)
    assert carried.object == Subject(kind="Pod", namespace="default", name="web", uid=POD.uid)
    assert (carried.time, carried.node, carried.cause) == (
        bench.clock.now(),
        "n1",
        Cause(code="MemoryEvict", text="for memory"),
    )
