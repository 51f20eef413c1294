"""Health, readiness and metrics over HTTP."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from koordinator.base.metrics import Metrics
from koordinator.kube.pages import Request, Response, json_response
from koordinator.kube.serving import HealthServer
from tests.kube.certificates import Authority


def send(path: str, prepare: Callable[[HealthServer], None] | None = None, **headers: str) -> tuple[int, str, str]:
    """Status, body and content type of one GET on a server of its own."""

    async def scenario() -> tuple[int, str, str]:
        metrics = Metrics()
        metrics.counter("things_total", "Things").inc()
        server = HealthServer(metrics)
        if prepare is not None:
            prepare(server)
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}{path}"
            async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
                return response.status, await response.text(), response.headers["Content-Type"]
        finally:
            await server.stop()

    return asyncio.run(scenario())


def failing(server: HealthServer) -> None:
    server.health.add("informer-sync", lambda: "pods are not in sync", "readyz")


def raising(server: HealthServer) -> None:
    async def check() -> str:
        raise RuntimeError("secret detail")

    server.health.add("storage", check)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/healthz/ping"])
def test_healthy_is_ok(path: str) -> None:
    assert send(path) == (200, "ok", "text/plain; charset=utf-8")


def test_verbose_lists_the_checks() -> None:
    assert send("/livez?verbose")[:2] == (200, "[+]ping ok\nlivez check passed\n")


def test_failed_check_withholds_its_reason() -> None:
    expected = "[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n"
    assert send("/readyz", failing)[:2] == (500, expected)


def test_a_failing_check_is_logged_once_until_it_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    failures = ["late for 5s", "late for 6s", "excluded meanwhile", "", "late for 7s"]

    async def scenario() -> None:
        server = HealthServer(Metrics())
        server.health.add("loops", lambda: failures.pop(0), "readyz")
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                for query in ("", "", "?exclude=loops", "", "", ""):
                    async with session.get(f"http://127.0.0.1:{server.bound_port}/readyz{query}") as response:
                        await response.read()
        finally:
            await server.stop()

    with caplog.at_level("INFO", logger="koordinator.kube.serving"):
        asyncio.run(scenario())
    said = [each.getMessage() for each in caplog.records if "loops" in each.getMessage()]
    assert said == [
        "readyz check failed: loops: late for 5s",
        "readyz check passes again: loops",
        "readyz check failed: loops: late for 7s",
    ]


def test_check_belongs_to_its_paths() -> None:
    assert send("/livez", failing)[0] == 200


def test_check_that_raises_has_failed() -> None:
    status, body, _ = send("/healthz", raising)
    assert (status, "secret detail" in body) == (500, False)


def test_excluded_check_does_not_count() -> None:
    expected = "[+]ping ok\n[+]informer-sync excluded: ok\nreadyz check passed\n"
    assert send("/readyz?exclude=informer-sync&verbose", failing)[:2] == (200, expected)


def test_unknown_exclusion_is_warned_of() -> None:
    body = send("/livez?exclude=no&verbose")[1]
    assert 'warn: some health checks cannot be excluded: no matches for "no"' in body


def test_unknown_check_is_not_found() -> None:
    assert send("/livez/no")[0] == 404


def test_metrics_are_exposed_as_text() -> None:
    status, body, content_type = send("/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert "# HELP things_total [ALPHA] Things\n# TYPE things_total counter\nthings_total 1.0\n" in body


def test_metrics_have_no_created_series() -> None:
    assert "_created" not in send("/metrics")[1]


def test_program_adds_routes() -> None:
    async def configz(request: Request) -> Response:
        return json_response({"profiles": 1})

    assert send("/configz", lambda server: server.add_route("/configz", configz))[1] == '{"profiles":1}'


def test_name_of_a_check_is_taken_once() -> None:
    server = HealthServer(Metrics())
    with pytest.raises(ValueError, match="ping"):
        server.health.add("ping", lambda: "")


def test_taken_port_is_an_os_error() -> None:
    async def scenario() -> None:
        first = HealthServer(Metrics())
        await first.start()
        try:
            with pytest.raises(OSError, match=f"it is taken by process {os.getpid()} "):
                await HealthServer(Metrics(), port=first.bound_port).start()
        finally:
            await first.stop()

    asyncio.run(scenario())


def test_tls_when_requested(tmp_path: Path) -> None:
    authority = Authority()
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    async def scenario() -> int:
        server = HealthServer(Metrics(), tls=authority.server_context(tmp_path))
        await server.start()
        try:
            url = f"https://127.0.0.1:{server.bound_port}/healthz"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=trusting) as response:
                return response.status
        finally:
            await server.stop()

    assert asyncio.run(scenario()) == 200


def test_what_came_of_checks_is_counted() -> None:
    async def scenario() -> str:
        server = HealthServer(Metrics())
        failing(server)
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}"
            async with aiohttp.ClientSession() as session:
                for path in ("/readyz", "/readyz", "/livez", "/livez/ping"):
                    (await session.get(url + path)).release()
                async with session.get(url + "/metrics/slis") as response:
                    return await response.text()
        finally:
            await server.stop()

    lines = [line for line in asyncio.run(scenario()).splitlines() if not line.startswith("#")]
    assert lines == [
        'kubernetes_healthcheck{name="ping",type="readyz"} 1.0',
        'kubernetes_healthcheck{name="informer-sync",type="readyz"} 0.0',
        'kubernetes_healthcheck{name="ping",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2.0',
        'kubernetes_healthchecks_total{name="informer-sync",status="error",type="readyz"} 2.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1.0',
    ]
