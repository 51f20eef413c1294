"""The page of a cluster for everybody: each with a token, and each sees what its roles let it see."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.meta import Object
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.cli.main import make_parser
from koordinator.cli.page import command
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.identity import authenticated
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.self_signed import self_signed_files
from koordinator.kube.serving_certificate import ServingCertificate
from tests.cli.page.reading import printed_link, read_until

RBAC = "rbac.authorization.k8s.io"
ROLES = Kind(RBAC, "v1", "rolebindings", "RoleBinding", Object)
CLUSTER_ROLES = Kind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Object, namespaced=False)
SPEC = {"schedulerName": "koord-scheduler", "containers": [{"name": "a", "image": "x"}]}
Captured = pytest.CaptureFixture[str]
As = Callable[[str], aiohttp.ClientSession]


@asynccontextmanager
async def page(folder: Path, capsys: Captured) -> AsyncIterator[tuple[KubeClient, As]]:
    """A client of the cluster, and a browser for the token of each user."""
    users = {f"{name}-token": authenticated(name, ()) for name in ("admin2", "shopper", "nobody")}
    options = ServerOptions(authorization_mode=AuthorizationMode.RBAC, users=users)
    async with EmbeddedApi(options) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        async with connected(ClientOptions(kubeconfig=str(folder / "kubeconfig"))) as client:
            for definition in custom_resource_definitions():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            await client.create(NODES, {"metadata": {"name": "node-1"}})
            for namespace in ("shop", "ops"):
                await client.create(NAMESPACES, {"metadata": {"name": namespace}})
                await client.create(PODS, {"metadata": {"name": "web"}, "spec": SPEC}, namespace)
            await client.create(CLUSTER_ROLES, binding("admin2", "cluster-admin"))
            await client.create(ROLES, binding("shopper", "view"), "shop")
            words = ["page", "--sign-in", f"--kubeconfig={folder / 'kubeconfig'}"]
            serving = asyncio.ensure_future(command.serve(make_parser(["page"]).parse_args(words), SystemClock()))
            browsers: list[aiohttp.ClientSession] = []
            try:
                address = await printed_link(serving, capsys)

                def browser(token: str) -> aiohttp.ClientSession:
                    tls = ssl.create_default_context()
                    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    connector = aiohttp.TCPConnector(ssl=tls)
                    browsers.append(aiohttp.ClientSession(address, headers=headers, connector=connector))
                    return browsers[-1]

                yield client, browser
            finally:
                for each in browsers:
                    await each.close()
                serving.cancel()
                await asyncio.wait([serving])


def binding(user: str, role: str) -> dict[str, Any]:
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    return {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def story(folder: Path, capsys: Captured, told: Callable[[KubeClient, As], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with page(folder, capsys) as (client, browser):
            await told(client, browser)

    asyncio.run(tell())


def test_each_sees_what_its_roles_let_it_see(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: As) -> None:
        found = await read_until(browser("admin2-token"), lambda rows: len(rows.get("pending", {})) == 2)
        assert "node-1" in found["nodes"]
        found = await read_until(browser("shopper-token"), lambda rows: bool(rows.get("pending")))
        assert list(found["pending"]) == ["shop/web"]
        assert found["nodes"] == {}
        assert found.lacks["nodes"] == (
            "you lack the right to list nodes and to list pods and to list nodemetrics.slo.koordinator.sh"
        )
        assert found.lacks["gangs"].startswith(
            "you lack the right to create serviceaccounts/token of koordinator-system/"
        )
        found = await read_until(browser("nobody-token"), lambda rows: bool(rows.lacks.get("pending")))
        assert [name for name, rows in found.items() if rows] == ["contact"]

    story(tmp_path, capsys, told)


def test_what_is_asked_for_one_object_is_asked_as_the_viewer(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: As) -> None:
        shopper = browser("shopper-token")
        await read_until(shopper, lambda rows: bool(rows.get("pending")))
        async with shopper.get("/api/pods") as response:
            assert [each["key"] for each in (await response.json())["pods"]] == ["shop/web"]
        async with shopper.get("/api/explain/pod/shop/web") as response:
            assert (await response.json())["document"]["pod"] == "shop/web"
        async with shopper.get("/api/explain/pod/ops/web") as response:
            assert response.status == 403
        async with shopper.get("/api/history") as response:
            assert response.status == 403

    story(tmp_path, capsys, told)


@pytest.mark.parametrize("token", ["", "unknown", "é"])
def test_without_a_token_of_the_cluster_there_is_nothing_to_see(tmp_path: Path, capsys: Captured, token: str) -> None:
    async def told(client: KubeClient, browser: As) -> None:
        for path in ("/api/stream", "/api/pods", "/api/history", "/api/explain/pod/shop/web"):
            async with browser(token).get(path) as response:
                assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer"), path
        async with browser(token).get("/") as response:
            assert response.status == 200

    story(tmp_path, capsys, told)


def test_its_own_metrics_are_for_whoever_may_get_them(tmp_path: Path, capsys: Captured) -> None:
    async def told(client: KubeClient, browser: As) -> None:
        found = {}
        for token in ("admin2-token", "shopper-token", "unknown", ""):
            async with browser(token).get("/metrics") as response:
                found[token] = response.status
        assert found == {"admin2-token": 200, "shopper-token": 403, "unknown": 401, "": 401}
        async with browser("").get("/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok")

    story(tmp_path, capsys, told)


def test_a_certificate_that_changes_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    clock = ManualClock()

    def issue() -> None:
        with self_signed_files(clock.now()) as files:
            for path, file in zip(paths, files, strict=True):
                path.write_bytes(file.read_bytes())

    async def tell() -> None:
        issue()
        certificate = ServingCertificate(*paths)
        certificate.reload()
        rotating = asyncio.ensure_future(command.rotate(certificate, clock))
        paths[1].write_text("half")
        await clock.advance(120)
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "the certificate of before is served on"
        ]
        issue()
        await clock.advance(60)
        assert (certificate.reload(), rotating.done()) == (False, False)
        rotating.cancel()

    asyncio.run(tell())
