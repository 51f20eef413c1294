"""Every profile that cannot be used is named where its author looks, whether or not existing pods follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES
from koordinator.kube.event_series import EVENTS_V1
from koordinator.manager import features
from koordinator.manager.colocation_profile.profile_review import are_profiles_read
from koordinator.manager.features import make_features
from koordinator.manager.options import Options
from tests.in_memory_api import Document
from tests.manager.broken_input.bench import ManagerBench

UNUSABLE = "koord_manager_colocation_profile_unusable"


def profile(**spec: Any) -> Document:
    return {"metadata": {"name": "bad"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


def run(bench: ManagerBench, story: Callable[[], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with bench.working():
            await story()

    asyncio.run(scenario())


def test_a_profile_that_no_controller_manages_gets_an_event_and_a_metric() -> None:
    bench = ManagerBench()
    bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile(probability="often"))

    async def story() -> None:
        (note,) = bench.notes("InvalidProfile", "bad")
        assert note == (
            'ClusterColocationProfile "bad" is not applied: spec.probability: Invalid value: "often": must be a whole '
            "number from 0 to 100, or such a number followed by %"
        )
        assert bench.sample(UNUSABLE, profile="bad") == 1

    run(bench, story)


def test_the_metric_is_gone_when_the_profile_was_put_right() -> None:
    bench = ManagerBench()
    bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile(probability="often"))

    async def story() -> None:
        bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile(probability="50%"))
        await bench.until_idle()
        assert bench.sample(UNUSABLE, profile="bad") is None

    run(bench, story)


def test_the_metric_is_gone_with_the_profile() -> None:
    bench = ManagerBench()
    bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile(patch="x"))

    async def story() -> None:
        bench.cluster.remove(CLUSTER_COLOCATION_PROFILES, "bad")
        await bench.until_idle()
        assert bench.sample(UNUSABLE, profile="bad") is None

    run(bench, story)


def test_the_event_goes_on_while_the_profile_is_unusable() -> None:
    """An API server forgets an event after an hour."""
    bench = ManagerBench()
    bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile(probability="often"))

    async def story() -> None:
        await bench.clock.advance(301)
        await bench.until_idle()
        (event,) = [each for each in bench.cluster.all(EVENTS_V1) if each["reason"] == "InvalidProfile"]
        assert event["series"]["count"] == 2

    run(bench, story)


@pytest.mark.parametrize(
    ("gates", "read"),
    [
        ({}, True),
        ({features.WEBHOOK_FRAMEWORK: False}, False),
        ({features.POD_MUTATING_WEBHOOK: False}, False),
        ({features.POD_MUTATING_WEBHOOK: False, features.RESERVATION_MUTATING_WEBHOOK: True}, True),
        ({features.WEBHOOK_FRAMEWORK: False, features.COLOCATION_PROFILE_CONTROLLER: True}, True),
    ],
)
def test_profiles_are_looked_at_where_something_applies_them(gates: dict[str, bool], read: bool) -> None:
    made = make_features()
    made.set(gates)
    assert are_profiles_read(Options(features=made)) is read
