"""``koord page --sign-in`` with the rights of config/rbac on a real API server: each viewer sees what kubectl says that
it may, until its token is taken back; and of the page's own rights none is missing and none is idle."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from koordinator.cli.page.feed import READS
from koordinator.cli.page.token_access import RIGHTS_SECONDS
from tests.cli.page.reading import Rows, read_until
from tests.real.audited import NAMESPACE, Audited, audited
from tests.real.manager_cluster import prepare
from tests.real.polling import until, until_nothing_is_left
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.real

CORE: Final = "/api/v1"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
SECONDS: Final = 60.0
CACHED_SECONDS: Final = 10.0
"""For so long the API server itself takes a token for good that it has seen before."""
SPEC: Final = {"schedulerName": "koord-scheduler", "containers": [{"name": "a", "image": "x"}]}
IN_NAMESPACES: Final = {"pending": "pods", "quotas": "elasticquotas.scheduling.sigs.k8s.io"}
OF_THE_CLUSTER: Final = {"reservations": "reservations.scheduling.koordinator.sh", "nodes": "nodes"}


@pytest.fixture(scope="module")
def books(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path_factory.mktemp("page"), "koord-page") as made:
        prepare(made.plane)
        made.install()
        give_it_something_to_show(made)
        yield made


def give_it_something_to_show(books: Audited) -> None:
    books.create(f"{CORE}/nodes", {"metadata": {"name": "n1"}})
    quotas = "/apis/scheduling.sigs.k8s.io/v1alpha1"
    for name in ("shop", "ops"):
        books.create(f"{CORE}/namespaces", {"metadata": {"name": name}})
        books.create(f"{CORE}/namespaces/{name}/pods", {"metadata": {"name": "web"}, "spec": SPEC})
        quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "team"}}
        books.create(f"{quotas}/namespaces/{name}/elasticquotas", {**quota, "spec": {}})
    scheduling = "scheduling.koordinator.sh/v1alpha1"
    owners = [{"labelSelector": {"matchLabels": {"a": "b"}}}]
    reservation = {"apiVersion": scheduling, "kind": "Reservation", "metadata": {"name": "kept"}}
    books.create(
        f"/apis/{scheduling}/reservations", {**reservation, "spec": {"template": {"spec": SPEC}, "owners": owners}}
    )
    # Programs lead that no API server reaches.
    books.create(f"{CORE}/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "koord-explain"}})
    for name in ("koord-scheduler", "koordinator-manager"):
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": f"{name}-0_1"}}
        books.create(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", lease)


def account(books: Audited, name: str, namespace: str = "") -> str:
    """The token of a new account that is a viewer: of the cluster, or of one namespace."""
    accounts = f"{CORE}/namespaces/default/serviceaccounts"
    books.create(accounts, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "koord-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    books.create(f"{RBAC}/{where}", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, response = books.plane.request("POST", f"{accounts}/{name}/token", request)
    assert status == 201, response
    return str(response["status"]["token"])


class Page:
    """The server of the page, which runs."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    @property
    def address(self) -> str:
        found = [word for word in self.log.read_text().split() if word.startswith("https://")]
        return found[0] if found else ""

    @asynccontextmanager
    async def browser(self, token: str) -> AsyncIterator[aiohttp.ClientSession]:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(self.address, headers=headers, connector=connector) as session:
            yield session
        # aiohttp does not wait for the end of the TLS connection of a stream that was left.
        await asyncio.sleep(0.2)

    async def seen(self, token: str, key: str = "") -> Rows:
        """Once the cluster has been read, and the pod ``key``."""
        async with self.browser(token) as browser:
            return await read_until(
                browser,
                lambda rows: not any(rows.problems[name] for name in READS) and (not key or key in rows["pending"]),
            )


@contextmanager
def page(books: Audited, log: Path) -> Iterator[Page]:
    command = [sys.executable, "-m", "koordinator.cli.main", "page", "--sign-in", f"--kubeconfig={books.kubeconfig}"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    running = Page(process, log)
    try:
        until(lambda: running.address or process.poll() is not None, SECONDS, f"the page; see {log}")
        yield running
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def running(books: Audited, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with page(books, tmp_path_factory.mktemp("server") / "page.log") as made:
        yield made


class Kubectl:
    """With somebody's token."""

    def __init__(self, books: Audited, token: str, folder: Path) -> None:
        document = json.loads(books.plane.kubeconfig.read_text())
        document["users"][0]["user"]["token"] = token
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(document))

    def may_list(self, what: str, namespace: str = "") -> bool:
        where = f"--namespace={namespace}" if namespace else "--all-namespaces"
        command = ["kubectl", "auth", "can-i", "list", what, where, f"--kubeconfig={self._kubeconfig}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.stdout.strip() in ("yes", "no"), ended.stderr
        return ended.stdout.strip() == "yes"


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_each_sees_what_kubectl_says_that_it_may(books: Audited, running: Page, tmp_path: Path, namespace: str) -> None:
    token = account(books, f"viewer-{namespace}x", namespace)
    kubectl = Kubectl(books, token, tmp_path)
    found = asyncio.run(running.seen(token))
    for table, kind in IN_NAMESPACES.items():
        everywhere = kubectl.may_list(kind)
        allowed = {name for name in ("shop", "ops") if everywhere or kubectl.may_list(kind, name)}
        assert {key.partition("/")[0] for key in found[table]} == allowed == ({namespace} if namespace else allowed)
        assert found.lacks[table] == ("" if everywhere else f"you lack the right to list {kind}")
    for table, kind in OF_THE_CLUSTER.items():
        allowed_all = kubectl.may_list(kind)
        assert (bool(found[table]), not found.lacks[table]) == (allowed_all, allowed_all)


def test_a_token_that_is_taken_back_ends_its_stream(books: Audited, running: Page) -> None:
    token = account(books, "leaver", "ops")

    async def told() -> float:
        async with running.browser(token) as browser, browser.get("/api/stream") as response:
            assert response.status == 200
            await response.content.readuntil(b"\n\n")
            path = f"{CORE}/namespaces/default/serviceaccounts/leaver"
            assert (await asyncio.to_thread(books.plane.request, "DELETE", path))[0] == 200
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(2 * SECONDS):
                await response.read()
            lasted = asyncio.get_running_loop().time() - began
            async with browser.get("/api/pods") as refused:
                assert refused.status == 401
        return lasted

    assert asyncio.run(told()) < RIGHTS_SECONDS + CACHED_SECONDS + 5


def test_a_simulation_is_made_with_the_rights_of_whoever_asks(books: Audited, running: Page) -> None:
    token = account(books, "planner", "shop")

    async def asked() -> tuple[int, dict[str, Any]]:
        async with running.browser(token) as browser:
            body = json.dumps({"change": "drain", "nodes": ["n1"]})
            async with browser.post("/api/what-if", data=body) as response:
                return response.status, await response.json()

    status, answer = asyncio.run(asked())
    assert status == 403
    assert "system:serviceaccount:default:planner" in answer["problem"]


def test_of_its_own_rights_each_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    token = account(books, "onlooker")

    async def all_is_read(running: Page) -> None:
        await running.seen(token)
        pods = f"{CORE}/namespaces/ops/pods"
        await asyncio.to_thread(books.create, pods, {"metadata": {"name": "late"}, "spec": SPEC})
        await running.seen(token, "ops/late")

    but_for = ("koord-viewer",)
    with page(books, tmp_path / "page.log") as running:
        asyncio.run(all_is_read(running))
        until_nothing_is_left(lambda: books.idle(but_for), SECONDS, running.process, tmp_path / "page.log")
    # The books have a watch once it has ended.
    assert books.refused() == []
    assert books.used() == books.granted(but_for)
