"""From the decision to the binding: waiting for permission, work before the binding, binders other than the API."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import structs

from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.recording import one_node, play, plugin_of, recording
from tests.scheduler.running_scheduler import RunningScheduler, simulate


def test_a_pod_that_nobody_holds_back_is_bound() -> None:
    fixture = play()
    assert fixture.api.placed() == {"p": "a"}
    assert plugin_of(fixture).record == ["reserve", "bound"]


def test_a_waiting_pod_keeps_its_capacity_until_it_is_allowed() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="3", labels={"permit": "wait"}))
        fixture.api.store(make_pod("other", cpu="3"))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        waiting = fixture.scheduler.state.view.waiting.get("uid-p")
        assert waiting is not None
        waiting.allow("Recording")
        await fixture.until_idle()
        assert fixture.api.placed() == {"p": "a"}

    simulate(story, one_node, recording)


def test_a_rejected_pod_gives_its_capacity_back_and_says_why() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="3", labels={"permit": "wait"}))
        fixture.api.store(make_pod("other", cpu="3"))
        await fixture.until_idle()
        waiting = fixture.scheduler.state.view.waiting.get("uid-p")
        assert waiting is not None
        waiting.reject("Recording", "the gang has broken up")
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"other": "a"}

    fixture = simulate(story, one_node, recording)
    assert ("p", "Unschedulable", "0/1 nodes are available: 1 the gang has broken up.") in fixture.api.conditions


def test_patience_ends() -> None:
    fixture = play(29.0, 1.5, permit="wait")
    assert "failed: 0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Recording." in (
        plugin_of(fixture).record
    )


def test_a_waiting_pod_that_is_deleted_gives_its_capacity_back() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"permit": "wait"}))
        await fixture.until_idle()
        fixture.api.drop("pods", "default/p")
        await fixture.until_idle()
        assert len(fixture.scheduler.state.view.waiting) == 0

    fixture = simulate(story, one_node, recording)
    assert "unreserve" in plugin_of(fixture).record


def test_a_waiting_pod_that_is_being_deleted_gives_its_capacity_back() -> None:
    """Something holds its end up, so that it stays for a while."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="3", labels={"permit": "wait"}))
        fixture.api.store(make_pod("other", cpu="3"))
        await fixture.until_idle()
        pod = fixture.api.pod("p")
        metadata = structs.replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
        fixture.api.store(structs.replace(pod, metadata=metadata))
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"other": "a"}

    simulate(story, one_node, recording)


def test_a_waiting_pod_whose_node_is_deleted_is_tried_again() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"permit": "wait"}))
        await fixture.until_idle()
        fixture.api.drop("nodes", "a")
        await fixture.until_idle()
        assert len(fixture.scheduler.state.view.waiting) == 0
        fixture.api.store(make_node("b"))
        await fixture.until_idle(2)
        waiting = fixture.scheduler.state.view.waiting.get("uid-p")
        assert waiting is not None
        assert waiting.node_name == "b"
        fixture.api.drop("pods", "default/p")

    simulate(story, one_node, recording)


def test_a_refused_pod_waits_with_that_as_its_reason() -> None:
    fixture = play(permit="refuse")
    assert fixture.api.conditions == [("p", "Unschedulable", "0/1 nodes are available: 1 the gate is shut.")]
    assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 1


def test_what_plugins_decide_is_written_before_the_binding() -> None:
    fixture = play(pre_bind="yes")
    assert plugin_of(fixture).written["p"].annotations == {"chosen": "a"}
    assert fixture.api.placed() == {"p": "a"}


def test_a_pod_whose_preparation_fails_is_tried_again() -> None:
    fixture = play(pre_bind="raise")
    assert fixture.api.placed() == {}
    assert fixture.api.conditions[0][1:] == ("SchedulerError", "binding rejected: no such volume")
    assert "unreserve" in plugin_of(fixture).record


def test_a_preparation_that_hangs_is_given_up_and_delays_nobody() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"pre-bind": "hang"}))
        fixture.api.store(make_pod("other"))
        await fixture.until_idle()
        assert fixture.api.placed() == {"other": "a"}
        await fixture.until_idle(61)
        fixture.api.drop("pods", "default/p")

    fixture = simulate(story, one_node, recording)
    message = "binding rejected: plugin Recording did not finish within 60 s"
    assert ("p", "SchedulerError", message) in fixture.api.conditions


@pytest.mark.parametrize("opened", [True, False])
def test_a_preparation_may_wait_for_what_others_do(opened: bool) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"pre-bind": "until"}))
        await fixture.until_idle(5)
        plugin_of(fixture).opened = opened
        fixture.api.store(make_node("b"))
        await fixture.until_idle(16)
        await fixture.until_idle()

    fixture = simulate(story, one_node, recording)
    assert f"until {opened}" in plugin_of(fixture).record


def test_a_plugin_may_do_the_binding_itself() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"bind": "mine"}))
        await fixture.until_idle()
        assert fixture.api.bindings == []
        assert plugin_of(fixture).record == ["reserve", "bound"]
        fixture.api.store(make_pod("p", node="a"))

    simulate(story, one_node, recording)


def test_a_failure_handler_may_take_over() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9", labels={"swallow": ""}))
        await fixture.until_idle()
        assert fixture.api.conditions == []
        fixture.api.drop("pods", "default/p")

    fixture = simulate(story, one_node, recording)
    assert plugin_of(fixture).record == ["failed: 0/1 nodes are available: 1 Insufficient cpu."]


def test_a_failure_handler_hears_of_a_pod_that_waits_again() -> None:
    message = "0/1 nodes are available: 1 the gate is shut."
    assert plugin_of(play(permit="refuse")).record == ["reserve", "unreserve", f"failed: {message}", f"told: {message}"]


def test_a_failure_handler_hears_of_an_attempt_that_has_failed() -> None:
    message = "binding rejected: no such volume"
    assert plugin_of(play(pre_bind="raise")).record == [
        *("reserve", "unreserve"),
        *(f"failed: {message}", f"told: {message}"),
    ]
