"""In front of docker: what hooks change, what passes, and streams in both directions."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.clock import Clock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServedConnections
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.runtime_proxy import docker_messages
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.docker_interceptor import DockerInterceptor
from koordinator.runtime_proxy.docker_server import DockerServer
from koordinator.runtime_proxy.engines import DockerEngine
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.hook_servers import HookServerFolder
from koordinator.runtime_proxy.program import HookRequestMetrics
from tests.runtime_proxy.fake_servers import FakeHookServer, serving
from tests.runtime_proxy.proxied import ALL_HOOKS, SKIP, run
from tests.waiting import wait_for

_SLICE = "kubepods-besteffort-podu_1.slice"
_PATH = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice"
_SANDBOX: dict[str, Any] = {
    "Image": "pause",
    "Labels": {"io.kubernetes.docker.type": "podsandbox", "app": "web", "annotation.note": "x"},
    "HostConfig": {"CgroupParent": _SLICE, "CpuShares": 2, "Newer": {"kept": True}},
}
_CONTAINER: dict[str, Any] = {
    "Image": "web",
    "Env": ["A=0", "B=2", "UNSET"],
    "Labels": {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": "id1"},
    "HostConfig": {"CgroupParent": _SLICE, "Memory": 1 << 30, "OomScoreAdj": 999, "CpuQuota": 50000},
}


@dataclass
class FakeDocker:
    received: list[tuple[str, str, Any]] = field(default_factory=list)
    created: int = 0
    status: int = 204
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_get("/v1.39/info", self.info)
        application.router.add_get("/v1.39/containers/json", self.list)
        application.router.add_get("/v1.41/containers/x/logs", self.logs)
        application.router.add_route("*", "/{path:.*}", self.respond)
        return application

    async def info(self, request: web.Request) -> web.Response:
        return web.json_response({"CgroupDriver": "systemd", "ServerVersion": "20.10"})

    async def list(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def logs(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await self.more.wait()
        await response.write(b"second\n")
        return response

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.received.append((request.method, request.path_qs, body))
        if request.path.endswith("/create"):
            self.created += 1
            return web.json_response({"Id": f"id{self.created}", "Warnings": []}, status=201)
        if request.path.endswith("/echo"):
            return web.Response(body=body, headers={"X-Header": "y"})
        return web.Response(status=self.status)

    def body(self, action: str) -> Any:
        return json.loads([body for _, path, body in self.received if f"/{action}" in path][-1])


@dataclass
class Proxied:
    folder: Path
    docker: FakeDocker
    client: aiohttp.ClientSession
    checkpoints: Checkpoints

    async def post(self, path: str, body: Any = None) -> tuple[int, str]:
        async with self.client.post(f"http://docker/v1.41{path}", json=body) as reply:
            return reply.status, await reply.text()

    async def create(self, body: Any, name: str = "k8s_main_web_shop_u-1_2") -> tuple[int, str]:
        return await self.post(f"/containers/create?name={name}", body)


@asynccontextmanager
async def proxied(
    hook_server: FakeHookServer | None, policy: str = "Ignore", *, reachable: bool = True
) -> AsyncIterator[Proxied]:
    docker = FakeDocker()
    with tempfile.TemporaryDirectory(prefix="krp") as name:
        folder = Path(name)
        (folder / "hooks").mkdir()
        document = {"remote-endpoint": f"{folder}/hook.sock", "failure-policy": policy, "runtime-hooks": ALL_HOOKS}
        if hook_server is not None:
            (folder / "hooks/a.json").write_text(json.dumps(document))
        runner = web.AppRunner(docker.application())
        await runner.setup()
        await web.UnixSite(runner, str(folder / "docker.sock")).start()
        hooks, checkpoints = HookServerFolder(folder / "hooks"), Checkpoints(folder / "kept")
        hooks.scan()
        checkpoints.load()
        dispatcher = HookDispatcher(hooks, 2.0, SystemClock(), HookRequestMetrics(Metrics()))
        engine = DockerEngine(folder / "docker.sock", dispatcher, checkpoints, SKIP)
        async with (
            serving(
                hook_server if hook_server and reachable else FakeHookServer(),
                folder / ("hook.sock" if reachable else "elsewhere.sock"),
            ),
            asyncio.TaskGroup() as tasks,
        ):
            await engine.version()
            server = engine.server(tasks, ProgramConnections(Metrics(), SystemClock()))
            await server.start(folder / "proxy.sock")
            connector = aiohttp.UnixConnector(str(folder / "proxy.sock"))
            try:
                async with aiohttp.ClientSession(connector=connector) as client:
                    yield Proxied(folder, docker, client, checkpoints)
            finally:
                await server.stop(folder / "proxy.sock", 0.0)
                dispatcher.close()
                await runner.cleanup()


def test_a_sandbox_with_a_systemd_slice_is_queried_about_by_its_path() -> None:
    def change(request: Any, reply: Any) -> None:
        reply.resources.cpu_shares = 7
        reply.labels["ignored"] = "yes"

    async def scenario() -> None:
        server = FakeHookServer(change)
        async with proxied(server) as proxy:
            assert (await proxy.create(_SANDBOX))[0] == 201
            requested = server.requests("PreRunPodSandbox")[0]
            assert (requested.cgroup_parent, requested.pod_meta.name, requested.pod_meta.attempt) == (_PATH, "web", 2)
            assert dict(requested.annotations) == {"note": "x"}
            sent = proxy.docker.body("create")
            assert sent == {**_SANDBOX, "HostConfig": {**_SANDBOX["HostConfig"], "CpuShares": 7}}

    run(scenario())


def test_a_container_gets_what_the_hook_wants() -> None:
    def change(request: Any, reply: Any) -> None:
        if hasattr(reply, "container_envs"):
            reply.container_resources.cpuset_cpus = "0-1"
            reply.container_resources.oom_score_adj = 0
            reply.container_envs["C"] = "3"
            reply.pod_cgroup_parent = "/kubepods.slice/other.slice"

    async def scenario() -> None:
        server = FakeHookServer(change)
        async with proxied(server) as proxy:
            await proxy.create(_SANDBOX, "k8s_POD_web_shop_u-1_2")
            await proxy.create(_CONTAINER)
            requested = server.requests("PreCreateContainer")[0]
            assert (requested.pod_meta.namespace, requested.container_meta.name, requested.pod_cgroup_parent) == (
                "shop",
                "main",
                _PATH,
            )
            assert dict(requested.container_envs) == {"A": "0", "B": "2"}
            sent = proxy.docker.body("create")
            assert sent["Env"] == ["A=0", "B=2", "UNSET", "C=3"]
            assert sent["HostConfig"] == {
                "CgroupParent": "other.slice",
                "Memory": 1 << 30,
                "OomScoreAdj": 0,
                "CpuQuota": 50000,
                "CpusetCpus": "0-1",
            }
            stored = proxy.checkpoints.containers.get("id2")
            assert stored is not None
            assert stored.container_meta.id == "id2"

    run(scenario())


def test_start_update_and_stop_are_reported_with_all_that_is_known() -> None:
    async def scenario() -> None:
        server = FakeHookServer()
        async with proxied(server) as proxy:
            await proxy.create(_SANDBOX)
            await proxy.create(_CONTAINER)
            await proxy.post("/containers/id2/start")
            await proxy.post("/containers/id2/update", {"Memory": 2 << 30, "RestartPolicy": {"Name": "no"}})
            assert proxy.docker.body("update") == {
                "Memory": 2 << 30,
                "RestartPolicy": {"Name": "no"},
                "CpuQuota": 50000,
            }
            await proxy.post("/containers/id2/stop?t=1")
            await proxy.post("/containers/id1/stop")
            assert [hook for hook, _ in server.received][2:] == [
                "PreStartContainer",
                "PostStartContainer",
                "PreUpdateContainerResources",
                "PostStopContainer",
                "PostStopPodSandbox",
            ]
            assert (len(proxy.checkpoints.pods), len(proxy.checkpoints.containers)) == (0, 0)

    run(scenario())


def test_a_stop_that_docker_refuses_can_be_tried_again() -> None:
    async def scenario() -> None:
        server = FakeHookServer()
        async with proxied(server) as proxy:
            await proxy.create(_SANDBOX)
            proxy.docker.status = 500
            assert (await proxy.post("/containers/id1/stop"))[0] == 500
            assert len(proxy.checkpoints.pods) == 1

    run(scenario())


def test_with_policy_fail_an_absent_server_fails_the_call() -> None:
    async def scenario() -> None:
        async with proxied(FakeHookServer(), "Fail", reachable=False) as proxy:
            status, text = await proxy.create(_SANDBOX)
            assert status == 500
            assert text.startswith("hook server err: ")
            assert proxy.docker.received == []

    run(scenario())


def test_no_hook_is_called_for_pods_with_the_skip_label() -> None:
    async def scenario() -> None:
        server = FakeHookServer()
        async with proxied(server) as proxy:
            await proxy.create({**_SANDBOX, "Labels": {**_SANDBOX["Labels"], SKIP.key: SKIP.value}})
            await proxy.create(_CONTAINER)
            await proxy.post("/containers/id2/start")
            assert server.received == []
            assert proxy.docker.body("create") == _CONTAINER

    run(scenario())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"HostConfig": 1}', b'{"Labels": {"a": 1}}', b'{"HostConfig": {"CpuShares": "x"}}']
)
def test_a_body_that_cannot_be_read_is_dockers_to_refuse(body: bytes) -> None:
    async def scenario() -> None:
        async with proxied(FakeHookServer()) as proxy:
            url = "http://docker/containers/create?name=k8s_main_web_shop_u-1_2"
            async with proxy.client.post(url, data=body) as reply:
                assert reply.status == 201
            assert proxy.docker.received[0][2] == body

    run(scenario())


def test_other_peoples_containers_pass() -> None:
    async def scenario() -> None:
        server = FakeHookServer()
        async with proxied(server) as proxy:
            assert (await proxy.create({"Image": "x"}, "mine"))[0] == 201
            assert (await proxy.post("/containers/mine/start"))[0] == 204
            assert (await proxy.post("/containers/mine/stop"))[0] == 204
            assert server.received == []

    run(scenario())


def test_bodies_pass_as_they_are_on_one_connection() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(50):
            yield bytes((number,)) * 10_000

    async def scenario() -> None:
        async with proxied(None) as proxy:
            for data in (b"", b"small", bytes(1 << 20)):
                async with proxy.client.post("http://docker/echo", data=data) as reply:
                    assert (await reply.read(), reply.headers["X-Header"]) == (data, "y")
            async with proxy.client.post("http://docker/echo", data=chunks()) as reply:
                assert len(await reply.read()) == 500_000
            async with proxy.client.head("http://docker/echo") as reply:
                assert reply.status == 200

    run(scenario())


def test_logs_are_followed_without_delay() -> None:
    async def scenario() -> None:
        async with (
            proxied(None) as proxy,
            proxy.client.get("http://docker/v1.41/containers/x/logs?follow=1") as reply,
        ):
            assert await reply.content.readline() == b"first\n"
            proxy.docker.more.set()
            assert await reply.content.readline() == b"second\n"

    run(scenario())


def test_an_absent_daemon_is_said() -> None:
    async def scenario() -> None:
        async with proxied(None) as proxy:
            (proxy.folder / "docker.sock").unlink()
            status, text = await proxy.post("/containers/x/start")
            assert (status, "docker at" in text) == (500, True)

    run(scenario())


class Connections(ProgramConnections):
    """Remembers those of each server."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        super().__init__(metrics, clock)
        self.pools: list[ServedConnections] = []

    def serve(self, listener: str, limits: ServerLimits) -> ServedConnections:
        self.pools.append(super().serve(listener, limits))
        return self.pools[-1]


Daemon = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def in_front_of(
    daemon: Daemon, connections: ProgramConnections, limits: ServerLimits = SOCKET_LIMITS
) -> AsyncIterator[Path]:
    """The proxy's socket, in front of a daemon that is a function on bytes."""
    with tempfile.TemporaryDirectory(prefix="krp") as name:
        folder = Path(name)
        hooks = HookDispatcher(HookServerFolder(folder), 2.0, SystemClock(), HookRequestMetrics(Metrics()))
        interceptor = DockerInterceptor(hooks, Checkpoints(folder), SKIP)
        listening = await asyncio.start_unix_server(daemon, str(folder / "docker.sock"))
        async with listening, asyncio.TaskGroup() as tasks:
            server = DockerServer(interceptor, folder / "docker.sock", tasks, connections, limits)
            await server.start(folder / "proxy.sock")
            try:
                yield folder / "proxy.sock"
            finally:
                await server.stop(folder / "proxy.sock", 0.0)


@asynccontextmanager
async def raw(daemon: Daemon) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's connection through the proxy."""
    async with in_front_of(daemon, ProgramConnections(Metrics(), SystemClock())) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            yield reader, writer
        finally:
            writer.close()


def test_a_client_that_reads_an_endless_response_moves() -> None:
    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()

    async def scenario() -> None:
        connections = Connections(Metrics(), SystemClock())
        async with in_front_of(daemon, connections) as path:
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET /v1.41/containers/x/logs HTTP/1.1\r\nHost: d\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            (served,) = connections.pools[0].busy
            await wait_for(lambda: served.progress() is not None)
            before = served.progress() or 0
            await reader.readexactly(8 << 20)
            await wait_for(lambda: served.progress() is not None)
            assert (served.progress() or 0) - before > 6 << 20
            writer.close()

    run(scenario())


def test_an_attached_client_that_has_said_all_still_hears_the_rest() -> None:
    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        said = await reader.read()
        writer.write(b"heard: " + said)
        writer.close()

    async def scenario() -> None:
        async with raw(daemon) as (reader, writer):
            writer.write(b"POST /v1.41/exec/x/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"heard: hello"

    run(scenario())


def test_a_client_that_goes_ends_the_stream_at_the_daemon() -> None:
    gone = asyncio.Event()

    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()
        gone.set()
        writer.close()

    async def scenario() -> None:
        async with raw(daemon) as (reader, writer):
            writer.write(b"GET /events HTTP/1.1\r\nHost: d\r\n\r\n")
            await reader.readuntil(b"hi\r\n")
            writer.close()
            await gone.wait()

    run(scenario())


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nbad\r\n\r\n", b"x" * (1 << 17), b"GET /"])
def test_what_is_not_http_closes_the_connection(sent: bytes) -> None:
    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("it must not get here")

    async def scenario() -> None:
        async with raw(daemon) as (reader, writer):
            writer.write(sent)
            writer.write_eof()
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                # The proxy closed without having read all of it.
                return

    run(scenario())


@given(st.lists(st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True), min_size=1, max_size=4))
def test_the_path_of_a_slice_ends_in_its_name(parts: list[str]) -> None:
    name = "-".join(parts) + ".slice"
    path = docker_messages.full_parent(name, "systemd")
    assert docker_messages.docker_parent(path, "systemd") == name
    assert path.count("/") == len(parts)


@pytest.mark.parametrize("name", ["", "web", "k8s_a_b_c_d", "x_a_b_c_d_0", "k8s_a_b_c_d_e", "k8s_a_b_c_d_0_x"])
def test_names_that_kubelet_does_not_give_are_not_read(name: str) -> None:
    assert docker_messages.parse_name(name) is None
