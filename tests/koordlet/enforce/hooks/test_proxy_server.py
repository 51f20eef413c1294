"""The hook server: what runtime proxies are answered; asked by our client, by grpcio's and by koord-runtime-proxy."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from koordinator.base.accepting import listen_at, prepare_socket
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.enforce.hooks.hook_server import RegistrationError, handlers, register, unregister
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.grpc_server import GrpcServer
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.node_under_test import NodeUnderTest
from tests.real_world.broken_documents import BrokenObject
from tests.real_world.pods import PODS, PodShape
from tests.runtime_proxy.fake_servers import channel
from tests.runtime_proxy.kubelet_requests import KubeletPod
from tests.runtime_proxy.proxied import Proxied, proxied, run
from tests.runtime_proxy.test_real_world import BROKEN_PODS, Kubelet, received
from tests.waiting import wait_for

SPEC = "node.koordinator.sh/extended-resource-spec"
AMOUNTS = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
BATCH = json.dumps({"containers": {"main": {"requests": AMOUNTS, "limits": AMOUNTS}}})
PARENT = "/kubepods/besteffort/podsort"
UID = "6f0f4a2e-5d3c-4a52-9d4f-0c6d3a1b2c3d"


@asynccontextmanager
async def serving(node: HookedNode, *, fails: bool = False) -> AsyncIterator[Path]:
    """The hook server of a node, at a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kh") as folder:
        path = Path(folder, "hooks.sock")
        async with serving_at(path, node, fails=fails):
            yield path


@asynccontextmanager
async def serving_at(path: Path, node: HookedNode, *, fails: bool = False) -> AsyncIterator[None]:
    prepare_socket(path)
    listening = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        server = GrpcServer(handlers(node.starting(fails=fails)), ProgramConnections(Metrics(), SystemClock()))
        task = tasks.create_task(server.run(str(path), listening.set))
        await listening.wait()
        yield
        task.cancel()


def container_request(**annotations: str) -> ContainerResourceHookRequest:
    request = ContainerResourceHookRequest(pod_cgroup_parent=PARENT)
    request.pod_meta.name, request.pod_meta.uid, request.container_meta.name = "sort", "sort", "main"
    request.pod_labels["koordinator.sh/qosClass"] = "BE"
    request.pod_annotations.update(annotations)
    request.container_resources.cpu_shares, request.container_resources.oom_score_adj = 2, 999
    request.container_resources.cpuset_cpus = "3"
    request.container_envs["A"] = "1"
    return request


def test_a_container_is_answered_with_its_batch_resources(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(HookedNode(tmp_path)) as path:
            client = GrpcClient(path)
            message = container_request(**{SPEC: BATCH}).SerializeToString()
            method = "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook"
            response = ContainerResourceHookResponse.FromString(await client.unary(method, message, 5))
            client.close()
        given = response.container_resources
        assert (given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes) == (512, 50_000, 1 << 30)
        assert (given.oom_score_adj, given.cpuset_cpus, dict(response.container_envs)) == (999, "", {"A": "1"})
        assert response.pod_cgroup_parent == PARENT

    run(scenario())


def test_a_starting_pod_is_written_before_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = HookedNode(tmp_path)
        node.add_cgroup(PARENT.strip("/"))
        request = PodSandboxHookRequest(cgroup_parent=PARENT, annotations={SPEC: BATCH})
        request.pod_meta.uid, request.labels["koordinator.sh/qosClass"] = "sort", "BE"
        async with serving(node) as path, channel(path) as opened:
            call = opened.unary_unary("/runtime.v1alpha1.RuntimeHookService/PreRunPodSandboxHook")
            response = PodSandboxHookResponse.FromString(await call(request.SerializeToString()))
        assert response.resources.cpu_quota == 50_000
        assert dict(response.annotations) == {SPEC: BATCH}
        files = ("cpu.shares", "cpu.cfs_quota_us", "cpu.bvt_warp_ns")
        assert [node.shown(PARENT.strip("/"), name) for name in files] == ["512", "50000", "-1"]

    run(scenario())


def test_a_bad_annotation_fails_the_call_only_where_that_is_wanted(tmp_path: Path) -> None:
    method = "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook"
    message = container_request(**{"scheduling.koordinator.sh/resource-status": "{"}).SerializeToString()

    async def scenario() -> None:
        async with serving(HookedNode(tmp_path)) as path:
            assert await GrpcClient(path).unary(method, message, 5)
        async with serving(HookedNode(tmp_path), fails=True) as path:
            with pytest.raises(GrpcError, match="resource-status"):
                await GrpcClient(path).unary(method, message, 5)

    run(scenario())


def test_grpcio_gets_long_responses_and_the_codes_of_errors(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(HookedNode(tmp_path)) as path, channel(path) as opened:
            request = PodSandboxHookRequest(annotations={"long": "x" * 300_000})
            call = opened.unary_unary("/runtime.v1alpha1.RuntimeHookService/PostStopPodSandboxHook")
            responses = await asyncio.gather(*(call(request.SerializeToString()) for _ in range(5)))
            for response in responses:
                assert len(PodSandboxHookResponse.FromString(response).annotations["long"]) == 300_000
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await opened.unary_unary("/runtime.v1alpha1.RuntimeHookService/Nothing")(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"\xff")
            assert caught.value.code() is grpc.StatusCode.INTERNAL

    run(scenario())


async def create(proxy: Proxied, name: str) -> tuple[int, int, int]:
    """A pod and its container through the proxy; the shares, quota and memory that the runtime makes it with."""
    parent = f"/kubepods/besteffort/pod{name}"
    pod = cri.RunPodSandboxRequest()
    pod.config.metadata.name = pod.config.metadata.uid = name
    pod.config.labels["koordinator.sh/qosClass"] = "BE"
    pod.config.annotations[SPEC] = BATCH
    pod.config.linux.cgroup_parent = parent
    sandbox = cri.RunPodSandboxResponse.FromString(await proxy.call("RunPodSandbox", pod)).pod_sandbox_id
    container = cri.CreateContainerRequest(pod_sandbox_id=sandbox)
    container.config.metadata.name = "main"
    container.config.linux.resources.cpu_shares = 2
    container.sandbox_config.linux.cgroup_parent = parent
    await proxy.call("CreateContainer", container)
    given = cri.CreateContainerRequest.FromString(proxy.runtime.messages("CreateContainer")[-1]).config.linux.resources
    return given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes


def test_a_container_through_the_runtime_proxy_has_its_batch_resources(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = HookedNode(tmp_path)
        node.add_cgroup(PARENT.strip("/"))
        async with serving(node) as path, proxied() as proxy:
            proxy.register("koordlet.json", path, tuple(node.hooks.stages))
            assert await create(proxy, "sort") == (512, 50_000, 1 << 30)
        assert node.shown(PARENT.strip("/"), "cpu.cfs_quota_us") == "50000"

    run(scenario())


def test_containers_start_while_the_hook_server_is_away_and_get_their_resources_later(tmp_path: Path) -> None:
    """koordlet is restarted between two pods; one that starts meanwhile is put right by the one that comes back."""

    async def scenario() -> None:
        node, again = HookedNode(tmp_path), HookedNode(tmp_path)
        with tempfile.TemporaryDirectory(prefix="kh") as folder:
            path = Path(folder, "hooks.sock")
            async with proxied() as proxy:
                proxy.register("koordlet.json", path, tuple(node.hooks.stages))
                async with serving_at(path, node):
                    assert await create(proxy, "before") == (512, 50_000, 1 << 30)
                assert await create(proxy, "meanwhile") == (2, 0, 0)
                async with serving_at(path, again):
                    assert await create(proxy, "after") == (512, 50_000, 1 << 30)
        missed = again.run_pod("meanwhile", "BE", resources=AMOUNTS)
        again.run_hooks()
        assert again.of_pod(missed, "cpu.cfs_quota_us")[0] == "50000"

    run(scenario())


@pytest.mark.parametrize("qos", ["BE", "LSR"])
@pytest.mark.parametrize("broken", BROKEN_PODS, ids=lambda broken: broken.name)
def test_a_pod_with_a_broken_annotation_starts(broken: BrokenObject, qos: str, tmp_path: Path) -> None:
    """Though the proxy would fail it if the hook server did."""

    async def scenario() -> None:
        node = HookedNode(tmp_path)
        node.add_cgroup(f"kubepods/burstable/pod{UID}")
        async with serving(node) as path, proxied() as proxy:
            proxy.register("koordlet.json", path, tuple(node.hooks.stages), policy="Fail")
            document = broken.copy()
            document["metadata"]["labels"] = {"koordinator.sh/qosClass": qos}
            kubelet = Kubelet(proxy, KubeletPod(document, UID))
            await kubelet.start()
            await kubelet.remove()
            assert [method for method, _ in received(proxy)] == [method for method, _ in kubelet.sent]

    run(scenario())


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_each_shape_of_pod_starts_and_is_resized(shape: PodShape, tmp_path: Path) -> None:
    async def scenario() -> None:
        node = HookedNode(tmp_path)
        pod = KubeletPod.of_shape(shape)
        node.add_cgroup(pod.parent.strip("/"))
        async with serving(node) as path, proxied() as proxy:
            proxy.register("koordlet.json", path, tuple(node.hooks.stages), policy="Fail")
            kubelet = Kubelet(proxy, pod)
            await kubelet.start()
            await kubelet.resize()
            await kubelet.remove()
            created = map(cri.CreateContainerRequest.FromString, proxy.runtime.messages("CreateContainer"))
            given = {request.config.metadata.name: request.config.linux.resources for request in created}
            is_batch = shape.name == "batch"
            # All others get those that pods share.
            cpus = {"pinned": "1", "batch": "", "best-effort": ""}
            for container in pod.containers():
                sent = pod.create(container, "").config.linux.resources
                of = given[container["name"]]
                assert of.memory_limit_in_bytes == (64 << 20 if is_batch else sent.memory_limit_in_bytes)
                assert of.cpu_shares == (512 if is_batch else sent.cpu_shares)
                assert (of.oom_score_adj, of.unified) == (sent.oom_score_adj, sent.unified)
                assert of.cpuset_cpus == cpus.get(shape.name, "0-2,4-6")

    run(scenario())


def test_the_file_of_the_server_names_its_stages(tmp_path: Path) -> None:
    options = HookOptions(
        endpoint="/run/k.sock", registration_folder=str(tmp_path / "new"), disabled_stages=("PreCreateContainer",)
    )
    register(options, [Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER])
    assert json.loads((tmp_path / "new/koordlet.json").read_text()) == {
        "remote-endpoint": "/run/k.sock",
        "failure-policy": "Ignore",
        "runtime-hooks": ["PreRunPodSandbox"],
    }
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["koordlet.json"]


@pytest.mark.parametrize("kept", ["of another socket", "of one that listens"])
def test_a_registration_of_another_koordlet_stays(kept: str) -> None:
    with tempfile.TemporaryDirectory(prefix="kh") as folder:
        ours = HookOptions(socket=f"{folder}/hooks.sock", registration_folder=folder)
        other = replace(ours, endpoint="/run/other.sock")
        with ExitStack() as listening:
            if kept == "of one that listens":
                other = ours
                listening.enter_context(listen_at(ours.socket))
            register(other, ())
            unregister(ours)
            assert Path(folder, "koordlet.json").exists()
        unregister(other)
        assert not Path(folder, "koordlet.json").exists()


def test_what_is_no_registration_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "koordlet.json").write_text("[]")
    with pytest.raises(RegistrationError, match=r"koordlet.json is not JSON with a remote-endpoint"):
        unregister(HookOptions(registration_folder=str(tmp_path)))


def test_no_file_but_a_socket_makes_way_for_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "new/hooks.sock"
    prepare_socket(path)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="not a socket"):
        prepare_socket(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("knows_its_cpus", [True, False])
def test_proxies_are_told_of_the_server_once_it_is_known_which_cpus_pods_share(
    tmp_path: Path, knows_its_cpus: bool
) -> None:
    async def scenario() -> None:
        node = NodeUnderTest(tmp_path)
        node.kubelet_is_up = False
        node.machine.write_numa_memory(0, 16 << 20)
        with tempfile.TemporaryDirectory(prefix="kh") as folder:
            registration = Path(folder, "koordlet.json")
            node.hooks = HookOptions(socket=f"{folder}/hooks.sock", registration_folder=folder)
            async with node.running() as agent:
                await node.pass_seconds(12)
                assert not registration.exists()
                assert not _is_proxy_mode_active(agent)
                node.kubelet_is_up = knows_its_cpus
                # Kubelet is queried every ten seconds; the longest wait is thirty.
                await node.pass_seconds(14 if knows_its_cpus else 19)
                await wait_for(registration.exists)
                assert _is_proxy_mode_active(agent)

    run(scenario())


def test_its_connections_are_counted_with_those_of_the_ports(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = NodeUnderTest(tmp_path)
        node.machine.write_numa_memory(0, 16 << 20)
        with tempfile.TemporaryDirectory(prefix="kh") as folder:
            path = f"{folder}/hooks.sock"
            node.hooks = HookOptions(socket=path, registration_folder=folder)
            async with node.running() as agent:
                await node.pass_seconds(14)
                await wait_for(Path(folder, "koordlet.json").exists)
                _, writer = await asyncio.open_unix_connection(path)
                line = f'koordinator_server_connections{{port="{path}"}} 1.0'
                await wait_for(lambda: line in agent.metrics.both.exposition()[0].decode())
                writer.close()

    run(scenario())


def _is_proxy_mode_active(agent: Agent) -> bool:
    body, _ = agent.metrics.both.exposition()
    (line,) = (line for line in body.decode().splitlines() if "runtime_hooks_mode{" in line and '"proxy"' in line)
    return line.endswith(" 1.0")
