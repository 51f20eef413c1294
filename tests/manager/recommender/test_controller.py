"""The recommender at work on the embedded API: passes, restarts, kills and permissions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import pytest

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, PODS, RECOMMENDATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.recommendation import DETAILS, POLICY, Recommendation
from koordinator.api.timestamps import format_time
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.manager.options import Options
from koordinator.manager.recommender.controller import RecommenderController
from koordinator.manager.recommender.debug_page import recommendation_document
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.manager.controller_bench import ControllerBench, controller_bench
from tests.waiting import wait_for

T = TypeVar("T", bound=Object)
OPTIONS = Options(recommender=RecommenderOptions(source="nodemetric", checkpoint_interval=timedelta(seconds=1)))
LABELS = {"app": "web"}
REQUESTS = {"cpu": "1", "memory": "1Gi"}


def condition(found: Recommendation, of: str) -> str:
    return next((each.status for each in found.status.conditions if each.type == of), "")


def target_of(found: Recommendation, resource: str) -> str:
    if found.status.pod_status is None:
        return ""
    (only,) = found.status.pod_status.container_statuses
    return str(only.resources.get(resource, ""))


async def add_pod(made: ControllerBench, name: str = "web-0") -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "x", "resources": {"requests": REQUESTS}}]}
    await made.client.create(PODS, {"metadata": {"name": name, "labels": LABELS}, "spec": spec}, "default")
    patch = {"status": {"phase": "Running"}}
    await made.client.patch(PODS, name, patch, PatchType.MERGE, "default", subresource="status")


async def add_recommendation(made: ControllerBench, **target: Any) -> None:
    chosen = target or {"type": "podSelector", "podSelector": {"matchLabels": LABELS}}
    body = {"metadata": {"name": "web"}, "spec": {"target": chosen}}
    await made.client.create(RECOMMENDATIONS, body, "default")


async def report(made: ControllerBench, cpu: str, memory: str = "1Gi", at: datetime | None = None) -> None:
    """The usage of web-0, at this moment of the controller's clock if no other is given."""
    usage = {"resources": {"cpu": cpu, "memory": memory}}
    pods = [{"name": "web-0", "namespace": "default", "podUsage": usage}]
    status = {"status": {"updateTime": format_time(at or made.clock.now()), "podsMetric": pods}}
    if not (await made.client.list(NODE_METRICS)).items:
        await made.client.create(NODE_METRICS, {"metadata": {"name": "n1"}})
    written = await made.client.patch(NODE_METRICS, "n1", status, PatchType.MERGE, subresource="status")
    version = written.metadata.resource_version
    await made.until_known(NODE_REPORTS, lambda metric: metric.metadata.resource_version == version)


@asynccontextmanager
async def working(made: ControllerBench) -> AsyncIterator[RecommenderController]:
    """From the end of the first pass on."""
    # Objects get the server's time, which is the real one; their usage is measured afterwards.
    made.clock.set_wall(max(made.clock.now(), datetime.now(UTC) + timedelta(minutes=1)))
    controller = RecommenderController(made.context)
    async with made.working(controller):
        await wait_for(lambda: passes(made) == 1)
        yield controller


def passes(made: ControllerBench) -> float:
    name = "koord_manager_recommender_loop_duration_seconds_count"
    return made.metrics.registry.get_sample_value(name, {"step": "checkpoints"}) or 0.0


async def next_pass(made: ControllerBench) -> None:
    before = passes(made)
    await made.clock.advance(60)
    await wait_for(lambda: passes(made) > before)


async def with_pod(made: ControllerBench) -> None:
    """A pod and a Recommendation that the controller knows."""
    await add_pod(made)
    await wait_for(
        lambda: len(cached(made, OBSERVED_PODS)) == 1 and cached(made, OBSERVED_PODS)[0].status.phase == "Running"
    )
    await add_recommendation(made)
    await wait_for(lambda: len(cached(made, RECOMMENDATIONS)) == 1)


def cached(made: ControllerBench, kind: Kind[T]) -> Sequence[T]:
    (informer,) = [each for each in made.informers if each.kind is kind]
    return cast("Sequence[T]", informer.list())


async def sampled(made: ControllerBench, cpu: str = "500m") -> None:
    await report(made, cpu)
    await next_pass(made)


async def shown(made: ControllerBench) -> Recommendation:
    """The Recommendation as it is on the API server."""
    return await made.client.get(RECOMMENDATIONS, "web", "default")


def test_usage_becomes_a_recommendation() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made):
            await with_pod(made)
            await sampled(made)
            found = await shown(made)
            assert (target_of(found, "cpu"), target_of(found, "memory")) == ("582m", "1182Mi")
            assert condition(found, "LowConfidence") == "True"
            assert json.loads(found.metadata.annotations[DETAILS])["main"]["samples"] == 1

    asyncio.run(scenario())


def test_a_new_recommendation_does_not_wait_for_the_interval() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made):
            await made.clock.advance(5)
            await add_recommendation(made, type="workload", workload={"kind": "Deployment", "name": "gone"})
            found = await made.once(RECOMMENDATIONS, lambda each: bool(each.status.conditions), "default")
            assert (condition(found, "NoObjectsMatched"), condition(found, "ConfigUnsupported")) == ("True", "False")

    asyncio.run(scenario())


def test_a_policy_that_cannot_be_used_is_reported_in_a_condition() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made):
            await with_pod(made)
            patch = {"metadata": {"annotations": {POLICY: "{"}}}
            await made.client.patch(RECOMMENDATIONS, "web", patch, PatchType.MERGE, "default")
            await wait_for(lambda: POLICY in cached(made, RECOMMENDATIONS)[0].metadata.annotations)
            await next_pass(made)
            assert condition(await shown(made), "ConfigUnsupported") == "True"

    asyncio.run(scenario())


def test_a_restart_goes_on_where_it_was() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made:
            async with working(made) as controller:
                await with_pod(made)
                for _ in range(3):
                    await sampled(made)
                assert samples(controller) == 3
                stored = await made.client.get(CONFIG_MAPS, "koord-recommendation-web", "default")
                assert json.loads(stored.data["main"])["totalSamplesCount"] == 3
            again = ControllerBench(made.client, OPTIONS)
            again.clock.set_wall(made.clock.now())
            async with working(again) as controller:
                assert samples(controller) >= 3

    asyncio.run(scenario())


def samples(controller: RecommenderController) -> int:
    found = controller.find("default", "web")
    return 0 if found is None or "main" not in found.models else found.models["main"].history.count


def test_a_container_that_is_killed_for_memory_needs_more() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made):
            await with_pod(made)
            await sampled(made)
            await killed(made, made.clock.now())
            await next_pass(made)
            # 1 GiB that it requested, a fifth more, the end of its bucket, and the margin.
            assert target_of(await shown(made), "memory") == "1484Mi"

    asyncio.run(scenario())


async def killed(made: ControllerBench, at: datetime) -> None:
    """The container of web-0 was killed for memory, as the controller knows."""
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": format_time(at)}}
    container = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 1}
    patch = {"status": {"containerStatuses": [container | {"state": {"running": {}}, "lastState": state}]}}
    await made.client.patch(PODS, "web-0", patch, PatchType.MERGE, "default", subresource="status")
    await wait_for(lambda: restarts(made) == 1)


def restarts(made: ControllerBench) -> int:
    (found,) = cached(made, OBSERVED_PODS)
    return sum(each.last_state.terminated is not None for each in found.status.container_statuses)


def test_samples_from_the_future_are_dropped() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            await report(made, "1", at=made.clock.now() + timedelta(hours=1))
            await next_pass(made)
            assert value(made, "in_future") == 1
            assert samples(controller) == 0

    asyncio.run(scenario())


def value(made: ControllerBench, result: str) -> float:
    found = made.metrics.registry.get_sample_value(
        "koord_manager_recommender_samples_total", {"source": "nodemetric", "resource": "all", "result": result}
    )
    return found or 0.0


MONTH = timedelta(days=30)


def test_a_clock_that_was_a_month_ahead_spoils_no_recommendation() -> None:
    """Of all machines, so that the samples of that time are dated so, too."""

    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            for _ in range(20):
                await sampled(made)
            learned = target_of(await shown(made), "cpu")
            made.clock.set_wall(made.clock.now() + MONTH)
            await sampled(made, "4")
            made.clock.set_wall(made.clock.now() - MONTH)
            await sampled(made)
            assert samples(controller) == 22
            assert target_of(await shown(made), "cpu") == learned
            stored = await made.client.get(CONFIG_MAPS, "koord-recommendation-web", "default")
            assert json.loads(stored.data["main"])["lastSampleStart"] <= format_time(made.clock.now())

    asyncio.run(scenario())


def test_a_clock_that_was_a_month_ahead_forgets_nothing() -> None:
    """Of the manager alone: it gets no samples meanwhile."""

    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            await sampled(made)
            made.clock.set_wall(made.clock.now() + MONTH)
            await next_pass(made)
            made.clock.set_wall(made.clock.now() - MONTH)
            await sampled(made)
            assert samples(controller) == 2

    asyncio.run(scenario())


def test_a_pod_that_was_created_while_the_clock_was_ahead_is_measured() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            made.clock.set_wall(datetime.now(UTC) - MONTH)
            await with_pod(made)
            await sampled(made)
            assert samples(controller) == 1

    asyncio.run(scenario())


def test_a_kill_that_a_node_dates_ahead_counts_as_of_now() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            await sampled(made)
            await killed(made, made.clock.now() + MONTH)
            await next_pass(made)
            found = controller.find("default", "web")
            assert found is not None
            assert found.last_sample is not None
            assert found.last_sample <= made.clock.now()
            assert target_of(await shown(made), "memory") == "1484Mi"

    asyncio.run(scenario())


def test_without_permission_to_store_checkpoints_it_works_all_the_same() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made:
            forbid(made, "list", CONFIG_MAPS)
            async with working(made):
                await with_pod(made)
                await sampled(made)
                assert target_of(await shown(made), "cpu") == "582m"

    asyncio.run(scenario())


def forbid(made: ControllerBench, verb: str, of: Kind[Any]) -> None:
    """What a role that lacks this permission does to the controller's requests."""
    allowed = getattr(made.client, verb)

    async def refuse(kind: Kind[Any], *arguments: Any, **more: Any) -> Any:
        if kind is of:
            raise ApiStatusError(403, "Forbidden", f"may not {verb} {of.plural}")
        return await allowed(kind, *arguments, **more)

    setattr(made.client, verb, refuse)


def test_a_recommendation_that_is_deleted_is_forgotten() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            await sampled(made)
            assert controller.find("default", "web") is not None
            await made.client.delete(RECOMMENDATIONS, "web", "default")
            await wait_for(lambda: not cached(made, RECOMMENDATIONS))
            await next_pass(made)
            assert controller.find("default", "web") is None

    asyncio.run(scenario())


def test_the_debug_page_shows_the_distribution() -> None:
    async def scenario() -> None:
        async with controller_bench(OPTIONS) as made, working(made) as controller:
            await with_pod(made)
            await sampled(made)
            found = controller.find("default", "web")
            assert found is not None
            document = recommendation_document(found)
            assert document["pods"] == ["web-0"]
            cpu = document["containers"]["main"]["cpu"]
            assert cpu["mean"] == pytest.approx(0.5, rel=0.05)
            assert cpu["p90"] == cpu["max"] == pytest.approx(0.50567, rel=1e-4)

    asyncio.run(scenario())
