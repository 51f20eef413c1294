"""Readings: whose usage they are, and which source is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.yielding import CooperativeYielding
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import ListPage
from koordinator.manager.recommender.options import AUTO, METRICS_API, NODE_METRIC
from koordinator.manager.recommender.samples import (
    MetricsApi,
    NodeMetricReports,
    PodMetrics,
    Reading,
    Readings,
    Samples,
)
from tests.in_memory_api import InMemoryApi
from tests.manager.recommender.pods import START, container, pod, reading


def test_usage_by_container_is_taken_as_it_is() -> None:
    found = reading(START, {"main": {"cpu": "250m", "memory": "1Ki"}, "proxy": {"cpu": "1", "memory": "2Ki"}})
    containers = pod("p", container("main"), container("proxy")).containers
    assert found.cpu(containers) == {"main": 0.25, "proxy": 1.0}
    assert found.memory(containers) == {"main": 1024, "proxy": 2048}


def test_a_container_that_the_pod_does_not_have_is_left_out() -> None:
    found = reading(START, {"main": {"cpu": "1"}, "debugger": {"cpu": "9"}})
    assert found.cpu(pod().containers) == {"main": 1.0}


def test_the_usage_of_a_whole_pod_is_that_of_its_only_container() -> None:
    assert reading(START, {"pod": {"cpu": "2"}}).cpu(pod().containers) == {"main": 2.0}


def test_the_usage_of_a_whole_pod_is_divided_by_requests() -> None:
    containers = pod("p", container("a", cpu="3"), container("b", cpu="1")).containers
    assert reading(START, {"pod": {"cpu": "2"}}).cpu(containers) == {"a": 1.5, "b": 0.5}


def test_without_requests_it_is_divided_equally() -> None:
    containers = pod("p", container("a"), container("b")).containers
    assert reading(START, {"pod": {"cpu": "2"}}).cpu(containers) == {"a": 1.0, "b": 1.0}


def test_a_resource_that_is_not_reported_has_no_usage() -> None:
    assert reading(START, {"pod": {"cpu": "2"}}).memory(pod().containers) == {}


class OnePage:
    """A client that lists these PodMetrics."""

    def __init__(self, *items: dict[str, object]) -> None:
        self._items = [convert(item, PodMetrics) for item in items]

    async def list(self, _: object, namespace: str = "") -> ListPage[PodMetrics]:
        return ListPage([item for item in self._items if item.metadata.namespace == namespace], [], "1", "", None)


def test_the_metrics_api_is_read_by_namespace() -> None:
    def metrics(namespace: str, name: str) -> dict[str, object]:
        containers = [{"name": "main", "usage": {"cpu": "1", "memory": "1Gi"}}]
        metadata = {"namespace": namespace, "name": name}
        return {"metadata": metadata, "timestamp": "2026-01-01T00:00:00Z", "containers": containers}

    client = OnePage(metrics("a", "p"), metrics("b", "q"), {"metadata": {"namespace": "a", "name": "without-time"}})
    found = asyncio.run(MetricsApi(client).read(["a"]))  # type: ignore[arg-type]
    assert list(found) == [("a", "p")]
    assert found["a", "p"].at == START


class Fixed:
    """A source with this result."""

    def __init__(self, name: str, result: Readings | KubeError) -> None:
        self.name = name
        self._result = result

    async def read(self, namespaces: Iterable[str]) -> Readings:
        if isinstance(self._result, KubeError):
            raise self._result
        return self._result


SOME = {("default", "p"): Reading(START, {}, {})}


@pytest.mark.parametrize("first", [ApiStatusError(404, "NotFound", "no such API"), {}])
def test_auto_takes_the_first_source_that_has_readings(first: Readings | KubeError) -> None:
    samples = Samples(AUTO, (Fixed(METRICS_API, first), Fixed(NODE_METRIC, SOME)))
    assert asyncio.run(samples.read(["default"])) == (NODE_METRIC, SOME)


def test_a_pod_of_which_a_report_lacks_a_reading_has_none() -> None:
    """Nothing told is not a usage of zero."""
    usages = {
        "whole": {"cpu": "2", "memory": "1Ki"},
        "half": {"cpu": "2"},
        "none": {},
        "idle": {"cpu": "0", "memory": "0"},
    }
    pods = [{"name": name, "namespace": "default", "podUsage": {"resources": usage}} for name, usage in usages.items()]

    async def read() -> Readings:
        clock = ManualClock(start=START)
        async with InMemoryApi(clock).running() as api:
            status = {"updateTime": format_time(START), "podsMetric": pods}
            api.put(NODE_METRICS, {"metadata": {"name": "n"}, "spec": {}, "status": status})
            informers = InformerSet(api.client(), clock=clock, random=Random(1))
            source = NodeMetricReports(informers, clock, CooperativeYielding(clock))
            async with asyncio.TaskGroup() as group:
                running = group.create_task(informers.run())
                await clock.advance(1)
                found = await source.read(["default"])
                running.cancel()
            return found

    found = asyncio.run(read())
    containers = pod().containers
    assert {name: dict(each.cpu(containers)) for (_, name), each in found.items()} == {
        "whole": {"main": 2.0},
        "idle": {"main": 0.0},
    }


def test_a_source_that_is_chosen_is_the_only_one() -> None:
    samples = Samples(METRICS_API, (Fixed(METRICS_API, {}), Fixed(NODE_METRIC, SOME)))
    assert asyncio.run(samples.read(["default"])) == ("", {})


def test_a_change_of_the_source_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    samples = Samples(AUTO, (Fixed(METRICS_API, ApiStatusError(503, "", "down")), Fixed(NODE_METRIC, SOME)))

    async def twice() -> None:
        await samples.read(["default"])
        await samples.read(["default"])

    with caplog.at_level("INFO"):
        asyncio.run(twice())
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("recommender: samples come from nodemetric (metrics-api: down")
