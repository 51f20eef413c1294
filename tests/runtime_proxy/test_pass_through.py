"""Without hooks nobody can tell the proxy from the runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.protobuf import cri_pb2 as cri
from tests.examples import examples
from tests.runtime_proxy.fake_servers import FakeRuntime, never
from tests.runtime_proxy.proxied import proxied, run

_RUNTIME = (
    "Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox "
    "CreateContainer StartContainer StopContainer RemoveContainer ListContainers ContainerStatus "
    "UpdateContainerResources ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats "
    "ListContainerStats PodSandboxStats ListPodSandboxStats UpdateRuntimeConfig Status "
    "CheckpointContainer ListMetricDescriptors ListPodSandboxMetrics RuntimeConfig "
    "UpdatePodSandboxResources"
)
_IMAGES = "ListImages ImageStatus PullImage RemoveImage ImageFsInfo"
_METHODS = [
    *(f"/runtime.{version}.RuntimeService/{name}" for version in ("v1", "v1alpha2") for name in _RUNTIME.split()),
    *(f"/runtime.{version}.ImageService/{name}" for version in ("v1", "v1alpha2") for name in _IMAGES.split()),
    "/some.other.Service/Method",
]
_ECHOED = [method.rpartition("/")[2] for method in _METHODS]
_METADATA = (("x-trace", "1"), ("x-bytes-bin", b"\0\1\xff"))


async def _echo(message: bytes, context: Any) -> bytes:
    return message


def _echoing() -> FakeRuntime:
    return FakeRuntime(dict.fromkeys(_ECHOED, _echo))


def test_every_method_passes_byte_for_byte_with_its_metadata() -> None:
    async def scenario() -> None:
        # Two labels in an order, and with a duplicate, that no encoder would write.
        message = cri.PodSandboxRequest(pod_sandbox_id="b").SerializeToString() + b"\n\1a\xba\x3e\1x"
        async with proxied(_echoing()) as proxy:
            for method in _METHODS:
                assert await proxy.client.unary_unary(method)(message, metadata=_METADATA) == message
            assert [(call.method, call.message) for call in proxy.runtime.received] == [
                (method, message) for method in _METHODS
            ]
            assert all(dict(_METADATA).items() <= call.metadata.items() for call in proxy.runtime.received)

    run(scenario())


@pytest.mark.parametrize("method", ["Status", "CreateContainer"])
def test_an_error_has_its_details_and_trailers(method: str) -> None:
    details = b"\x08\x05\x12\x04gone"

    async def refuse(message: bytes, context: Any) -> bytes:
        await context.send_initial_metadata((("first", "1"),))
        trailers = (("last-bin", b"\0\xfe"), ("grpc-status-details-bin", details))
        await context.abort(grpc.StatusCode.NOT_FOUND, "50 % «gone»\n", trailers)
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({method: refuse})) as proxy:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await proxy.call(method)
            assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.NOT_FOUND, "50 % «gone»\n")
            trailers = dict(failed.value.trailing_metadata() or ())
            assert trailers == {"last-bin": b"\0\xfe", "grpc-status-details-bin": details}
            assert dict(failed.value.initial_metadata() or ()) == {"first": "1"}

    run(scenario())


@pytest.mark.parametrize("method", ["ListContainers", "CreateContainer"])
def test_messages_of_16_mib_pass_both_ways(method: str) -> None:
    async def scenario() -> None:
        async with proxied(_echoing()) as proxy:
            message = cri.CreateContainerRequest(pod_sandbox_id="x" * ((16 << 20) - 5)).SerializeToString()
            assert len(message) == 16 << 20
            assert await proxy.call(method, message) == message

    run(scenario())


def test_an_intercepted_request_above_16_mib_is_refused_as_by_runtimes() -> None:
    async def scenario() -> None:
        async with proxied(_echoing()) as proxy:
            with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as failed:
                await proxy.call("CreateContainer", bytes((16 << 20) + 1))
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            # The windows of the connection are as before.
            assert await proxy.call("ListContainers", bytes(1 << 20)) == bytes(1 << 20)

    run(scenario())


def test_many_large_calls_at_once_pass() -> None:
    async def scenario() -> None:
        async with proxied(_echoing()) as proxy:
            messages = [bytes((number,)) * 300_000 for number in range(20)]
            methods = ("ListContainers", "CreateContainer")
            calls = [proxy.call(methods[number % 2], message) for number, message in enumerate(messages)]
            assert await asyncio.gather(*calls) == messages

    run(scenario())


def test_a_stream_of_events_passes() -> None:
    async def scenario() -> None:
        async with proxied(FakeRuntime(events=[b"one", b"two", b"x" * 100_000])) as proxy:
            stream = proxy.client.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"")
            assert [event async for event in stream] == proxy.runtime.events

    run(scenario())


def test_the_deadline_of_a_client_reaches_the_runtime() -> None:
    remaining: list[float] = []

    async def respond(message: bytes, context: Any) -> bytes:
        remaining.append(context.time_remaining())
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({"Status": respond, "StartContainer": respond})) as proxy:
            await proxy.call("Status", timeout=100)
            await proxy.call("StartContainer", timeout=100)
            # gRPC rounds up what is left.
            assert all(90 < seconds < 102 for seconds in remaining)

    run(scenario())


@pytest.mark.parametrize("method", ["Status", "StartContainer"])
def test_a_client_that_gives_up_cancels_the_call_of_the_runtime(method: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(message: bytes, context: Any) -> bytes:
        started.set()
        try:
            await never()
        finally:
            cancelled.set()
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({method: hang})) as proxy:
            call = proxy.client.unary_unary(f"/runtime.v1.RuntimeService/{method}")(b"")
            await started.wait()
            call.cancel()
            await cancelled.wait()

    run(scenario())


def test_a_method_that_the_runtime_does_not_have_is_unimplemented() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await proxy.client.unary_unary("/not.there.Service/Method")(b"x" * 100_000)
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(scenario())


def test_a_slow_reader_does_not_fill_the_memory() -> None:
    """The runtime sends faster than the client reads: windows stop it, and the proxy keeps next to nothing."""
    sent = 0

    async def events(method: str, message: bytes, context: Any) -> Any:
        nonlocal sent
        for _ in range(1000):
            yield bytes(1 << 16)
            sent += 1

    async def scenario() -> None:
        runtime = FakeRuntime()
        runtime.stream = events  # type: ignore[method-assign]
        async with proxied(runtime) as proxy:
            stream = proxy.client.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"")
            await stream.read()
            # Another call passes meanwhile, several times over.
            for _ in range(20):
                await proxy.call("Status")
            assert sent < 900
            stream.cancel()

    run(scenario())


def test_calls_in_flight_end_before_the_proxy_does() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow(message: bytes, context: Any) -> bytes:
        started.set()
        await finish.wait()
        return b"done"

    async def scenario() -> None:
        async with proxied(FakeRuntime({"Status": slow})) as proxy:
            call = asyncio.ensure_future(proxy.call("Status"))
            await started.wait()
            stopping = asyncio.create_task(proxy.server.stop(proxy.socket, 10.0))
            await asyncio.sleep(0)
            assert not proxy.socket.exists()
            finish.set()
            assert await call == b"done"
            await stopping

    run(scenario())


def test_a_call_that_does_not_end_is_cut_off_when_the_grace_is_over() -> None:
    started = asyncio.Event()

    async def hang(message: bytes, context: Any) -> bytes:
        started.set()
        await never()
        return b""

    async def scenario() -> None:
        async with proxied(FakeRuntime({"StartContainer": hang})) as proxy:
            call = asyncio.ensure_future(proxy.call("StartContainer"))
            await started.wait()
            await proxy.server.stop(proxy.socket, 0.01)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE

    run(scenario())


def test_bytes_that_are_not_http2_close_their_connection_only() -> None:
    async def scenario() -> None:
        async with proxied() as proxy:
            reader, writer = await asyncio.open_unix_connection(str(proxy.socket))
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            await proxy.call("Version")

    run(scenario())


_TEXTS = st.text(max_size=20)
_MAPS = st.dictionaries(_TEXTS, _TEXTS, max_size=4)
_POD_CONFIGS = st.builds(
    lambda name, labels, annotations, parent: cri.PodSandboxConfig(
        metadata={"name": name}, labels=labels, annotations=annotations, linux={"cgroup_parent": parent}
    ),
    _TEXTS,
    _MAPS,
    _MAPS,
    _TEXTS,
)
_REQUESTS = st.one_of(
    st.tuples(st.just("RunPodSandbox"), _POD_CONFIGS.map(lambda config: cri.RunPodSandboxRequest(config=config))),
    st.tuples(
        st.just("CreateContainer"),
        st.builds(
            lambda sandbox, config, envs: cri.CreateContainerRequest(
                pod_sandbox_id=sandbox,
                sandbox_config=config,
                config={"envs": [cri.KeyValue(key=key, value=value) for key, value in envs]},
            ),
            st.sampled_from(["pod-1", "pod-2", "nobody"]),
            _POD_CONFIGS,
            st.lists(st.tuples(_TEXTS, st.binary(max_size=9))),
        ),
    ),
    st.tuples(
        st.sampled_from(["StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources"]),
        st.sampled_from(["container-1", "container-2", "", "nobody"]).map(
            lambda i: cri.ContainerRequest(container_id=i)
        ),
    ),
    st.tuples(
        st.sampled_from(["StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus"]),
        st.sampled_from(["pod-1", "pod-2", ""]).map(lambda i: cri.PodSandboxRequest(pod_sandbox_id=i)),
    ),
).map(lambda request: (request[0], request[1].SerializeToString()))
_NONSENSE = st.tuples(st.sampled_from(_RUNTIME.split()), st.binary(max_size=60))


@settings(max_examples=examples(8))
@given(st.lists(st.one_of(_REQUESTS, _NONSENSE), max_size=60))
def test_a_conversation_is_the_same_directly_and_through_the_proxy(conversation: list[tuple[str, bytes]]) -> None:
    async def scenario() -> None:
        async with proxied(_DecodingRuntime()) as proxy:
            through = [await _outcome(proxy.client, *request) for request in conversation]
            received, proxy.runtime.received = proxy.runtime.received, []
            proxy.runtime.created = 0
            assert [await _outcome(proxy.direct, *request) for request in conversation] == through
            assert [each.message for each in received] == [each.message for each in proxy.runtime.received]

    run(scenario())


class _DecodingRuntime(FakeRuntime):
    """Refuses what it cannot decode, as every runtime does, and responds with what it got for methods that only ask."""

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        try:
            cri.ContainerRequest.FromString(message)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"grpc: error unmarshalling request: {error}")
        response = await super().respond(method, message, context)
        return response or message


async def _outcome(client: grpc.aio.Channel, method: str, message: bytes) -> tuple[Any, ...]:
    try:
        return ("OK", await client.unary_unary(f"/runtime.v1.RuntimeService/{method}")(message))
    except grpc.aio.AioRpcError as error:
        return (error.code(), error.details())
