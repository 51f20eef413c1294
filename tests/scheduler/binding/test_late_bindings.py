"""A binding that takes longer than its deadline: said by the health check, counted, and never cancelled."""

from __future__ import annotations

import pytest

from koordinator.scheduler.binding.binder import DEADLINE
from tests.real_world.faulty_api_server import FAULTS, Rule, bindings
from tests.scheduler.fakes import make_pod
from tests.scheduler.running_scheduler import RunningScheduler, simulate, two_nodes
from tests.scheduler.scheduler_api import SchedulerApi

LOST, UNREADABLE = FAULTS["the connection breaks before"], FAULTS["etcd or a webhook fails"]


def late(fixture: RunningScheduler) -> float:
    """How many bindings have ended after their deadline."""
    return fixture.registry.get_sample_value("loop_errors_total", {"loop": "binder"}) or 0.0


@pytest.mark.parametrize("count", [1, 3])
def test_a_late_binding_is_named_until_it_ends(count: int) -> None:
    def api() -> SchedulerApi:
        api = two_nodes()
        api.faults.rules += [bindings(LOST, "late-*", times=count), Rule(UNREADABLE, "get", "pods")]
        return api

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("quick"))
        for number in range(count):
            fixture.api.store(make_pod(f"late-{number}"))
        await fixture.until_idle()
        assert fixture.api.placed().keys() == {"quick"}
        await fixture.until_idle(DEADLINE)
        assert fixture.scheduler.check_bindings() == ""
        await fixture.until_idle(1)
        text = f"{count} bindings have been under way for up to {DEADLINE + 1:.0f}s"
        assert fixture.scheduler.check_bindings() == text
        assert late(fixture) == 0
        fixture.api.faults.rules.clear()
        await fixture.until_idle(60)
        assert fixture.scheduler.check_bindings() == ""
        assert len(fixture.api.placed()) == count + 1
        assert late(fixture) == count

    simulate(story, api)
