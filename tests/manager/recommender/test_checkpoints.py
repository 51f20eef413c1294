"""What is stored of a model restores it, and what cannot be used costs one container alone."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.recommender.checkpoints import Checkpoints, checkpoint, checkpoint_name
from koordinator.manager.recommender.options import ModelOptions, RecommenderOptions
from koordinator.manager.recommender.tracked import Tracked
from tests.in_memory_api import InMemoryApi
from tests.manager.recommender.pods import DAY, MINUTE, START, pod, reading, tracked

MODEL = ModelOptions()


def fed(*cores: float) -> Tracked:
    made = tracked(pod())
    for number, used in enumerate(cores):
        usage = {"main": {"cpu": f"{used:.3f}", "memory": "1Gi"}}
        made.feed(made.pods[0], reading(START + number * MINUTE, usage), MODEL)
    return made


def checkpoints(client: KubeClient, clock: ManualClock | None = None) -> Checkpoints:
    return Checkpoints(client, RecommenderOptions(), "", clock or ManualClock(), Metrics())


async def restored(stored: dict[str, Any], into: Tracked, clock: ManualClock | None = None) -> bool:
    client = InMemoryApi().client()
    await client.create(CONFIG_MAPS, stored, "default")
    found = checkpoints(client, clock)
    await found.load()
    return found.restore(into)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_restored_model_gives_nearly_the_same_percentiles(cores: list[float], fraction: float) -> None:
    made, again = fed(*cores), tracked(pod())
    assert asyncio.run(restored(dict(checkpoint(made, START)), again))
    model, before = again.models["main"], made.models["main"]
    assert model.history == before.history
    # Weights are stored in ten-thousandths of the heaviest, so that the fraction is off by as much.
    low, high = before.cpu.percentile(fraction - 0.005), before.cpu.percentile(fraction + 0.005)
    assert low <= model.cpu.percentile(fraction) <= high


def test_a_sample_that_is_in_the_checkpoint_does_not_count_again() -> None:
    made, again = fed(1.0, 2.0), tracked(pod())
    asyncio.run(restored(dict(checkpoint(made, START)), again))
    for minute in (1, 2):
        again.feed(again.pods[0], reading(START + minute * MINUTE, {"main": {"cpu": "2", "memory": "1Gi"}}), MODEL)
    assert again.models["main"].history.count == 3


MONTH = 30 * DAY


def feed(into: Tracked, cores: str, start: datetime, minutes: int) -> None:
    for minute in range(minutes):
        usage = {"main": {"cpu": cores, "memory": "1Gi"}}
        into.feed(into.pods[0], reading(start + minute * MINUTE, usage), MODEL)


def test_a_checkpoint_of_the_future_counts_as_made_now() -> None:
    """A program that was started with a clock ahead has written it, and this one has the right clock."""
    made, again = tracked(pod()), tracked(pod())
    feed(made, "1", START + MONTH, 10)
    assert asyncio.run(restored(dict(checkpoint(made, START + MONTH + 10 * MINUTE)), again, ManualClock(START)))
    model = again.models["main"]
    assert (model.history.first, model.history.last) == (START - 10 * MINUTE, START - MINUTE)
    feed(again, "4", START, 20)
    assert model.history.count == 30
    assert model.cpu.percentile(0.5) > 3


def test_a_checkpoint_is_dated_by_the_wall_clock() -> None:
    clock = ManualClock(START)
    made = tracked(pod(), clock=clock)
    feed(made, "1", START, 10)
    clock.set_wall(START + MONTH)
    feed(made, "1", START + MONTH + 10 * MINUTE, 1)
    stored = json.loads(checkpoint(made, START + MONTH)["data"]["main"])
    assert stored["firstSampleStart"] == "2026-01-31T00:00:00Z"
    assert stored["lastSampleStart"] == "2026-01-31T00:10:00Z"
    assert stored["cpu"]["referenceTimestamp"] == "2026-01-31T00:00:00Z"
    again = tracked(pod())
    again.time = made.time
    asyncio.run(restored(dict(checkpoint(made, START + MONTH)), again, clock))
    assert again.models["main"].history == made.models["main"].history


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lastSampleStart": "2026-02-01T00:00:00Z"}, "lastSampleStart"),
        (
            {"memory": {"referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": {"1": 1}, "totalWeight": 2**30}},
            "totalWeight",
        ),
        (
            {"cpu": {"referenceTimestamp": "0001-01-01T00:00:00Z", "bucketWeights": {"1": 1}, "totalWeight": 1}},
            "referenceTimestamp",
        ),
    ],
)
def test_what_a_clock_ahead_has_spoiled_is_learned_anew(
    change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = dict(checkpoint(fed(1.0), START))
    stored["data"] = {"main": json.dumps(json.loads(stored["data"]["main"]) | change)}
    assert not asyncio.run(restored(stored, tracked(pod())))
    assert f"the container is learned anew: {reason} is" in caplog.text


def test_times_that_no_clock_has_shown_do_no_harm() -> None:
    clock = ManualClock(START)
    stored, again = dict(checkpoint(fed(1.0), START)), tracked(pod(), clock=clock)
    stored["data"] = {
        "main": json.dumps(json.loads(stored["data"]["main"]) | {"firstSampleStart": "0001-01-01T00:00:00Z"})
    }
    asyncio.run(restored(stored, again, clock))
    clock.set_wall(START - MONTH)
    assert json.loads(checkpoint(again, START)["data"]["main"])["totalSamplesCount"] == 1


def test_the_current_memory_interval_is_not_stored() -> None:
    stored = json.loads(checkpoint(fed(1.0), START)["data"]["main"])
    assert "bucketWeights" not in stored["memory"]
    assert stored["cpu"]["bucketWeights"]


def test_a_second_interval_is_stored_after_the_first_has_ended() -> None:
    made = fed(1.0)
    made.feed(made.pods[0], reading(START + 2 * DAY, {"main": {"cpu": "1", "memory": "2Gi"}}), MODEL)
    assert json.loads(checkpoint(made, START)["data"]["main"])["memory"]["bucketWeights"]


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v2"},
        {"targetHash": "another"},
        {"cpu": None},
        {"cpu": {"bucketWeights": {"1": 1}, "totalWeight": 1}},
        {"memory": {"referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": {"900": 1}, "totalWeight": 1}},
        {"memory": {"referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": {"x": 1}, "totalWeight": 1}},
        {"totalSamplesCount": "many"},
    ],
)
def test_what_cannot_be_used_costs_that_container_alone(change: dict[str, Any]) -> None:
    stored = dict(checkpoint(fed(1.0), START))
    good = stored["data"]["main"]
    stored["data"] = {"main": good, "broken": json.dumps(json.loads(good) | change), "text": "no JSON"}
    again = tracked(pod())
    assert asyncio.run(restored(stored, again))
    assert list(again.models) == ["main"]


def test_a_checkpoint_of_an_earlier_recommendation_of_the_same_name_is_not_used() -> None:
    stored = dict(checkpoint(fed(1.0), START))
    stored["metadata"]["ownerReferences"][0]["uid"] = "uid-of-another"
    assert not asyncio.run(restored(stored, tracked(pod())))


def test_a_failed_list_is_an_error_so_that_nothing_is_overwritten() -> None:
    async def scenario() -> None:
        api = InMemoryApi()
        client = api.client()
        api.fault = lambda requested, done: ApiStatusError(500, "InternalError", "later")
        found = checkpoints(client)
        with pytest.raises(ApiStatusError):
            await found.load()
        await found.write([fed(1.0)])
        assert api.writes["patch", "configmaps"] == 0

    asyncio.run(scenario())


def test_without_permission_nothing_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        api = InMemoryApi()
        client = api.client()
        api.fault = lambda requested, done: ApiStatusError(403, "Forbidden", "may not list configmaps")
        found = checkpoints(client)
        await found.load()
        await found.load()
        await found.write([fed(1.0)])
        assert api.writes["patch", "configmaps"] == 0

    asyncio.run(scenario())
    assert [record.message for record in caplog.records] == [
        "recommender: no checkpoints are kept, a restart begins anew: may not list configmaps (403 Forbidden)"
    ]


def test_a_checkpoint_is_written_when_it_is_due() -> None:
    async def scenario() -> None:
        api = InMemoryApi()
        clock = ManualClock()
        found = Checkpoints(api.client(), RecommenderOptions(), "", clock, Metrics())
        await found.load()
        made = fed(1.0)
        await found.write([made, tracked(pod())])
        first = api.document(CONFIG_MAPS, "koord-recommendation-web", "default")
        await found.write([made])
        assert api.document(CONFIG_MAPS, "koord-recommendation-web", "default") == first
        await clock.advance(600)
        await found.write([made])
        assert api.document(CONFIG_MAPS, "koord-recommendation-web", "default") != first

    asyncio.run(scenario())


def test_a_container_that_is_forgotten_leaves_the_checkpoint() -> None:
    async def scenario() -> None:
        api = InMemoryApi()
        stored = dict(checkpoint(fed(1.0), START))
        stored["data"]["gone"] = "{}"
        api.put(CONFIG_MAPS, stored)
        found = checkpoints(api.client())
        await found.load()
        made = tracked(pod())
        found.restore(made)
        made.stored_at = None
        await found.write([made])
        assert list(api.document(CONFIG_MAPS, "koord-recommendation-web", "default")["data"]) == ["main"]

    asyncio.run(scenario())


def test_those_written_longest_ago_come_first_when_time_is_short() -> None:
    async def scenario() -> None:
        api = InMemoryApi()
        options = RecommenderOptions(min_checkpoints=1, checkpoints_timeout=timedelta(seconds=-1))
        found = Checkpoints(api.client(), options, "", ManualClock(), Metrics())
        await found.load()
        older, newer = named("older"), named("newer")
        older.stored_at, newer.stored_at = -2 * 86400.0, -86400.0
        await found.write([newer, older])
        assert "koord-recommendation-older" in api.names(CONFIG_MAPS)
        assert "koord-recommendation-newer" not in api.names(CONFIG_MAPS)

    asyncio.run(scenario())


def named(name: str) -> Tracked:
    made = fed(1.0)
    metadata = replace(made.recommendation.metadata, name=name)
    made.recommendation = replace(made.recommendation, metadata=metadata)
    return made


def test_a_long_name_is_cut_and_stays_unique() -> None:
    first, second = checkpoint_name("a" * 253), checkpoint_name("a" * 252 + "b")
    assert (len(first), len(second)) == (253, 253)
    assert first != second
    assert checkpoint_name("web") == "koord-recommendation-web"
