"""The whole program: its start before the runtime's, what it remembers, and its end."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.errors import ConfigurationError
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process
from koordinator.runtime_proxy.command_line import parse_options
from koordinator.runtime_proxy.engines import DockerEngine
from koordinator.runtime_proxy.errors import ListenError
from koordinator.runtime_proxy.main import main
from koordinator.runtime_proxy.program import RuntimeProxy
from koordinator.runtime_proxy.server import listen
from tests.runtime_proxy.fake_servers import FakeHookServer, FakeRuntime, call, channel, serving
from tests.runtime_proxy.proxied import ALL_HOOKS, run
from tests.runtime_proxy.test_hooks import container_request, of, pod_request
from tests.waiting import wait_for

_SERVICE = "/runtime.v1.RuntimeService"


@asynccontextmanager
async def running(
    folder: Path, clock: Any = None, metrics: Metrics | None = None, mode: str = "Containerd"
) -> AsyncIterator[asyncio.Event]:
    """The program, from its start to its end; ``stop`` ends it."""
    options = parse_options(
        [
            f"--koord-runtimeproxy-endpoint=unix://{folder}/run/proxy.sock",
            f"--remote-runtime-service-endpoint={folder}/runtime.sock",
            f"--hook-server-dir={folder}/hooks",
            f"--backend-runtime-mode={mode}",
        ]
    )
    process = Process(clock=clock or SystemClock(), random=Random(1), metrics=metrics or Metrics())
    proxy = RuntimeProxy(options, process)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(proxy.run())
        yield process.stop
        process.stop.set()


async def served(folder: Path) -> Path:
    """The proxy's socket, once it is there."""
    while not (folder / "run/proxy.sock").exists():
        await asyncio.sleep(0)
    return folder / "run/proxy.sock"


@asynccontextmanager
async def hook_server(folder: Path) -> AsyncIterator[FakeHookServer]:
    (folder / "hooks").mkdir(exist_ok=True)
    document = {"remote-endpoint": f"{folder}/hook.sock", "runtime-hooks": ALL_HOOKS}
    (folder / "hooks/a.json").write_text(json.dumps(document))
    server = FakeHookServer()
    async with serving(server, folder / "hook.sock"):
        yield server


class _Running(FakeRuntime):
    """A runtime that lists what was created in it, and tells everything of it."""

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        name = method.rpartition("/")[2]
        if name == "ListPodSandbox":
            config = pod_request().config
            pod = cri.PodSandbox(id="pod-1", metadata=config.metadata, labels=config.labels, runtime_handler="runc")
            return cri.ListPodSandboxResponse(items=[pod]).SerializeToString()
        if name == "ListContainers":
            listed = cri.Container(id="container-2", pod_sandbox_id="pod-1", metadata={"name": "main"})
            orphan = cri.Container(id="container-9", pod_sandbox_id="gone")
            return cri.ListContainersResponse(containers=[listed, orphan]).SerializeToString()
        if name == "PodSandboxStatus":
            config = pod_request().config
            response = cri.PodSandboxStatusResponse(status={"metadata": config.metadata, "labels": config.labels})
            response.info["info"] = '{"config": {"linux": {"cgroup_parent": "/kubepods/pod-u-1"}}}'
            return response.SerializeToString()
        if name == "ContainerStatus":
            status = cri.ContainerStatus(id="container-2", metadata={"name": "main"})
            status.resources.linux.memory_limit_in_bytes = 1 << 30
            return cri.ContainerStatusResponse(
                status=status, info={"info": '{"sandboxID": "pod-1", "config": {"envs": [{"key": "A", "value": "0"}]}}'}
            ).SerializeToString()
        return await super().respond(method, message, context)


def test_between_create_and_start_a_restart_loses_nothing() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            folder = Path(name)
            async with serving(_Running(), folder / "runtime.sock"), hook_server(folder) as server:
                async with running(folder), channel(await served(folder)) as client:
                    await call(client, f"{_SERVICE}/RunPodSandbox", pod_request().SerializeToString())
                    await call(client, f"{_SERVICE}/CreateContainer", container_request("pod-1").SerializeToString())
                async with running(folder), channel(await served(folder)) as client:
                    await call(client, f"{_SERVICE}/StartContainer", of("container-2").SerializeToString())
                requested = server.requests("PreStartContainer")[0]
                assert (requested.pod_meta.namespace, requested.container_meta.id) == ("shop", "container-2")
                assert dict(requested.container_envs) == {"A": "0", "B": "2"}
                assert requested.container_resources.oom_score_adj == 999

    run(scenario())


def test_what_was_never_remembered_is_queried_of_the_runtime() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            folder = Path(name)
            async with serving(_Running(), folder / "runtime.sock"), hook_server(folder) as server:
                async with running(folder), channel(await served(folder)) as client:
                    await call(client, f"{_SERVICE}/StartContainer", of("container-2").SerializeToString())
                requested = server.requests("PreStartContainer")[0]
                assert (requested.pod_meta.name, dict(requested.pod_labels)) == ("web", {"app": "web"})
                assert (requested.container_meta.name, requested.pod_cgroup_parent) == ("main", "/kubepods/pod-u-1")
                assert requested.container_resources.memory_limit_in_bytes == 1 << 30
                assert dict(requested.container_envs) == {"A": "0"}

    run(scenario())


def test_kubelet_is_not_served_before_the_runtime_responds() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            folder, clock = Path(name), ManualClock()
            async with running(folder, clock):
                for _ in range(100):
                    await clock.advance(1)
                assert not (folder / "run/proxy.sock").exists()
                async with serving(FakeRuntime(), folder / "runtime.sock"):
                    while not (folder / "run/proxy.sock").exists():
                        await clock.advance(1)

    run(scenario())


@pytest.mark.parametrize("mode", ["Containerd", "Docker"])
def test_connections_to_the_socket_are_counted_with_those_to_ports(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(engine: DockerEngine) -> str:
        return ""

    monkeypatch.setattr(DockerEngine, "version", nothing)
    monkeypatch.setattr(DockerEngine, "remember", nothing)

    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            folder, metrics = Path(name), Metrics()
            async with serving(FakeRuntime(), folder / "runtime.sock"), running(folder, metrics=metrics, mode=mode):
                socket = await served(folder)
                _, writer = await asyncio.open_unix_connection(str(socket))
                await wait_for(lambda: _count(metrics, socket) == 1)
                writer.close()
                await wait_for(lambda: _count(metrics, socket) == 0)

    run(scenario())


def _count(metrics: Metrics, socket: Path) -> float | None:
    return metrics.registry.get_sample_value("koordinator_server_connections", {"port": str(socket)})


def test_a_stop_while_the_runtime_is_absent_ends_the_program() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            async with running(Path(name), ManualClock()) as stop:
                stop.set()

    run(scenario())


def test_the_socket_is_gone_after_the_end() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            folder = Path(name)
            async with serving(FakeRuntime(), folder / "runtime.sock"):
                async with running(folder):
                    socket = await served(folder)
                assert not socket.exists()

    run(scenario())


def test_a_socket_of_an_earlier_run_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="krp") as name:
            stale = Path(name) / "deep/er/x.sock"
            listen(stale).close()
            stale.unlink()
            server = await asyncio.start_unix_server(lambda reader, writer: None, str(stale))
            server.close()
            stale.unlink(missing_ok=True)
            stale.write_text("precious")
            with pytest.raises(ListenError, match="not a socket"):
                listen(stale)
            assert stale.read_text() == "precious"

    run(scenario())


def test_mistakes_on_the_command_line_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--backend-runtime-mode=docker"]) == 1
    assert "unknown runtime engine backend" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="absolute path"):
        parse_options(["--koord-runtimeproxy-endpoint=relative"])


def test_an_old_unit_file_still_starts_it() -> None:
    options = parse_options(["-remote-image-service-endpoint", "/x", "--logtostderr", "-v=4"])
    assert "no effect" in options.remarks[0]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    for word in ("--container-runtime-endpoint", "runtimeproxy.koordinator.sh/skip-hookserver", "(default 2s)"):
        assert word in text
