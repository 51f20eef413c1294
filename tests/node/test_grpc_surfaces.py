"""The container runtime and kubelet's pod-resources API: the messages that go out, and what is read of responses.

The numbers of the fields are those of the .proto files of k8s.io/cri-api and k8s.io/kubelet.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.protobuf_wire import (
    MalformedMessageError,
    contents,
    encode_message,
    encode_number,
    encode_text,
    fields,
    integers,
    texts,
)
from koordinator.node.container_runtime import RuntimeVersion, runtime_socket, runtime_version
from koordinator.node.errors import Unavailable
from koordinator.node.pod_resources import (
    ContainerAllocation,
    ContainerDevices,
    PodAllocation,
    list_pod_resources,
    pod_resources_socket,
)
from tests.node.machine import FakeMachine


class FakeCalls:
    """Remembers the last call, and gives the same response to each."""

    def __init__(self, response: bytes = b"") -> None:
        self.response = response
        self.last: tuple[str, bytes, float] = ("", b"", 0.0)

    async def unary(self, method: str, message: bytes, timeout: float) -> bytes:
        self.last = (method, message, timeout)
        return self.response


def test_the_version_of_a_runtime() -> None:
    response = bytes.fromhex("0a05302e312e30120a636f6e7461696e6572641a05312e372e3222027631")
    version = asyncio.run(runtime_version(FakeCalls(response)))
    assert version == RuntimeVersion("containerd", "1.7.2", "v1")


def test_the_allocations_of_pods() -> None:
    topology = encode_message(1, b"") + encode_message(1, encode_number(1, 1))
    devices = encode_text(1, "nvidia.com/gpu") + encode_text(2, "GPU-1") + encode_text(2, "GPU-2")
    container = encode_text(1, "main") + encode_message(2, devices + encode_message(3, topology))
    container += encode_message(3, bytes([0, 4, 0x80, 1]))
    pod = encode_text(1, "web") + encode_text(2, "shop") + encode_message(3, container)
    found = asyncio.run(
        list_pod_resources(FakeCalls(encode_message(1, pod) + encode_message(1, encode_text(1, "idle"))))
    )
    assert found == (
        PodAllocation(
            "shop",
            "web",
            (
                ContainerAllocation(
                    "main", (ContainerDevices("nvidia.com/gpu", ("GPU-1", "GPU-2"), (0, 1)),), (0, 4, 128)
                ),
            ),
        ),
        PodAllocation("", "idle", ()),
    )


@pytest.mark.parametrize(
    "message",
    ["08", "0aff", "0a05ab", "0b", "08" + "ff" * 11, "0d0000"],
    ids=["no value", "no length", "cut text", "group", "endless number", "cut fixed32"],
)
def test_what_is_no_message(message: str) -> None:
    with pytest.raises(MalformedMessageError):
        asyncio.run(list_pod_resources(FakeCalls(bytes.fromhex(message))))


def test_a_number_where_a_message_belongs() -> None:
    with pytest.raises(MalformedMessageError, match="field 1 is a number"):
        contents(encode_number(1, 5), 1)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    try:
        for number, _ in fields(message):
            integers(message, number)
            texts(message, number)
    except MalformedMessageError:
        pass


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.integers(1, (1 << 29) - 1))
def test_what_is_written_is_read(number: int, text: str, field: int) -> None:
    assert integers(encode_number(field, number), field) == [number]
    assert texts(encode_text(field, text), field) == ([text] if text else [])


def test_the_socket_of_a_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(tmp_path)
    missing = runtime_socket(machine.host)
    assert isinstance(missing, Unavailable)
    assert "containerd/containerd.sock" in missing.reason
    # A path of a socket may not be long, and temporary folders are.
    folder = tmp_path / "var/run/crio"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("crio.sock")
        assert runtime_socket(machine.host) == str(folder / "crio.sock")
    assert pod_resources_socket(machine.host).endswith("/var/lib/kubelet/pod-resources/kubelet.sock")
