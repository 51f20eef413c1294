"""Simulated time that a ConfigMap sets the pace of: it stands still, goes on to a moment, and what is due is done."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.main import main
from koordinator.cluster.nodes.paced_time import Pace, PacedClock
from koordinator.cluster.nodes.pod_runtime import RUN_TIME_ANNOTATION
from koordinator.kube.errors import TransportError
from tests.cluster.nodes import fleets
from tests.cluster.nodes.bound_pods import pod_document
from tests.cluster.nodes.fleets import Script
from tests.in_memory_api import NO_FAULT, InMemoryApi

PACE = ("default", "pace")


def set_pace(api: InMemoryApi, **data: Any) -> None:
    known = api.found(CONFIG_MAPS, "pace", "default") or {}
    text = {key: str(value) for key, value in data.items()}
    metadata = {"name": "pace", "namespace": "default"}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": {**known.get("data", {}), **text}})


def reached(api: InMemoryApi) -> float:
    return float(api.document(CONFIG_MAPS, "pace", "default")["data"].get("reached", "-1"))


def play(script: Script, api: InMemoryApi | None = None) -> InMemoryApi:
    """Run a fleet whose pace is set, from when it has registered its nodes and reported for them."""
    api = api or InMemoryApi()
    if api.found(CONFIG_MAPS, "pace", "default") is None:
        set_pace(api)

    async def whole(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(5)
        await script(api, fleet, clock)

    return fleets.play(whole, api, pace=PACE)


def phase(api: InMemoryApi, name: str) -> str:
    return str(api.document(PODS, name, "default")["status"]["phase"])


def updates(api: InMemoryApi) -> list[str]:
    return [api.document(NODE_METRICS, name)["status"]["updateTime"] for name in api.names(NODE_METRICS)]


def test_time_stands_still_until_it_is_told_to_go_on() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        assert (reached(api), fleet.time.elapsed()) == (0, 0)
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(20)
        assert (fleet.time.elapsed(), phase(api, "web")) == (0, "Pending")
        set_pace(api, until=600)
        await clock.advance(1)
        assert (reached(api), fleet.time.elapsed(), phase(api, "web")) == (600, 600, "Running")

    play(script)


def test_what_is_due_is_done_however_far_time_goes() -> None:
    """A pod starts, runs for an hour and ends in one go, at its own times."""

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        annotations = {RUN_TIME_ANNOTATION: "60m"}
        document = pod_document("job", "small-0")
        document["metadata"]["annotations"] = annotations
        document["spec"]["restartPolicy"] = "Never"
        api.put(PODS, document)
        await clock.advance(1)
        set_pace(api, until=3500)
        await clock.advance(1)
        assert phase(api, "job") == "Running"
        set_pace(api, until=7200)
        await clock.advance(1)
        assert (reached(api), phase(api, "job")) == (7200, "Succeeded")

    play(script)


def test_every_node_has_reported_the_moment_that_is_reached() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(5)
        before = updates(api)
        set_pace(api, until=900)
        await clock.advance(1)
        assert reached(api) == 900
        assert len(before) == 3
        assert all(new > old for old, new in zip(before, updates(api), strict=True))

    play(script)


def test_time_waits_for_pods_that_are_bound_and_not_seen_yet() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        set_pace(api, until=600, pods=api.revision + 2)
        await clock.advance(20)
        assert fleet.time.elapsed() == 0
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(1)
        assert (reached(api), phase(api, "web")) == (600, "Running")

    play(script)


def test_reports_do_not_expire_while_time_stands_still() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        before = updates(api)
        await clock.advance(61)
        assert all(new > old for old, new in zip(before, updates(api), strict=True))
        assert fleet.time.elapsed() == 0

    play(script)


def test_a_moment_that_the_api_server_does_not_take_is_written_again() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(1)
        api.fault = lambda request, done: TransportError("away") if request.verb == "patch" else None
        set_pace(api, until=600)
        await clock.advance(5)
        assert reached(api) == 0
        api.fault = NO_FAULT
        await clock.advance(30)
        assert (reached(api), phase(api, "web")) == (600, "Running")

    play(script)


def test_after_a_restart_time_goes_on_from_where_it_was() -> None:
    api = InMemoryApi()
    set_pace(api, until=3600, reached=3600)

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        assert (fleet.time.elapsed(), reached(api)) == (3600, 3600)
        set_pace(api, until=5400)
        await clock.advance(1)
        assert (fleet.time.elapsed(), reached(api)) == (5400, 5400)

    play(script, api)


@pytest.mark.parametrize("data", [{}, {"until": "soon", "reached": ""}])
def test_what_is_no_number_counts_as_missing(data: dict[str, str]) -> None:
    assert Pace.of(ConfigMap(data=data)) == Pace(0.0, None, "", "")


def test_the_patch_of_whoever_sets_the_pace_is_read_as_it_was_meant() -> None:
    assert Pace.of(ConfigMap(data=Pace.wanted(86_399.5, "7", "9")["data"])) == Pace(86_399.5, None, "7", "9")


def test_the_clock_wakes_those_whose_time_has_come() -> None:
    async def scenario() -> None:
        clock = PacedClock(ManualClock())
        sleeping = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 2)]
        await asyncio.sleep(0)
        assert not clock.move(0.5)
        assert clock.move(1)
        await asyncio.sleep(0)
        assert [task.done() for task in sleeping] == [True, False]
        assert (clock.monotonic(), clock.move(0)) == (1, False)
        assert clock.move(3600)
        await asyncio.gather(*sleeping)

    asyncio.run(scenario())
    assert ManualClock().now() + timedelta(0) == PacedClock(ManualClock()).now()


def test_a_pace_that_names_no_config_map_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--pace", "pace"])
    assert "the namespace and the name of a ConfigMap" in capsys.readouterr().err
