"""History from a Prometheus server, which responds as the real one does; tests/real asks a real one."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from koordinator.base.clock import ManualClock, SteadyTime, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.kube.reconciler import Reconcilers
from koordinator.manager.recommender.history import HistoryLoader, pods_pattern
from koordinator.manager.recommender.options import HistoryOptions, RecommenderOptions
from koordinator.manager.recommender.tracked import Tracked, hash_of_target
from tests.manager.recommender.pods import container, pod, recommendation, tracked
from tests.manager.webhook.making import certificates


def series(pod_name: str, container_name: str, *values: float) -> dict[str, Any]:
    labels = {"pod": pod_name, "container": container_name, "namespace": "default"}
    return {"metric": labels, "values": [[1767225600 + 3600 * at, str(each)] for at, each in enumerate(values)]}


def matrix(*found: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}


class Credentials(NamedTuple):
    token_file: str = ""
    ca_file: str = ""


class Prometheus:
    """Answers each query with the next of these; ``queries`` are those that came."""

    def __init__(self, *responses: Any) -> None:
        self._responses = list(responses)
        self.queries: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        self.queries.append({key: str(value) for key, value in (await request.post()).items()})
        response = self._responses.pop(0)
        if isinstance(response, bytes):
            return web.Response(body=response, status=500)
        return web.Response(text=json.dumps(response), content_type="application/json")


def reconcilers(clock: ManualClock) -> Reconcilers:
    return Reconcilers(clock, Metrics(), "reconcile_total")


@asynccontextmanager
async def loader(
    prometheus: Prometheus, clock: ManualClock, served_with: ssl.SSLContext | None, credentials: Credentials
) -> AsyncIterator[tuple[HistoryLoader, asyncio.Event]]:
    application = web.Application()
    application.router.add_post("/api/v1/query_range", prometheus.handle)
    server = TestServer(application, scheme="https" if served_with else "http")
    await server.start_server(ssl=served_with)
    finished = asyncio.Event()
    history = HistoryOptions(str(server.make_url("/")), credentials.token_file, credentials.ca_file)
    made = HistoryLoader(RecommenderOptions(history=history), clock, reconcilers(clock), finished.set)
    running = asyncio.create_task(made.run())
    # Until it runs, nothing is queued.
    await asyncio.sleep(0)
    try:
        yield made, finished
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await server.close()


def load(
    *responses: Any,
    of: Tracked | None = None,
    served_with: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
) -> tuple[Tracked, Prometheus]:
    """The history of a Recommendation, loaded."""
    made, prometheus = of or tracked(pod("web-0", container("main", cpu="2"))), Prometheus(*responses)

    async def scenario() -> None:
        clock = ManualClock()
        async with loader(prometheus, clock, served_with, credentials or Credentials()) as (history, finished):
            history.want(made)
            assert made.is_fetching_history
            history.request(made)
            async with asyncio.timeout(20):
                while not finished.is_set():
                    await clock.advance(60)
                    await asyncio.sleep(0)

    asyncio.run(scenario())
    assert not made.is_fetching_history
    return made, prometheus


def test_history_fills_the_models() -> None:
    made, _ = load(matrix(series("web-0", "main", *[1.0] * 24)), matrix(series("web-0", "main", *[2.0**30] * 24)))
    model = made.models["main"]
    assert model.cpu.percentile(0.9) == pytest.approx(1.02, rel=0.05)
    assert model.memory.percentile(0.9) == pytest.approx(2**30, rel=0.05)


def test_a_sample_stands_for_all_minutes_of_its_step() -> None:
    made, _ = load(matrix(series("web-0", "main", *[1.0] * 24)), matrix())
    assert made.models["main"].history.count == 24 * 60


def test_the_replicas_of_history_are_not_kept() -> None:
    made, _ = load(matrix(series("web-0", "main", 1.0)), matrix(series("web-0", "main", 1.0)))
    assert made.models["main"].replicas == {}


def test_the_query_is_about_the_pods_of_the_workload() -> None:
    found = recommendation(type="workload", workload={"kind": "Deployment", "name": "web"})
    _, prometheus = load(matrix(), matrix(), of=Tracked(found, hash_of_target(found), SteadyTime(ManualClock())))
    cpu, memory = (each["query"] for each in prometheus.queries)
    assert cpu.startswith('rate(container_cpu_usage_seconds_total{namespace="default",pod=~"web-[a-z0-9]+-[a-z0-9]+"')
    assert cpu.endswith("[3600s])")
    assert memory.startswith("max_over_time(container_memory_working_set_bytes{")


@pytest.mark.parametrize(
    ("kind", "pattern"), [("StatefulSet", "web-[0-9]+"), ("CronJob", "web-[0-9]+-[a-z0-9]+"), ("CloneSet", "a|b\\\\.c")]
)
def test_the_names_of_pods(kind: str, pattern: str) -> None:
    found = recommendation(type="workload", workload={"kind": kind, "name": "web", "apiVersion": "x/v1"})
    made = Tracked(found, hash_of_target(found), SteadyTime(ManualClock()), pods=(pod("b.c"), pod("a")))
    assert pods_pattern(made) == pattern


def test_values_that_are_no_numbers_are_left_out() -> None:
    made, _ = load(matrix(series("web-0", "main", float("nan"), 1.0)), matrix())
    assert made.models["main"].history.count == 60


@pytest.mark.parametrize("broken", [b"<html>", {"status": "error", "errorType": "bad_data", "error": "parse"}, {}, []])
def test_a_failure_is_tried_again(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = load(broken, matrix(series("web-0", "main", 1.0)), matrix())
    assert made.models["main"].history.count == 60
    assert "recommender-history: uid-web: http://" in caplog.text


def test_it_is_given_up_after_three_attempts() -> None:
    made, prometheus = load(b"", b"", b"")
    assert len(prometheus.queries) == 3
    assert made.models == {}


@pytest.fixture
def served_with(tmp_path: Path) -> ssl.SSLContext:
    """The certificate of a server on this machine; its authority is in the file ``ca.crt``."""
    made = certificates("127.0.0.1", SystemClock().now())
    for name, text in {"ca.crt": made.authority, "tls.crt": made.certificate, "tls.key": made.key}.items():
        (tmp_path / name).write_bytes(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    return context


def test_the_token_is_read_for_each_query(served_with: ssl.SSLContext, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    credentials = Credentials(str(token), str(tmp_path / "ca.crt"))
    _, prometheus = load(matrix(), matrix(), served_with=served_with, credentials=credentials)
    assert prometheus.authorizations == ["Bearer first"] * 2


def test_a_server_of_another_authority_gets_nothing(
    served_with: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    _, prometheus = load(matrix(), served_with=served_with, credentials=Credentials(str(token)))
    assert prometheus.authorizations == []
    assert "certificate verify failed" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("missing", ["token_file", "ca_file"])
def test_a_file_that_cannot_be_read_is_named(
    missing: str, served_with: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials("", str(tmp_path / "ca.crt"))._replace(**{missing: str(tmp_path / "absent")})
    _, prometheus = load(matrix(), served_with=served_with, credentials=credentials)
    assert prometheus.queries == []
    assert str(tmp_path / "absent") in caplog.text


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_named(
    content: bytes, served_with: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    _, prometheus = load(matrix(), served_with=served_with, credentials=Credentials(str(token)))
    assert prometheus.queries == []
    assert f"{token}: this is no token" in caplog.text


def test_without_an_address_nothing_is_fetched() -> None:
    made = tracked(pod())
    clock = ManualClock()
    HistoryLoader(RecommenderOptions(), clock, reconcilers(clock), lambda: None).want(made)
    assert not made.is_fetching_history
