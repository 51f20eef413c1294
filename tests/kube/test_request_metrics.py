"""What is counted of requests, under the names of Kubernetes' own client."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from koordinator.api import kinds
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import KubeError
from tests.kube.clients import client_of, run
from tests.kube.scripted_server import ScriptedServer, Step, config_map, cut, failure, response, stream

OK = response(config_map("a"))


class Counted:
    """The metrics after a verb has been played against the steps."""

    def __init__(self, steps: list[Step], verb: Any) -> None:
        self._metrics = Metrics()
        self._host = ""

        async def work() -> None:
            async with (
                ScriptedServer(*steps) as server,
                client_of(server.url, metrics=self._metrics) as client,
            ):
                self._host = urlsplit(server.url).netloc
                with suppress(KubeError):
                    await verb(client)

        run(work())

    def requests(self, code: str, method: str) -> float | None:
        return self._sample("rest_client_requests_total", code=code, method=method)

    def durations(self, verb: str) -> float | None:
        return self._sample("rest_client_request_duration_seconds_count", verb=verb)

    def bounds(self) -> list[str]:
        name = "rest_client_request_duration_seconds"
        return [
            sample.labels["le"]
            for family in self._metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"{name}_bucket"
        ]

    def _sample(self, name: str, **labels: str) -> float | None:
        return self._metrics.registry.get_sample_value(name, {**labels, "host": self._host})


def create(client: Any) -> Any:
    return client.create(kinds.CONFIG_MAPS, {}, "default")


def get(client: Any) -> Any:
    return client.get(kinds.CONFIG_MAPS, "a", "default")


async def watch(client: Any) -> None:
    async for _ in client.watch(kinds.CONFIG_MAPS):
        pass


@pytest.mark.parametrize(
    ("step", "verb", "code", "method"),
    [
        (response(config_map("a"), 201), create, "201", "POST"),
        (OK, get, "200", "GET"),
        (failure(404, "NotFound"), get, "404", "GET"),
        (cut(), create, "<error>", "POST"),
        (stream(), watch, "200", "GET"),
        (failure(410, "Expired"), watch, "410", "GET"),
    ],
)
def test_a_request_is_counted_by_its_response(step: Step, verb: Any, code: str, method: str) -> None:
    assert Counted([step], verb).requests(code, method) == 1


def test_every_attempt_counts() -> None:
    busy = failure(429, "TooManyRequests", headers={"Retry-After": "1"})
    counted = Counted([busy, busy, OK], get)
    assert (counted.requests("429", "GET"), counted.requests("200", "GET")) == (2, 1)


def test_a_call_is_timed_once_with_all_its_attempts() -> None:
    assert Counted([cut(), OK], get).durations("GET") == 1


def test_a_call_that_fails_is_timed() -> None:
    assert Counted([failure(409, "Conflict")], create).durations("POST") == 1


def test_watches_are_not_timed() -> None:
    assert Counted([stream()], watch).durations("GET") is None


def test_the_buckets_are_those_of_kubernetes() -> None:
    bounds = "0.005 0.025 0.1 0.25 0.5 1.0 2.0 4.0 8.0 15.0 30.0 60.0 +Inf"
    assert Counted([OK], get).bounds() == bounds.split()
