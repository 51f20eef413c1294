"""What hooks change around each intercepted call, and what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import LinuxContainerResources
from tests.runtime_proxy.fake_servers import FakeHookServer, FakeRuntime, channel, never
from tests.runtime_proxy.proxied import ALL_HOOKS, SKIP, Proxied, proxied, run


def pod_request(**labels: str) -> cri.RunPodSandboxRequest:
    request = cri.RunPodSandboxRequest(runtime_handler="runc")
    request.config.metadata.name, request.config.metadata.uid = "web", "u-1"
    request.config.metadata.namespace, request.config.metadata.attempt = "shop", 3
    request.config.labels.update({"app": "web", **labels})
    request.config.linux.cgroup_parent = "/kubepods/pod-u-1"
    return request


def container_request(sandbox: str) -> cri.CreateContainerRequest:
    request = cri.CreateContainerRequest(pod_sandbox_id=sandbox)
    request.config.metadata.name = "main"
    request.config.envs.extend([cri.KeyValue(key="A", value=b"0"), cri.KeyValue(key="B", value=b"2")])
    resources = request.config.linux.resources
    resources.cpu_quota, resources.memory_limit_in_bytes, resources.oom_score_adj = 50000, 1 << 30, 999
    request.sandbox_config.linux.cgroup_parent = "/kubepods/pod-u-1"
    return request


async def run_pod(proxy: Proxied, **labels: str) -> str:
    response = await proxy.call("RunPodSandbox", pod_request(**labels))
    return cri.RunPodSandboxResponse.FromString(response).pod_sandbox_id


async def create(proxy: Proxied, sandbox: str) -> str:
    response = await proxy.call("CreateContainer", container_request(sandbox))
    return cri.CreateContainerResponse.FromString(response).container_id


def created(proxy: Proxied) -> cri.CreateContainerRequest:
    return cri.CreateContainerRequest.FromString(proxy.runtime.messages("CreateContainer")[-1])


def of(identifier: str) -> cri.ContainerRequest:
    return cri.ContainerRequest(container_id=identifier)


def test_a_hook_changes_labels_and_the_parent_of_a_pod() -> None:
    def change(request: Any, response: Any) -> None:
        response.labels["a"], response.cgroup_parent = "b", "/x"

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change), hooks=("PreRunPodSandbox",)):
            await run_pod(proxy)
            config = cri.RunPodSandboxRequest.FromString(proxy.runtime.messages("RunPodSandbox")[0]).config
            assert dict(config.labels) == {"app": "web", "a": "b"}
            assert config.linux.cgroup_parent == "/x"

    run(scenario())


def test_containers_are_queried_about_with_what_hooks_made_of_their_pod() -> None:
    def change(request: Any, response: Any) -> None:
        if hasattr(response, "labels"):
            response.labels["a"] = "b"

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change)) as server:
            await create(proxy, await run_pod(proxy))
            requested = server.requests("PreCreateContainer")[0]
            assert dict(requested.pod_labels) == {"app": "web", "a": "b"}
            assert (requested.pod_meta.name, requested.pod_meta.namespace, requested.pod_meta.attempt) == (
                "web",
                "shop",
                3,
            )
            assert (requested.container_meta.name, requested.pod_cgroup_parent) == ("main", "/kubepods/pod-u-1")
            assert dict(requested.container_envs) == {"A": "0", "B": "2"}

    run(scenario())


def test_a_hook_changes_resources_and_environment_of_a_container() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(_acceptance_change)):
            await create(proxy, await run_pod(proxy))
            request = created(proxy)
            resources = request.config.linux.resources
            assert resources == LinuxContainerResources(cpuset_cpus="0-1", cpu_quota=-1, memory_limit_in_bytes=1 << 30)
            assert [(env.key, env.value) for env in request.config.envs] == [("A", b"1")]

    run(scenario())


def _acceptance_change(request: Any, response: Any) -> None:
    """A cpuset, oom_score_adj 0, no quota, no memory, one variable."""
    if hasattr(response, "container_resources") and not request.container_meta.id:
        response.container_resources.CopyFrom(LinuxContainerResources(cpuset_cpus="0-1", cpu_quota=-1))
        response.container_envs.clear()
        response.container_envs["A"] = "1"


def test_a_response_without_resources_changes_none() -> None:
    def change(request: Any, response: Any) -> None:
        if hasattr(response, "container_resources"):
            response.ClearField("container_resources")

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change)):
            await create(proxy, await run_pod(proxy))
            assert created(proxy).config.linux.resources == container_request("").config.linux.resources

    run(scenario())


def test_a_hook_can_add_the_linux_section_that_a_request_lacks() -> None:
    def change(request: Any, response: Any) -> None:
        if hasattr(response, "container_resources"):
            response.container_resources.cpu_shares = 512
            response.pod_cgroup_parent = "/x"

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change)):
            sandbox = await run_pod(proxy)
            await proxy.call("CreateContainer", cri.CreateContainerRequest(pod_sandbox_id=sandbox))
            assert created(proxy).config.linux.resources.cpu_shares == 512
            assert created(proxy).sandbox_config.linux.cgroup_parent == "/x"

    run(scenario())


def test_an_update_reaches_hook_and_runtime_with_all_resources() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(_acceptance_change)) as server:
            container = await create(proxy, await run_pod(proxy))
            update = cri.UpdateContainerResourcesRequest(container_id=container)
            update.linux.memory_limit_in_bytes = 2 << 30
            await proxy.call("UpdateContainerResources", update)
            requested = server.requests("PreUpdateContainerResources")[0].container_resources
            assert (requested.cpu_quota, requested.memory_limit_in_bytes, requested.oom_score_adj) == (-1, 2 << 30, 0)
            sent = proxy.runtime.messages("UpdateContainerResources")[0]
            assert cri.UpdateContainerResourcesRequest.FromString(sent).linux == LinuxContainerResources(
                cpuset_cpus="0-1", cpu_quota=-1, memory_limit_in_bytes=2 << 30
            )

    run(scenario())


def test_an_update_that_the_runtime_refuses_is_not_remembered() -> None:
    async def refuse(message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INTERNAL, "no")
        return b""

    async def scenario() -> None:
        runtime = FakeRuntime({"UpdateContainerResources": refuse})
        async with proxied(runtime) as proxy, proxy.hooked(FakeHookServer()):
            container = await create(proxy, await run_pod(proxy))
            update = cri.UpdateContainerResourcesRequest(container_id=container)
            update.linux.memory_limit_in_bytes = 2 << 30
            with pytest.raises(grpc.aio.AioRpcError, match="no"):
                await proxy.call("UpdateContainerResources", update)
            stored = proxy.checkpoints.containers.get(container)
            assert stored is not None
            assert stored.container_resources.memory_limit_in_bytes == 1 << 30

    run(scenario())


def test_without_its_server_a_hook_with_policy_ignore_changes_nothing() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            proxy.register("a.json", proxy.folder / "absent.sock")
            await create(proxy, await run_pod(proxy))
            assert proxy.runtime.messages("RunPodSandbox") == [pod_request().SerializeToString()]

    run(scenario())


def test_without_its_server_a_hook_with_policy_fail_fails_the_call() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            proxy.register("a.json", proxy.folder / "absent.sock", policy="Fail")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await run_pod(proxy)
            assert failed.value.code() is grpc.StatusCode.UNKNOWN
            assert str(failed.value.details()).startswith("hook server err: rpc error: code = Unavailable")
            assert proxy.runtime.messages("RunPodSandbox") == []
            # The connection goes on.
            await proxy.call("Version")

    run(scenario())


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_a_server_that_hangs_is_given_up(policy: str) -> None:
    async def scenario() -> None:
        async with (
            proxied(hook_timeout=0.05) as proxy,
            proxy.hooked(FakeHookServer(wait=never), hooks=("PreRunPodSandbox",), policy=policy),
        ):
            if policy == "Ignore":
                assert await run_pod(proxy) == "pod-1"
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="code = DeadlineExceeded"):
                    await run_pod(proxy)

    run(scenario())


def test_a_server_that_responds_with_nonsense_is_an_error_of_its_own() -> None:
    async def scenario() -> None:
        nonsense = FakeRuntime({"PreRunPodSandboxHook": _nonsense})
        async with proxied() as proxy, proxy.hooked(nonsense, policy="Fail"):  # type: ignore[arg-type]
            with pytest.raises(grpc.aio.AioRpcError, match="hook server err"):
                await run_pod(proxy)

    run(scenario())


async def _nonsense(message: bytes, context: Any) -> bytes:
    return b"\xff\xff\xff"


def test_no_hook_is_called_for_pods_with_the_skip_label() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), policy="Fail") as server:
            sandbox = await run_pod(proxy, **{SKIP.key: SKIP.value})
            container = await create(proxy, sandbox)
            for method in ("StartContainer", "StopContainer"):
                await proxy.call(method, of(container))
            await proxy.call("StopPodSandbox", cri.PodSandboxRequest(pod_sandbox_id=sandbox))
            assert server.received == []
            assert len(proxy.runtime.received) == 5

    run(scenario())


def test_a_start_is_reported_before_and_after_with_all_that_is_known() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer()) as server:
            container = await create(proxy, await run_pod(proxy))
            await proxy.call("StartContainer", of(container))
            for hook in ("PreStartContainer", "PostStartContainer"):
                requested = server.requests(hook)[0]
                assert (requested.container_meta.id, requested.container_meta.name) == (container, "main")
                assert (requested.pod_meta.name, dict(requested.pod_labels)) == ("web", {"app": "web"})

    run(scenario())


def test_a_stop_that_failed_is_reported_again_when_it_is_tried_again() -> None:
    failures = [True, False]

    async def stop(message: bytes, context: Any) -> bytes:
        if failures.pop(0):
            await context.abort(grpc.StatusCode.INTERNAL, "busy")
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({"StopContainer": stop})) as proxy, proxy.hooked(FakeHookServer()) as server:
            container = await create(proxy, await run_pod(proxy))
            with pytest.raises(grpc.aio.AioRpcError, match="busy"):
                await proxy.call("StopContainer", of(container))
            await proxy.call("StopContainer", of(container))
            assert len(server.requests("PostStopContainer")) == 2
            assert len(proxy.checkpoints.containers) == 0

    run(scenario())


def test_a_pod_is_forgotten_when_it_is_stopped_or_removed() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            stopped, removed = await run_pod(proxy), await run_pod(proxy)
            await proxy.call("StopPodSandbox", cri.PodSandboxRequest(pod_sandbox_id=stopped))
            await proxy.call("RemovePodSandbox", cri.PodSandboxRequest(pod_sandbox_id=removed))
            assert len(proxy.checkpoints.pods) == 0

    run(scenario())


def test_a_container_that_ended_by_itself_is_forgotten_when_it_is_removed() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            container = await create(proxy, await run_pod(proxy))
            await proxy.call("RemoveContainer", of(container))
            assert len(proxy.checkpoints.containers) == 0

    run(scenario())


def test_a_container_of_an_unknown_sandbox_is_created_as_requested() -> None:
    async def unknown(message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such sandbox")
        return b""

    async def scenario() -> None:
        runtime = FakeRuntime({"PodSandboxStatus": unknown})
        async with proxied(runtime) as proxy, proxy.hooked(FakeHookServer()) as server:
            await create(proxy, "nobody")
            assert runtime.messages("CreateContainer") == [container_request("nobody").SerializeToString()]
            assert server.received == []

    run(scenario())


def test_a_sandbox_that_is_not_remembered_is_queried_of_the_runtime() -> None:
    async def status(message: bytes, context: Any) -> bytes:
        response = cri.PodSandboxStatusResponse()
        response.status.metadata.name = "found"
        response.info["info"] = '{"config": {"linux": {"cgroup_parent": "/found"}}}'
        return response.SerializeToString()

    async def scenario() -> None:
        runtime = FakeRuntime({"PodSandboxStatus": status})
        async with proxied(runtime) as proxy, proxy.hooked(FakeHookServer()) as server:
            await create(proxy, "pod-of-before")
            assert server.requests("PreCreateContainer")[0].pod_meta.name == "found"
            kept = proxy.checkpoints.pods.get("pod-of-before")
            assert kept is not None
            assert kept.cgroup_parent == "/found"

    run(scenario())


def test_servers_are_queried_in_the_order_of_their_files_each_with_what_was_changed() -> None:
    def first(request: Any, response: Any) -> None:
        response.annotations["first"] = "yes"

    def second(request: Any, response: Any) -> None:
        response.annotations["second"] = "yes"

    async def scenario() -> None:
        hooks = ("PreRunPodSandbox",)
        async with (
            proxied() as proxy,
            proxy.hooked(FakeHookServer(second), name="b.json", hooks=hooks) as b,
            proxy.hooked(FakeHookServer(first), name="a.json", hooks=hooks) as a,
        ):
            await run_pod(proxy)
            assert dict(a.requests("PreRunPodSandbox")[0].annotations) == {}
            assert dict(b.requests("PreRunPodSandbox")[0].annotations) == {"first": "yes"}
            config = cri.RunPodSandboxRequest.FromString(proxy.runtime.messages("RunPodSandbox")[0]).config
            assert dict(config.annotations) == {"first": "yes", "second": "yes"}

    run(scenario())


def test_concurrent_calls_get_their_own_responses() -> None:
    together = asyncio.Barrier(100)

    async def wait() -> None:
        await together.wait()

    def change(request: Any, response: Any) -> None:
        response.container_envs["MINE"] = request.container_meta.name

    async def scenario() -> None:
        async with (
            proxied() as proxy,
            proxy.hooked(FakeHookServer(change, wait=wait), hooks=("PreCreateContainer",)),
        ):
            sandbox = await run_pod(proxy)

            async def one(number: int) -> None:
                request = container_request(sandbox)
                request.config.metadata.name = f"c{number}"
                await proxy.call("CreateContainer", request)

            await asyncio.gather(*(one(number) for number in range(100)))
            got = [cri.CreateContainerRequest.FromString(each) for each in proxy.runtime.messages("CreateContainer")]
            assert len(got) == 100
            assert all(
                {env.key: env.value for env in each.config.envs}["MINE"] == each.config.metadata.name.encode()
                for each in got
            )
            remembered = [proxy.checkpoints.containers.get(f"container-{number}") for number in range(2, 102)]
            assert {each.container_meta.name for each in remembered if each} == {f"c{n}" for n in range(100)}

    run(scenario())


def test_a_call_that_kubelet_gave_up_never_reaches_the_runtime() -> None:
    async def scenario() -> None:
        async with (
            proxied(hook_timeout=10) as proxy,
            proxy.hooked(FakeHookServer(wait=never), hooks=("PreRunPodSandbox",)) as server,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await proxy.call("RunPodSandbox", pod_request(), timeout=0.1)
            assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await proxy.call("Version")
            assert len(server.received) == 1
            assert proxy.runtime.messages("RunPodSandbox") == []

    run(scenario())


def test_a_changed_request_keeps_what_we_do_not_know() -> None:
    unknown = b"\xba\x3e\x05hello"
    sandbox = cri.PodSandboxConfig.FromString(pod_request().config.SerializeToString() + unknown)

    def change(request: Any, response: Any) -> None:
        response.labels["a"] = "b"

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change), hooks=("PreRunPodSandbox",)):
            await proxy.call("RunPodSandbox", cri.RunPodSandboxRequest(config=sandbox))
            sent = proxy.runtime.messages("RunPodSandbox")[0]
            assert b"hello" in sent
            assert cri.RunPodSandboxRequest.FromString(sent).config.labels["a"] == "b"

    run(scenario())


def test_hooks_work_for_clients_of_v1alpha2() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), hooks=ALL_HOOKS) as server:
            method = proxy.client.unary_unary("/runtime.v1alpha2.RuntimeService/RunPodSandbox")
            await method(pod_request().SerializeToString())
            assert len(server.requests("PreRunPodSandbox")) == 1

    run(scenario())


def test_each_request_to_a_hook_server_is_counted() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), hooks=("PreRunPodSandbox",)):
            await run_pod(proxy)
            text = proxy.metrics.exposition()[0].decode()
            labels = 'hook="PreRunPodSandbox",result="success",server="a.json"'
            assert f"koord_runtime_proxy_hook_requests_total{{{labels}}} 1.0" in text
            assert 'koord_runtime_proxy_hook_duration_seconds_count{hook="PreRunPodSandbox"} 1.0' in text

    run(scenario())


def test_what_a_hook_is_told_of_survives_the_process() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            container = await create(proxy, await run_pod(proxy))
            again = type(proxy.checkpoints)(proxy.folder / "kept")
            again.load()
            kept = again.containers.get(container)
            assert kept is not None
            assert (kept.pod_meta.name, kept.container_meta.id) == ("web", container)

    run(scenario())


def test_a_second_client_has_its_own_connection() -> None:
    async def scenario() -> None:
        async with proxied() as proxy, channel(proxy.socket) as other:
            await proxy.call("Version")
            await other.unary_unary("/runtime.v1.RuntimeService/Version")(b"")
            assert len(proxy.runtime.received) == 2

    run(scenario())


def test_a_start_that_failed_has_no_hook_after_it() -> None:
    async def refuse(message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INTERNAL, "no")
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({"StartContainer": refuse})) as proxy, proxy.hooked(FakeHookServer()) as server:
            container = await create(proxy, await run_pod(proxy))
            with pytest.raises(grpc.aio.AioRpcError, match="no"):
                await proxy.call("StartContainer", of(container))
            assert len(server.requests("PreStartContainer")) == 1
            assert server.requests("PostStartContainer") == []

    run(scenario())
