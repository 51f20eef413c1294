"""Faults of simulated nodes: what is reported while they last, what after, and what a plan may say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any, cast

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS, NODES
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo
from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import parse_scenario
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION
from koordinator.kube.event_series import EVENTS_V1
from tests.in_memory_api import ApiRequest, Document, InMemoryApi

MINUTE = 1.0
"""Of simulated time, in seconds of the clock: tests are short."""
NODE = "small-0"


class Simulation:
    """Two nodes of which the first has the fault; ``metric`` is what it reported last."""

    def __init__(self, api: InMemoryApi, clock: ManualClock) -> None:
        self.api = api
        self.clock = clock

    def metric(self, name: str = NODE) -> NodeMetric | None:
        if name not in self.api.names(NODE_METRICS):
            return None
        return convert(self.api.document(NODE_METRICS, name), NodeMetric)

    def info(self) -> NodeMetricInfo:
        metric = self.metric()
        assert metric is not None
        assert metric.status.node_metric is not None
        return metric.status.node_metric

    def age(self, name: str = NODE) -> float:
        """Simulated minutes since the time that the last report bears."""
        metric = self.metric(name)
        assert metric is not None
        assert metric.status.update_time is not None
        return (self.clock.now() - metric.status.update_time).total_seconds()

    def say(self, fault: str | None) -> None:
        document: Document = self.api.document(NODES, NODE)
        annotations = {
            key: text for key, text in document["metadata"]["annotations"].items() if key != FAULT_ANNOTATION
        }
        if fault is not None:
            annotations[FAULT_ANNOTATION] = fault
        self.api.put(NODES, {**document, "metadata": {**document["metadata"], "annotations": annotations}})


def simulate(script: Callable[[Simulation], Awaitable[None]], faults: str = "") -> InMemoryApi:
    text = f"nodeGroups: [{{name: small, count: 2}}]\ntiming: {{speed: 60}}\n{faults}"
    api = InMemoryApi()

    async def play() -> None:
        clock = cast("ManualClock", api.clock)
        fleet = Fleet(api.client(), parse_scenario(text, "test"), clock=clock, random=Random(1))
        running = asyncio.create_task(fleet.run())
        try:
            while not fleet.nodes and not running.done():
                await clock.advance(0.5)
            await script(Simulation(api, clock))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    return api


def planned(fault: str, **more: str) -> str:
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return f"faults: [{{fault: {fault}, nodes: [{NODE}]{rest}}}]"


def test_an_agent_that_stops_leaves_its_last_report() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(20 * MINUTE)
        assert cluster.age() >= 8 * MINUTE
        assert cluster.age("small-1") <= 2 * MINUTE
        await cluster.clock.advance(11 * MINUTE)
        assert cluster.age() <= 2 * MINUTE

    simulate(script, planned("agentStopped", after="10m", lasts="20m"))


def test_a_missing_agent_never_reports() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(10 * MINUTE)
        assert cluster.metric() is None
        assert cluster.metric("small-1") is not None

    simulate(script, planned("agentMissing"))


def test_an_agent_that_goes_missing_leaves_nothing() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(2 * MINUTE)
        assert cluster.metric() is not None
        cluster.say("agentMissing")
        await cluster.clock.advance(2 * MINUTE)
        assert cluster.metric() is None
        cluster.api.put(NODE_METRICS, {"metadata": {"name": NODE}})
        await cluster.clock.advance(5 * MINUTE)
        assert cluster.metric() is not None
        cluster.say(None)
        await cluster.clock.advance(2 * MINUTE)
        assert cluster.age() <= 2 * MINUTE

    api = simulate(script)
    assert api.requests.count(ApiRequest("delete", "nodemetrics", NODE)) == 1


def test_usage_above_capacity() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(10 * MINUTE)
        info = cluster.info()
        assert info.node_usage.resources["cpu"].milli == 10_400
        assert info.node_usage.resources["memory"].value == int(1.3 * (32 << 30))
        ranks = [usage for window in info.aggregated_node_usages for usage in window.usage.values() if usage.resources]
        assert ranks
        assert {usage.resources["cpu"].milli for usage in ranks} == {10_400}

    simulate(script, planned("usageAboveCapacity"))


def test_negative_readings() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(2 * MINUTE)
        assert cluster.info().system_usage.resources["cpu"].milli == -500
        assert cluster.info().system_usage.resources["memory"].value == -(1 << 30)

    simulate(script, planned("negativeReadings"))


def test_frozen_readings_go_on_with_new_times() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(2 * MINUTE)
        first = cluster.info()
        await cluster.clock.advance(20 * MINUTE)
        assert cluster.info() == first
        assert cluster.age() <= 2 * MINUTE
        cluster.say("none")
        await cluster.clock.advance(5 * MINUTE)
        assert cluster.info() != first
        later = cluster.info()
        cluster.say(None)
        await cluster.clock.advance(5 * MINUTE)
        assert cluster.info() not in (first, later)

    simulate(script, planned("frozenReadings"))


@pytest.mark.parametrize(("fault", "hours"), [("clockAhead", -1), ("clockBehind", 1)])
def test_wrong_clocks(fault: str, hours: int) -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(3 * MINUTE)
        assert 3600 * hours <= cluster.age() <= 3600 * hours + 2 * MINUTE

    simulate(script, planned(fault))


def test_a_fault_lasts_in_simulated_time() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(3 * MINUTE)
        assert cluster.info().system_usage.resources["cpu"].milli > 0
        await cluster.clock.advance(5 * MINUTE)
        assert cluster.info().system_usage.resources["cpu"].milli < 0
        await cluster.clock.advance(5 * MINUTE)
        assert cluster.info().system_usage.resources["cpu"].milli > 0

    simulate(script, planned("negativeReadings", after="5m", lasts="5m"))


def test_an_annotation_goes_before_the_plan() -> None:
    async def script(cluster: Simulation) -> None:
        cluster.say("none")
        await cluster.clock.advance(3 * MINUTE)
        assert cluster.info().system_usage.resources["cpu"].milli > 0

    simulate(script, planned("negativeReadings"))


def test_an_annotation_that_is_not_known_is_reported_and_changes_nothing() -> None:
    async def script(cluster: Simulation) -> None:
        await cluster.clock.advance(MINUTE)
        cluster.say("brokenAgent")
        await cluster.clock.advance(3 * MINUTE)
        assert cluster.age() <= 2 * MINUTE

    api = simulate(script)
    (name,) = api.names(EVENTS_V1)
    event: Any = api.document(EVENTS_V1, name, "default")
    assert event["regarding"]["name"] == NODE
    assert event["note"] == (
        f"annotation {FAULT_ANNOTATION}: 'brokenAgent' is not known and changes nothing; allowed are none, "
        "agentMissing, agentStopped, usageAboveCapacity, negativeReadings, frozenReadings, clockAhead, clockBehind, "
        "nodeStopped"
    )


@pytest.mark.parametrize(
    ("faults", "field", "allowed"),
    [
        ("[{fault: broken, nodes: [small-0]}]", "faults[0].fault: 'broken'", "one of none, agentMissing"),
        ("[{fault: agentStopped}]", "faults[0].nodes: []", "at least one name or pattern"),
        (
            "[{fault: agentStopped, nodes: [small-0, large-*]}]",
            "faults[0].nodes[1]: 'large-*'",
            "a node of the scenario, which has 2, such as small-0, small-1",
        ),
        ("[{fault: agentStopped, nodes: [small-0], after: -1m}]", "faults[0].after: '-1m0s'", "0 or more"),
        ("[{fault: agentStopped, nodes: [small-0], lasts: 0s}]", "faults[0].lasts: '0s'", "more than 0, or left out"),
        ("[{fault: agentStopped, nodes: [small-0], until: 5m}]", "faults[0].until: '5m'", "there is no such field"),
    ],
)
def test_a_mistake_in_a_plan_names_field_value_and_what_is_allowed(faults: str, field: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_scenario(f"nodeGroups: [{{name: small, count: 2}}]\nfaults: {faults}", "test")
    assert str(raised.value).startswith(f"{field} is not usable: ")
    assert allowed in str(raised.value)


def test_a_group_that_starts_with_a_fault_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one of none, agentMissing"):
        parse_scenario(f"nodeGroups: [{{name: small, annotations: {{{FAULT_ANNOTATION}: x}}}}]", "test")


def test_patterns_name_several_nodes() -> None:
    scenario = parse_scenario(
        "nodeGroups: [{name: small, count: 2}]\nfaults: [{fault: agentStopped, nodes: ['small-*'], lasts: 5m}]", "test"
    )
    assert scenario.faults[0].lasts == timedelta(minutes=5)
