"""Kubelet's pod-resources API through koordlet, with a kubelet and a client of their own on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.protobuf_wire import (
    MalformedMessageError,
    encode_message,
    encode_number,
    encode_text,
    encoded_fields,
)
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.report.pod_resources_proxy import SOCKET, PodResourcesProxy, with_devices
from koordinator.kube.errors import TransportError
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.grpc_server import GrpcServer
from koordinator.node.pod_resources import ContainerAllocation, ContainerDevices, PodAllocation, list_pod_resources

_GPUS = {"gpu": [{"minor": 1, "id": "GPU-1"}, {"minor": 0, "id": "GPU-0"}]}
_VIRTUAL_FUNCTIONS = {"rdma": [{"id": "card", "extension": {"vfs": [{"minor": -1, "busID": "0000:01:00.2"}]}}]}
_UNKNOWN = encode_text(77, "from a kubelet of the future")


def _pod(annotation: str | None = None) -> Pod:
    annotations = {} if annotation is None else {"scheduling.koordinator.sh/device-allocated": annotation}
    return convert({"metadata": {"name": "web", "namespace": "shop", "annotations": annotations}}, Pod)


def _devices(resource: str, *ids: str) -> bytes:
    return encode_text(1, resource) + b"".join(encode_text(2, identifier) for identifier in ids)


def _response(*devices: bytes) -> bytes:
    """Of the pod shop/web with two containers, the first of which has CPU 3."""
    first = encode_text(1, "main") + b"".join(encode_message(2, entry) for entry in devices)
    first += encode_message(3, bytes([3])) + _UNKNOWN
    second = encode_message(3, encode_text(1, "side"))
    pod = encode_text(1, "web") + encode_text(2, "shop") + encode_message(3, first) + second + _UNKNOWN
    return encode_message(1, pod) + _UNKNOWN


class _Kubelet:
    """Its pods, and what its pod-resources API answers."""

    def __init__(self, *pods: Pod, response: bytes = b"") -> None:
        self.listed: tuple[Pod, ...] = pods
        self.response = response
        self.requests: list[tuple[str, bytes]] = []
        self.is_up = True

    async def pods(self) -> tuple[Pod, ...]:
        if not self.is_up:
            raise TransportError("connection refused")
        return self.listed

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        def handler(name: str) -> Callable[[bytes], Awaitable[bytes]]:
            async def response(message: bytes) -> bytes:
                self.requests.append((name, message))
                return self.response

            return response

        names = ("List", "Get", "GetAllocatableResources")
        return {f"/v1.PodResourcesLister/{name}": handler(name) for name in names}


def _through(folder: Path, kubelet: _Kubelet, call: Callable[[GrpcClient], Awaitable[Any]]) -> Any:
    """What ``ask`` gets from the proxy in front of a kubelet."""

    async def play() -> Any:
        upstream, client = GrpcClient(folder / "k.sock"), GrpcClient(folder / "p" / SOCKET)
        connections = ProgramConnections(Metrics(), SystemClock())
        proxy = PodResourcesProxy(upstream, kubelet.pods, folder / "p", connections)
        ready = asyncio.Event()
        async with asyncio.timeout(20):
            serving = asyncio.ensure_future(
                GrpcServer(kubelet.handlers(), connections).run(str(folder / "k.sock"), ready.set)
            )
            await ready.wait()
            proxying = asyncio.ensure_future(proxy.run())
            while not (folder / "p" / SOCKET).exists():
                await asyncio.sleep(0)
            try:
                return await call(client)
            finally:
                client.close()
                upstream.close()
                for task in (proxying, serving):
                    task.cancel()
                await asyncio.gather(proxying, serving, return_exceptions=True)

    return asyncio.run(play())


def _listed(folder: Path, kubelet: _Kubelet) -> tuple[ContainerAllocation, ...]:
    found: tuple[PodAllocation, ...] = _through(folder, kubelet, list_pod_resources)
    (pod,) = found
    assert (pod.namespace, pod.name) == ("shop", "web")
    return pod.containers


def test_devices_of_the_scheduler_are_in_the_first_container_sorted_by_resource(tmp_path: Path) -> None:
    kubelet = _Kubelet(_pod(json.dumps(_GPUS | _VIRTUAL_FUNCTIONS)), response=_response(_devices("z.example/x", "7")))
    first, second = _listed(tmp_path, kubelet)
    assert first.devices == (
        ContainerDevices("koordinator.sh/rdma", ("0000:01:00.2",), ()),
        ContainerDevices("nvidia.com/gpu", ("GPU-1", "GPU-0"), ()),
        ContainerDevices("z.example/x", ("7",), ()),
    )
    assert (first.name, first.cpus) == ("main", (3,))
    assert second.devices == ()


@pytest.mark.parametrize("annotation", [None, "{}", "not JSON", '{"gpu": 5}', '{"fpga": [{"id": "f"}]}'])
def test_a_pod_without_devices_that_are_known_is_as_kubelet_has_it(tmp_path: Path, annotation: str | None) -> None:
    kubelet = _Kubelet(_pod(annotation), response=_response(_devices("z.example/x", "7")))
    assert _listed(tmp_path, kubelet)[0].devices == (ContainerDevices("z.example/x", ("7",), ()),)


def test_what_is_not_known_of_a_response_stays(tmp_path: Path) -> None:
    kubelet = _Kubelet(_pod(json.dumps(_GPUS)), response=_response())
    raw: bytes = _through(tmp_path, kubelet, lambda client: client.unary("/v1.PodResourcesLister/List", b"", 5.0))
    assert raw.count(_UNKNOWN) == 3


@pytest.mark.parametrize("method", ["Get", "GetAllocatableResources"])
def test_other_calls_pass_through(tmp_path: Path, method: str) -> None:
    kubelet = _Kubelet(response=b"\x0a\x00")
    call = lambda client: client.unary(f"/v1.PodResourcesLister/{method}", b"\x0a\x01a", 5.0)  # noqa: E731
    assert _through(tmp_path, kubelet, call) == b"\x0a\x00"
    assert kubelet.requests == [(method, b"\x0a\x01a")]


def test_a_kubelet_that_does_not_report_its_pods_fails_the_call_and_says_why(tmp_path: Path) -> None:
    kubelet = _Kubelet(response=_response())
    kubelet.is_up = False
    with pytest.raises(GrpcError, match="code = Unknown desc = connection refused"):
        _listed(tmp_path, kubelet)


def test_a_kubelet_without_the_api_fails_the_call(tmp_path: Path) -> None:
    async def call(client: GrpcClient) -> None:
        (tmp_path / "k.sock").unlink()
        await list_pod_resources(client)

    with pytest.raises(GrpcError, match="code = Unavailable desc = connection error: dial unix"):
        _through(tmp_path, _Kubelet(), call)


def test_what_keeps_it_from_serving_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SOCKET).write_text("somebody's file")

    async def play() -> None:
        clock = ManualClock()
        connections = ProgramConnections(Metrics(), clock)
        proxy = PodResourcesProxy(GrpcClient(tmp_path / "none"), _Kubelet().pods, tmp_path, connections)
        running = asyncio.ensure_future(proxy.run())
        await clock.advance(20)
        assert (tmp_path / SOCKET).read_text() == "somebody's file"
        (tmp_path / SOCKET).unlink()
        await clock.advance(6)
        assert (tmp_path / SOCKET).is_socket()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert caplog.text.count("pod resources are not served") == 1


def test_its_flag_and_its_gate_are_no_longer_without_effect() -> None:
    arguments = ["--pod-resources-proxy-path=/p", "--feature-gates=PodResourcesProxy=true"]
    options = parse_options(arguments, {"NODE_NAME": "node-1"})
    assert (options.folders.pod_resources, options.remarks) == (Path("/p"), ())


@given(st.binary(max_size=80))
def test_no_response_of_kubelet_raises_anything_else(response: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        with_devices(response, {("", ""): {"nvidia.com/gpu": ["GPU-0"]}})


@given(st.lists(st.tuples(st.integers(1, 99), st.one_of(st.integers(0, 1 << 40), st.binary(max_size=9)))))
def test_encoded_fields_put_together_are_the_message(made: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(
        encode_number(number, value) if isinstance(value, int) else encode_message(number, value)
        for number, value in made
    )
    assert b"".join(field for _, field in encoded_fields(message)) == message
