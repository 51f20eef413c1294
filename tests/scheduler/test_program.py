"""The whole scheduler on an API in memory: what is pending gets bound once, whatever becomes of requests and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from koordinator.api.kinds import PODS
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Malformed
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate, two_nodes
from tests.scheduler.scheduler_api import SchedulerApi, lost, unavailable


def test_pending_pods_are_bound_as_far_as_they_fit() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(10):
            fixture.api.store(make_pod(f"p{number}"))
        await fixture.until_idle()
        assert len(fixture.api.placed()) == 8

    fixture = simulate(story, two_nodes)
    assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 2
    message = "0/2 nodes are available: 2 Insufficient cpu."
    assert {(reason, text) for _, reason, text in fixture.api.conditions} == {("Unschedulable", message)}
    assert sum(reason == "Scheduled" for _, reason, _ in fixture.events.notes) == 8


def test_the_scheduled_event_names_pod_and_node() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_node("a"))
        fixture.api.store(make_pod("p"))

    fixture = simulate(story)
    assert fixture.events.notes == [("p", "Scheduled", "Successfully assigned default/p to a")]


def test_it_is_binding_while_a_response_is_awaited_and_not_afterwards() -> None:
    seen = []

    async def story(fixture: RunningScheduler) -> None:
        def look(name: str, is_done: bool) -> Exception | None:
            seen.append(fixture.scheduler.is_binding)
            return None

        fixture.api.binding_fault = look
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        assert not fixture.scheduler.is_binding

    simulate(story, two_nodes)
    assert seen
    assert all(seen)


def test_a_deleted_pod_makes_room_for_a_unschedulable_one() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_node("a", cpu="1"))
        fixture.api.store(make_pod("first"))
        await fixture.until_idle()
        fixture.api.store(make_pod("second"))
        await fixture.until_idle()
        assert fixture.api.placed() == {"first": "a"}
        fixture.api.drop("pods", "default/first")
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"second": "a"}

    simulate(story)


def test_pods_of_other_schedulers_and_deleted_ones_are_left_alone() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("other", scheduler="default-scheduler"))
        dying = make_pod("dying")
        metadata = msgspec.structs.replace(dying.metadata, deletion_timestamp=fixture.clock.now())
        fixture.api.store(msgspec.structs.replace(dying, metadata=metadata))
        await fixture.until_idle()

    fixture = simulate(story, two_nodes)
    assert fixture.api.bindings == []


def test_the_label_overrides_the_scheduler_name() -> None:
    async def story(fixture: RunningScheduler) -> None:
        labels = {"scheduling.koordinator.sh/scheduler-name": "koord-scheduler"}
        fixture.api.store(make_pod("p", scheduler="default-scheduler", labels=labels))

    assert set(simulate(story, two_nodes).api.placed()) == {"p"}


def once(fault: Callable[[], Exception], *, done: bool) -> Callable[[str, bool], Exception | None]:
    """Fail the first binding of every pod, before or after it is done."""
    failed: set[str] = set()

    def decide(name: str, is_done: bool) -> Exception | None:
        if is_done is not done or name in failed:
            return None
        failed.add(name)
        return fault()

    return decide


def bind_eight_with(fault: Callable[[str, bool], Exception | None]) -> RunningScheduler:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.binding_fault = fault
        for number in range(8):
            fixture.api.store(make_pod(f"p{number}"))
        await fixture.until_idle(30)
        assert len(fixture.api.placed()) == 8

    return simulate(story, two_nodes)


def test_a_lost_request_is_repeated() -> None:
    bind_eight_with(once(lost, done=False))


def test_a_lost_response_is_found_to_be_a_success() -> None:
    fixture = bind_eight_with(once(lost, done=True))
    assert sum(reason == "Scheduled" for _, reason, _ in fixture.events.notes) == 8


def test_a_server_that_fails_is_queried_again() -> None:
    bind_eight_with(once(unavailable, done=False))


def test_a_server_that_fails_after_the_fact_is_found_out() -> None:
    bind_eight_with(once(unavailable, done=True))


def test_a_refused_pod_is_tried_again_after_a_back_off() -> None:
    fixture = bind_eight_with(once(lambda: ApiStatusError(403, "Forbidden", "not now"), done=False))
    assert ("SchedulerError", "binding rejected: not now (403 Forbidden)") in {c[1:] for c in fixture.api.conditions}


def test_a_conflict_with_another_scheduler_is_accepted() -> None:
    async def story(fixture: RunningScheduler) -> None:
        def bind_first(name: str, done: bool) -> Exception | None:
            if not done:
                pod = fixture.api.pod(name)
                spec = msgspec.structs.replace(pod.spec, node_name="b")
                fixture.api.store(msgspec.structs.replace(pod, spec=spec))
            return None

        fixture.api.store(make_node("a", cpu="8", labels={"rank": "9"}))
        fixture.api.store(make_node("b", cpu="8"))
        await fixture.until_idle()
        fixture.api.binding_fault = bind_first
        fixture.api.store(make_pod("p"))
        await fixture.until_idle(5)
        assert fixture.api.placed() == {"p": "b"}
        assert len(fixture.scheduler.queue) == 0

    fixture = simulate(story)
    assert fixture.api.bindings == []


def test_a_pod_deleted_before_its_binding_is_forgotten() -> None:
    async def story(fixture: RunningScheduler) -> None:
        def delete_first(name: str, done: bool) -> Exception | None:
            if not done:
                fixture.api.drop("pods", f"default/{name}")
            return None

        fixture.api.binding_fault = delete_first
        fixture.api.store(make_pod("p"))
        await fixture.until_idle(5)
        assert len(fixture.scheduler.queue) == 0

    simulate(story, two_nodes)


def test_a_pod_created_anew_under_its_name_is_bound_once() -> None:
    async def story(fixture: RunningScheduler) -> None:
        replaced: list[str] = []

        def replace_first(name: str, done: bool) -> Exception | None:
            if not done and not replaced:
                replaced.append(name)
                fixture.api.drop("pods", f"default/{name}")
                fixture.api.store(make_pod(name, uid="another"))
            return None

        fixture.api.binding_fault = replace_first
        fixture.api.store(make_pod("p"))
        await fixture.until_idle(5)
        assert set(fixture.api.placed()) == {"p"}

    assert len(simulate(story, two_nodes).api.bindings) == 1


def test_a_node_deleted_between_decision_and_binding_gets_no_pod() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_node("a", labels={"rank": "9"}))
        fixture.api.store(make_node("b"))
        await fixture.until_idle()
        engine = fixture.scheduler.engines["koord-scheduler"]
        decide = engine.decide

        def decide_and_lose_the_node(*arguments: Any) -> Any:
            result = decide(*arguments)
            fixture.scheduler.event_handlers.remove_node("a")
            return result

        engine.decide = decide_and_lose_the_node  # type: ignore[method-assign, assignment]
        fixture.api.store(make_pod("p"))
        await fixture.until_idle(10)

    fixture = simulate(story)
    assert fixture.api.placed() == {"p": "b"}


def test_a_restart_continues_from_what_the_api_has() -> None:
    api = two_nodes

    async def story(fixture: RunningScheduler) -> None:
        for number in range(12):
            fixture.api.store(make_pod(f"p{number}"))
        await fixture.until_idle()

    first = simulate(story, api)
    kept = first.api

    async def run() -> RunningScheduler:
        again = SchedulerApi()
        for plural in ("nodes", "pods"):
            for obj in kept.objects(plural).values():
                again.store(obj)
        again.store(make_node("c", cpu="2"))
        fixture = RunningScheduler(again)
        async with fixture.running():
            await fixture.until_idle()
        check(fixture)
        return fixture

    second = asyncio.run(run())
    assert sorted(node for _, node in second.api.bindings) == ["c", "c"]
    assert len(second.api.placed()) == 10


def test_a_stop_waits_for_bindings_under_way() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(8):
            fixture.api.store(make_pod(f"p{number}"))
        # No turn of the loop for the bindings before the stop.
        while fixture.scheduler.state.assumed_count == 0:
            await asyncio.sleep(0)

    fixture = simulate(story, two_nodes)
    assert fixture.scheduler.state.pod_count == len(fixture.api.placed())


def test_malformed_objects_are_counted() -> None:
    async def story(fixture: RunningScheduler) -> None:
        informer = fixture.scheduler.informers.informer(
            PODS, field_selector="status.phase!=Succeeded,status.phase!=Failed"
        )
        informer.cache.replace_page([], [Malformed(PODS, "default", "odd", "uid-odd", "1", "spec: expected object")])

    fixture = simulate(story, two_nodes)
    assert fixture.registry.get_sample_value("scheduler_malformed_objects_total", {"kind": "Pod"}) == 1


def test_pending_pods_are_notified_by_pool() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("huge", cpu="99"))

    fixture = simulate(story, two_nodes)
    assert fixture.registry.get_sample_value("scheduler_pending_pods", {"queue": "unschedulable"}) == 1
    labels = {"profile": "koord-scheduler", "result": "unschedulable"}
    assert fixture.registry.get_sample_value("scheduler_schedule_attempts_total", labels) == 1
