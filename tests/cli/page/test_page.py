"""``koord page`` as a whole: over an embedded cluster, as a browser asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import SystemClock
from koordinator.cli.main import make_parser
from koordinator.cli.page.command import serve
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from tests.cli.page.reading import printed_link, read_until

SPEC = {"schedulerName": "koord-scheduler", "containers": [{"name": "a", "image": "x"}]}
Captured = pytest.CaptureFixture[str]
Browser = aiohttp.ClientSession


@asynccontextmanager
async def page(folder: Path, capsys: Captured, *arguments: str) -> AsyncIterator[tuple[KubeClient, Browser, str]]:
    """A client of the cluster, a browser that has opened the link, and the link."""
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        async with connected(ClientOptions(kubeconfig=str(folder / "kubeconfig"))) as client:
            for definition in custom_resource_definitions():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            await client.create(NODES, {"metadata": {"name": "node-1"}})
            await client.create(PODS, {"metadata": {"name": "web"}, "spec": SPEC}, "default")
            options = make_parser(["page"]).parse_args(
                ["page", "--no-browser", f"--kubeconfig={folder / 'kubeconfig'}", *arguments]
            )
            serving = asyncio.ensure_future(serve(options, SystemClock()))
            try:
                link = await printed_link(serving, capsys)
                jar = aiohttp.CookieJar(unsafe=True)
                async with aiohttp.ClientSession(cookie_jar=jar, base_url=link.partition("/open")[0]) as browser:
                    yield client, browser, link
            finally:
                serving.cancel()
                await asyncio.wait([serving])


def story(folder: Path, capsys: Captured, told: Callable[[KubeClient, Browser, str], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with page(folder, capsys) as (client, browser, link):
            await told(client, browser, link)

    asyncio.run(tell())


def test_from_the_link_to_what_changes(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: Browser, link: str) -> None:
        async with browser.get(link) as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        found = await read_until(browser, lambda rows: "default/web" in rows.get("pending", {}))
        assert found["pending"]["default/web"]["scheduler"] == "koord-scheduler"
        await client.create(PODS, {"metadata": {"name": "db"}, "spec": {**SPEC, "nodeName": "node-1"}}, "default")
        await read_until(browser, lambda rows: any(row["pods"] for row in rows.get("classes", {}).values()))
        async with browser.get("/api/pods", params={"text": "db"}) as response:
            assert [each["key"] for each in (await response.json())["pods"]] == ["default/db"]

    story(tmp_path, capsys, told)


def test_an_explanation_is_that_of_the_command(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: Browser, link: str) -> None:
        await (await browser.get(link)).read()
        async with browser.get("/api/explain/pod/default/web") as response:
            found = await response.json()
        assert found["document"]["pod"] == "default/web"
        assert "koord-scheduler could not be queried" in found["note"]
        for path, status in {"pod/default/nobody": 404, "wrong/a/b": 400, "node/nobody": 404}.items():
            async with browser.get(f"/api/explain/{path}") as response:
                assert (response.status, "problem" in await response.json()) == (status, True)

    story(tmp_path, capsys, told)


def test_a_prometheus_that_does_not_answer_is_what_the_panel_says(tmp_path: Path, capsys: Captured) -> None:
    async def tell() -> None:
        nowhere = "--prometheus=http://127.0.0.1:1"
        async with page(tmp_path, capsys, nowhere) as (_, browser, link):
            await (await browser.get(link)).read()
            async with browser.get("/api/history") as response:
                assert response.status == 503
                assert "http://127.0.0.1:1/api/v1/query_range" in (await response.json())["problem"]

    asyncio.run(tell())


def test_without_the_link_there_is_nothing_to_see(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: Browser, link: str) -> None:
        for path in ("/api/stream", "/api/pods", "/api/history", "/api/explain/pod/default/web"):
            async with browser.get(path) as response:
                assert response.status == 401, path
        async with browser.post("/api/what-if", json={"change": "drain"}) as response:
            assert response.status == 401
        async with browser.get("/", headers={"Host": "evil.example"}) as response:
            assert response.status == 421

    story(tmp_path, capsys, told)
