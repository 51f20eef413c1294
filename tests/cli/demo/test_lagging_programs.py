"""However far programs lag behind, the day is the same: simulated time waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.installation import NAMESPACE as SYSTEM_NAMESPACE
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, PODS, PRIORITY_CLASSES
from koordinator.base.clock import ManualClock
from koordinator.cli.demo.day import PACE, STEP_HOURS, Arrival, batch_pod, pod_of
from koordinator.cli.demo.hot_node import Crawler
from koordinator.cli.demo.observation import Day
from koordinator.cli.demo.progress import Page, Program
from koordinator.cli.demo.steps import Steps
from koordinator.cli.demo.waiting import NeverHappened, Waiting
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import parse_scenario
from koordinator.kube.interface import Client
from tests.in_memory_api import InMemoryApi

NODE_COUNT = 3
LAST_HOUR = 2.0
_READ = ("nodes", str(NODE_METRICS.qualified))
_SCENARIO = f"""
nodeGroups: [{{name: node, count: {NODE_COUNT}, cpu: "16", memory: 64Gi}}]
timing: {{startHour: 0, sampleInterval: 10m, reportInterval: 20m, podStart: [30s, 120s], podStop: [10s, 60s]}}
"""
Lag = Callable[[], float]
Seen = list[tuple[float, dict[str, tuple[str, str]], dict[str, float]]]
"""At each step: the hour, pod -> (node, phase), pod -> hour at which it was placed."""


class Lagging:
    """A program that reads what the API has, and works on it, after a pause each time."""

    def __init__(self, api: InMemoryApi, lag: Lag, work: Callable[[], Sequence[str]] = tuple) -> None:
        self._api = api
        self._lag = lag
        self._work = work
        self._revision = 0

    async def run(self) -> None:
        while True:
            await self._api.clock.sleep(self._lag())
            revision = self._api.revision
            self._work()
            self._revision = revision

    async def page(self) -> Page | str:
        # What was written since it read the last time, it has not seen; a pod without a node is in its hands.
        version = str(self._revision)
        in_hand = 0 if self._work is tuple else len(_pending(self._api))
        return Page(dict.fromkeys(_READ, version), {"pods": in_hand}, {})


def _pending(api: InMemoryApi) -> list[dict[str, Any]]:
    return [pod for pod in api.all(PODS) if not pod["spec"].get("nodeName")]


def _bind_all(api: InMemoryApi) -> Sequence[str]:
    bound = []
    for pod in _pending(api):
        name = pod["metadata"]["name"]
        node = f"node-{sum(name.encode()) % NODE_COUNT}"
        api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})
        bound.append(name)
    return bound


def _arrivals() -> Mapping[float, list[Arrival]]:
    amounts = {"cpu": "2", "memory": "1Gi"}
    services = tuple(pod_of(f"web-{number}", "koord-prod", "LS", amounts) for number in range(3))
    batch = tuple(batch_pod(f"batch-{number}", 40) for number in range(4))
    return {0.0: [Arrival(0.0, "services", services)], 0.5: [Arrival(0.5, "batch pods", batch)]}


def day_with(manager_lag: Lag, scheduler_lag: Lag) -> Seen:
    """What is seen of a short day while the programs lag so much."""
    api, seen = InMemoryApi(), list[Any]()
    clock = cast("ManualClock", api.clock)

    async def play(steps: Steps, day: Day) -> None:
        arrivals, hour = _arrivals(), 0.0
        async with steps.watching():
            while hour <= LAST_HOUR:
                await steps.take(hour, arrivals.get(hour, ()))
                pods = {
                    pod["metadata"]["name"]: (pod["spec"]["nodeName"], pod["status"]["phase"]) for pod in api.all(PODS)
                }
                seen.append((hour, pods, dict(day.workloads.placed)))
                hour += STEP_HOURS

    async def scenario() -> None:
        client: Client = api.client()
        api.put(CONFIG_MAPS, {"metadata": {"name": PACE, "namespace": SYSTEM_NAMESPACE}, "data": {}})
        for name, value in (("koord-prod", 9500), ("koord-batch", 5500)):
            api.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        fleet = Fleet(
            client, parse_scenario(_SCENARIO, "test"), clock=clock, random=Random(1), pace=(SYSTEM_NAMESPACE, PACE)
        )
        manager, scheduler = Lagging(api, manager_lag), Lagging(api, scheduler_lag, lambda: _bind_all(api))
        day = Day()
        program, placing = (
            Program("manager", manager.page, "manager"),
            Program("scheduler", scheduler.page, "scheduler"),
        )
        waiting = Waiting(clock, lambda text: None)
        steps = Steps(client, program, placing, program, day, Crawler(client, 0), waiting)
        running = [asyncio.create_task(work) for work in (fleet.run(), manager.run(), scheduler.run())]
        playing = asyncio.create_task(play(steps, day))
        try:
            while not playing.done():
                await clock.advance(0.25)
                for task in running:
                    if task.done():
                        task.result()
            await playing
        finally:
            for task in (*running, playing):
                task.cancel()
            await asyncio.gather(*running, playing, return_exceptions=True)

    asyncio.run(scenario())
    return seen


def steady(seconds: float) -> Lag:
    return lambda: seconds


@pytest.fixture(scope="module")
def without_lag() -> Seen:
    return day_with(steady(0.05), steady(0.05))


def test_the_day_without_lag(without_lag: Seen) -> None:
    assert [hour for hour, _, _ in without_lag] == [0.0, 0.5, 1.0, 1.5, 2.0]
    phases = [{name: phase for name, (_, phase) in pods.items()} for _, pods, _ in without_lag]
    assert set(phases[0].values()) == {"Pending"}
    assert {phases[1]["web-0"], phases[1]["batch-0"]} == {"Running", "Pending"}
    assert phases[2]["batch-0"] == "Running"
    assert phases[3]["batch-0"] == "Succeeded"
    assert without_lag[-1][2] == {**{f"web-{n}": 0.0 for n in range(3)}, **{f"batch-{n}": 0.5 for n in range(4)}}


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32), most=st.floats(0.1, 60.0), slower=st.floats(0.1, 60.0))
def test_the_day_is_the_same_however_far_programs_lag_behind(
    without_lag: Seen, seed: int, most: float, slower: float
) -> None:
    random = Random(seed)
    assert day_with(lambda: random.uniform(0.01, most), lambda: random.uniform(0.01, slower)) == without_lag


def test_a_program_that_has_stopped_ends_the_day_and_is_named() -> None:
    with pytest.raises(NeverHappened) as raised:
        day_with(steady(0.05), steady(1e9))
    error = raised.value
    assert error.when == "00:00"
    assert "koord-scheduler has used the NodeMetrics" in error.expected
    assert "scheduler has not read the last NodeMetric" in error.seen
    assert error.advice == ("koord status", "the log scheduler.log")
