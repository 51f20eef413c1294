"""History from a Prometheus server, which responds as the real one does; tests/real asks a real one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from koordinator.api.manifests.monitoring.colocation_panels import BATCH_USED, ONLINE_USED
from koordinator.base.clock import ManualClock
from koordinator.cli.page.history import SPANS, HistoryError
from koordinator.cli.page.prometheus_history import PrometheusHistory
from koordinator.kube.prometheus import PrometheusServer

DAY = SPANS["24h"]
NOW = 1_767_225_600


class Prometheus:
    """Has these values, of the expressions that it knows, in the step before the last."""

    def __init__(self, values: dict[str, str], status: int = 200) -> None:
        self._values = values
        self._status = status
        self.queries: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        query = {key: str(value) for key, value in (await request.post()).items()}
        self.queries.append(query)
        value = self._values.get(query["query"])
        result: list[Any] = [{"metric": {}, "values": [[int(query["end"]) - DAY.step, value]]}] if value else []
        document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return web.Response(text=json.dumps(document), status=self._status)

    def read(self) -> dict[str, Any]:
        async def run() -> dict[str, Any]:
            application = web.Application()
            application.router.add_post("/prometheus/api/v1/query_range", self.handle)
            async with TestServer(application) as server:
                address = str(server.make_url("/prometheus/"))
                return await PrometheusHistory(PrometheusServer(address, ManualClock())).read(DAY, NOW + 7)

        return asyncio.run(run())


def test_cores_of_prometheus_are_milli_cpu_of_the_page() -> None:
    prometheus = Prometheus({ONLINE_USED: "23.383", BATCH_USED: "22.114"})
    assert prometheus.read() == {
        "times": [NOW - DAY.step],
        "series": {"online_measured": [23383], "batch_measured": [22114]},
        "step": DAY.step,
    }
    assert {(each["start"], each["end"], each["step"]) for each in prometheus.queries} == {
        (str(NOW - DAY.seconds), str(NOW), str(DAY.step))
    }


def test_a_server_without_the_metrics_has_an_empty_history() -> None:
    assert Prometheus({BATCH_USED: "NaN"}).read() == {"times": [], "series": {}, "step": DAY.step}


def test_a_server_that_does_not_answer_is_named() -> None:
    async def read() -> None:
        server = PrometheusServer("http://127.0.0.1:1", ManualClock())
        await PrometheusHistory(server).read(DAY, NOW)

    with pytest.raises(HistoryError, match=r"the history cannot be read: http://127\.0\.0\.1:1/api/v1/query_range: "):
        asyncio.run(read())
