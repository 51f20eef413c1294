"""The NRI plugin, and a runtime that frames its calls as containerd does."""

from __future__ import annotations

import asyncio
import json
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.protobuf import nri_pb2 as nri
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin
from koordinator.koordlet.enforce.hooks.options import NRIOptions
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.resctrl import CacheAllocation
from tests.koordlet.enforce.hooks.hook_fixtures import rules
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.enforce.hooks.test_proxy_server import BATCH, PARENT, SPEC
from tests.runtime_proxy.proxied import run

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"


@dataclass
class FakeRuntime:
    """One connection of a plugin at a time; ``registered`` has what plugins called themselves."""

    registered: list[tuple[str, str]] = field(default_factory=list)
    writer: asyncio.StreamWriter | None = None
    responses: asyncio.Queue[nri.TtrpcResponse] = field(default_factory=asyncio.Queue)
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        parts = {1: b"", 2: b""}
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, length = struct.unpack(">II", await reader.readexactly(8))
                # What Go's side reads the first part of a message into.
                assert parts[number] or length <= 4096
                parts[number] += await reader.readexactly(length)
                parts[number] = await self._messages(number, parts[number])
        writer.close()

    async def _messages(self, number: int, content: bytes) -> bytes:
        while len(content) >= 10:
            length, stream = struct.unpack(">II", content[:8])
            if len(content) < 10 + length:
                break
            message, content = content[10 : 10 + length], content[10 + length :]
            if number == 1:
                self.responses.put_nowait(nri.TtrpcResponse.FromString(message))
            else:
                await self._register(stream, nri.TtrpcRequest.FromString(message))
        return content

    async def _register(self, stream: int, request: nri.TtrpcRequest) -> None:
        plugin = nri.RegisterPluginRequest.FromString(request.payload)
        self.registered.append((plugin.plugin_name, plugin.plugin_idx))
        self.send(2, stream, 2, nri.TtrpcResponse().SerializeToString())
        self.connected.set()

    def send(self, number: int, stream: int, kind: int, content: bytes) -> None:
        assert self.writer is not None
        message = struct.pack(">IIBB", len(content), stream, kind, 0) + content
        # In pieces, as a runtime may.
        for start in range(0, len(message), 1000):
            piece = message[start : start + 1000]
            self.writer.write(struct.pack(">II", number, len(piece)) + piece)

    async def call(self, method: str, message: Any, reply: type[Any]) -> Any:
        request = nri.TtrpcRequest(service=PLUGIN, method=method, payload=message.SerializeToString())
        self.send(1, 1, 1, request.SerializeToString())
        response = await self.responses.get()
        if response.status.code:
            raise GrpcError(response.status.code, response.status.message)
        return reply.FromString(response.payload)


@asynccontextmanager
async def followed(node: HookedNode, *, fails: bool = False) -> AsyncIterator[FakeRuntime]:
    """A runtime that has a plugin."""
    runtime = FakeRuntime()
    with tempfile.TemporaryDirectory(prefix="kn") as folder:
        socket = str(Path(folder, "nri.sock"))
        server = await asyncio.start_unix_server(runtime.serve, socket)
        plugin = NRIPlugin(NRIOptions(socket, first_pause=0.001), node.starting(fails=fails), SystemClock())
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(plugin.run())
            await runtime.connected.wait()
            try:
                yield runtime
            finally:
                task.cancel()
                server.close()


def pod(**annotations: str) -> nri.PodSandbox:
    made = nri.PodSandbox(id="s", name="sort", uid="sort", namespace="shop", annotations=annotations)
    made.labels["koordinator.sh/qosClass"] = "BE"
    made.linux.cgroup_parent = PARENT
    return made


def test_a_container_is_adjusted_before_it_is_created(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(HookedNode(tmp_path)) as runtime:
            request = nri.CreateContainerRequest(pod=pod(**{SPEC: BATCH}), container=nri.Container(name="main"))
            reply = await runtime.call("CreateContainer", request, nri.CreateContainerResponse)
        assert runtime.registered == [("koordlet_nri", "00")]
        resources = reply.adjust.linux.resources
        assert (resources.cpu.shares.value, resources.cpu.quota.value) == (512, 50_000)
        assert resources.memory.limit.value == 1 << 30

    run(scenario())


def test_a_container_of_a_pod_with_a_part_of_the_cache_starts_in_its_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = HookedNode(tmp_path, Resctrl=True)
        node.rules = rules(caches=CacheAllocation(0x7FF, (0,), "GenuineIntel", {"koordlet-sort": 0.0}))
        annotations = {"node.koordinator.sh/resctrl": '{"mb":{"schemata":{"percent":10}}}'}
        async with followed(node) as runtime:
            request = nri.CreateContainerRequest(pod=pod(**annotations), container=nri.Container(name="main"))
            reply = await runtime.call("CreateContainer", request, nri.CreateContainerResponse)
        assert reply.adjust.linux.resources.rdt_class.value == "koordlet-sort"

    run(scenario())


def test_an_update_names_its_container_and_one_that_changes_nothing_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        container = nri.Container(id="c1", name="main")
        async with followed(HookedNode(tmp_path)) as runtime:
            request = nri.UpdateContainerRequest(pod=pod(**{SPEC: BATCH}), container=container)
            reply = await runtime.call("UpdateContainer", request, nri.UpdateContainerResponse)
            assert [(each.container_id, each.linux.resources.cpu.quota.value) for each in reply.update] == [
                ("c1", 50_000)
            ]
            request = nri.UpdateContainerRequest(pod=pod(), container=container)
            assert not (await runtime.call("UpdateContainer", request, nri.UpdateContainerResponse)).update

    run(scenario())


def test_a_starting_pod_is_written_however_the_runtime_reports_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        requests = (
            ("StateChange", nri.StateChangeEvent(event=nri.RUN_POD_SANDBOX, pod=pod(**{SPEC: BATCH}))),
            ("RunPodSandbox", nri.RunPodSandboxRequest(pod=pod(**{SPEC: BATCH}))),
        )
        for method, request in requests:
            node = HookedNode(tmp_path / method)
            node.add_cgroup(PARENT.strip("/"))
            async with followed(node) as runtime:
                await runtime.call(method, request, nri.Empty)
            assert node.shown(PARENT.strip("/"), "cpu.cfs_quota_us") == "50000"

    run(scenario())


def test_the_runtimes_configuration_says_what_is_followed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(HookedNode(tmp_path)) as runtime:

            async def configure(text: str) -> int:
                reply = await runtime.call("Configure", nri.ConfigureRequest(config=text), nri.ConfigureResponse)
                return int(reply.events)

            assert await configure("") == 1 | 1 << 3 | 1 << 7
            assert await configure(json.dumps({"events": ["CreateContainer"]})) == 1 << 3
            for bad in ("events: [Nothing]", "[", "events: 3", "text"):
                with pytest.raises(GrpcError):
                    await configure(bad)

    run(scenario())


def test_long_messages_come_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(HookedNode(tmp_path)) as runtime:
            containers = [nri.Container(id="x" * 1000) for _ in range(100)]
            request = nri.SynchronizeRequest(containers=containers, more=True)
            assert (await runtime.call("Synchronize", request, nri.SynchronizeResponse)).more

    run(scenario())


def test_a_bad_annotation_fails_the_container_only_where_that_is_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        bad = pod(**{"scheduling.koordinator.sh/resource-status": "{"})
        request = nri.CreateContainerRequest(pod=bad, container=nri.Container(name="main"))
        async with followed(HookedNode(tmp_path)) as runtime:
            await runtime.call("CreateContainer", request, nri.CreateContainerResponse)
        async with followed(HookedNode(tmp_path), fails=True) as runtime:
            with pytest.raises(GrpcError, match="resource-status"):
                await runtime.call("CreateContainer", request, nri.CreateContainerResponse)

    run(scenario())


def test_a_runtime_that_was_restarted_is_followed_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed(HookedNode(tmp_path)) as runtime:
            runtime.connected.clear()
            assert runtime.writer is not None
            runtime.writer.close()
            await runtime.connected.wait()
            assert len(runtime.registered) == 2

    run(scenario())


def test_where_there_is_no_runtime_its_socket_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, options = ManualClock(), NRIOptions(str(tmp_path / "nri.sock"))
    plugin = NRIPlugin(options, HookedNode(tmp_path).starting(), clock)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(plugin.run())
            for _ in range(3):
                while not clock.sleepers:
                    await asyncio.sleep(0)
                await clock.advance(options.longest_pause)
            task.cancel()

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        f"the container runtime is not followed by NRI at {options.socket}: [Errno 2] No such file or directory"
    ]
