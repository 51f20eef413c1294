"""Random calls of the Container Runtime Interface, and a form of their responses in which two runs can be compared.

Each call is made twice, directly and through the proxy, for pods and containers of which either side has its own: so
what is compared is not only a response, but also what the calls before it have done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from tests.real.container_runtime import IMAGE

_RUNTIME: Final = ("runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService")
_IMAGES: Final = ("runtime.v1.ImageService", "runtime.v1alpha2.ImageService")
_OF_PODS: Final = ("PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStats", "PortForward")
_OF_CONTAINERS: Final = (
    "StartContainer",
    "RemoveContainer",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "Exec",
    "Attach",
    "ContainerStats",
)
_OF_NOTHING: Final = (
    "Version",
    "Status",
    "ListPodSandbox",
    "ListContainers",
    "ListContainerStats",
    "ListPodSandboxStats",
    "UpdateRuntimeConfig",
    "CheckpointContainer",
    "GetContainerEvents",
    "ListMetricDescriptors",
    "RuntimeConfig",
    "NotThere",
)
_OF_IMAGES: Final = ("ListImages", "ImageStatus", "RemoveImage", "ImageFsInfo")
_MEASURING: Final = re.compile("Stats|FsInfo")
_VARIES: Final = re.compile(
    r"((?<=/exec/)|(?<=/attach/)|(?<=/portforward/))[\w-]+|10\.231\.0\.\d+|side-[ab]|[0-9a-f]{64}"
)
_SIDE, _POD, _CONTAINER = "{side}", "{pod}".center(64), "{container}".center(64)
"""Stand for what differs, and are as long as that, so that a request may be damaged before they are replaced."""
_LATEST_SECOND: Final = 1 << 60
"""Numbers above it are times in nanoseconds."""
_MOST_PODS: Final = 5
_SECONDS: Final = 30.0

Content = Mapping[int, Any]
"""A message: its fields by their numbers, as numbers, text, bytes, messages, or lists of these."""


def encode(content: Content) -> bytes:
    """A message in bytes."""
    parts: list[bytes] = []
    for number, given in content.items():
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, int):
                parts.append(_varint(number << 3) + _varint(value % (1 << 64)))
            else:
                data = (
                    value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else encode(value)
                )
                parts.append(_varint(number << 3 | 2) + _varint(len(data)) + data)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


@dataclass
class Side:
    """One of the two ways to the runtime, and the pods and containers that were made on it: the same on both."""

    name: str
    """side-a or side-b; its length is that of the placeholder."""
    channel: grpc.aio.Channel
    pods: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)

    def note(self, call: Call, response: bytes) -> None:
        """A call was successful: there is one more now, or one less."""
        if call.makes:
            made = self.pods if call.makes == "pod" else self.containers
            made.append(response[2:].decode())
        elif call.method.endswith("/RemovePodSandbox") and call.pod is not None:
            del self.pods[call.pod]
        elif call.method.endswith("/RemoveContainer") and call.container is not None and call.damage is None:
            del self.containers[call.container]


def comparable(message: bytes, *, measured: bool = False) -> Any:
    """A message without what differs from side to side and from time to time: identifiers, times, the order of lists
    and maps, and with ``measured`` all numbers. The names of pods and containers stay."""
    empty = Empty()
    empty.MergeFromString(message)
    unknown = UnknownFieldSet(empty)
    given = [unknown[index] for index in range(len(unknown))]
    fields = [(each.field_number, _value(each.data, measured=measured)) for each in given]
    # What was measured as zero is an empty message, or is left out.
    return sorted((each for each in fields if each[1] or not measured), key=repr)


def _value(data: Any, *, measured: bool) -> Any:
    if isinstance(data, int):
        return 0 if measured or data > _LATEST_SECOND else data
    if not isinstance(data, bytes):
        return repr(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable():
        return comparable_text(text)
    try:
        return comparable(data, measured=measured)
    except DecodeError:
        return data


def comparable_text(text: str) -> str:
    """As ``comparable``, of a text."""
    return _VARIES.sub("<...>", text)


@dataclass(frozen=True)
class Call:
    """A call that is not yet of one side: ``pod`` and ``container`` are indices; ``damage`` is done to the request."""

    method: str
    content: Content | bytes
    damage: int | None = None
    pod: int | None = None
    container: int | None = None
    makes: str = ""

    def request(self, side: Side) -> bytes:
        """The damage comes first: what it does to an identifier is then the same on both sides, as only an identifier
        that is still in the first field is replaced."""
        if isinstance(self.content, bytes):
            return self.content
        message = encode(self.content)
        if self.damage is not None:
            message = _damaged(Random(self.damage), message, makes=bool(self.makes))
        message = message.replace(_SIDE.encode(), side.name.encode())
        if self.pod is not None:
            message = message.replace(encode({1: _POD}), encode({1: side.pods[self.pod]}))
        if self.container is not None:
            message = message.replace(encode({1: _CONTAINER}), encode({1: side.containers[self.container]}))
        return message


def _damaged(random: Random, message: bytes, *, makes: bool) -> bytes:
    # containerd 1.6 panics at a request for a container that lacks one of its parts: only the last one is damaged.
    kind = random.randrange(2 if makes else 3)
    if kind == 0:
        return message[: -random.randrange(1, 20)] if makes else message[: random.randrange(len(message) + 1)]
    if kind == 1:
        # A field that no version of the interface has.
        return message + encode({9999: "new"})
    changed = bytearray(message)
    for _ in range(random.choice((1, 1, 3))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    # Two pods of one name would be in each other's way.
    return bytes(changed) if changed.count(_SIDE.encode()) == message.count(_SIDE.encode()) else message


@dataclass
class Fuzzer:
    """Makes up calls."""

    random: Random
    pods: int = 0
    containers: int = 0
    made: int = 0

    def next_call(self, pods: int, containers: int) -> Call:
        """Another call; either side has that many pods and containers."""
        self.pods, self.containers = pods, containers
        kind = self.random.choices(("noise", "nothing", "images", "pod", "container", "make"), (25, 20, 8, 20, 20, 7))[
            0
        ]
        call = getattr(self, f"_{kind}")()
        assert isinstance(call, Call)
        return call

    def _noise(self) -> Call:
        methods = [f"/{self.random.choice(_RUNTIME)}/{name}" for name in (*_OF_PODS, *_OF_CONTAINERS, *_OF_NOTHING)]
        methods += [f"/{_RUNTIME[0]}/RunPodSandbox", f"/{_RUNTIME[0]}/CreateContainer", "/not.there.Service/Method"]
        length = self.random.choice((0, 1, 2, 5, 20, 300, 16_380, 70_000))
        return Call(self.random.choice(methods), self.random.randbytes(length))

    def _nothing(self) -> Call:
        return Call(f"/{self.random.choice(_RUNTIME)}/{self.random.choice(_OF_NOTHING)}", {})

    def _images(self) -> Call:
        method = self.random.choice(_OF_IMAGES)
        # The empty name stands for any image where there is but one.
        names = ("nothing.example/image:tag", "not a name", *(() if method == "RemoveImage" else ("", "é")))
        return Call(f"/{self.random.choice(_IMAGES)}/{method}", {1: {1: self.random.choice(names)}})

    def _pod(self) -> Call:
        method = self._rarely_last(_OF_PODS, ("StopPodSandbox", "RemovePodSandbox"))
        pod = self._index(self.pods)
        content: Content = {1: _POD if pod is not None else self._nobody()}
        damage = self._damage() if method != "RemovePodSandbox" else None
        return Call(f"/{self.random.choice(_RUNTIME)}/{method}", content, damage, pod=pod)

    def _container(self) -> Call:
        method = self._rarely_last(_OF_CONTAINERS, ("RemoveContainer",))
        container = self._index(self.containers)
        content: dict[int, Any] = {1: _CONTAINER if container is not None else self._nobody()}
        damage = self._damage()
        if method == "UpdateContainerResources":
            content[2] = self._resources()
        elif method == "ExecSync":
            # With damage its time could be endless.
            content |= {2: self.random.choice((["echo", "hello"], ["false"], ["missing"])), 3: 5}
            damage = None
        elif method in ("Exec", "Attach"):
            content |= {2: ["echo"], 4: 1, 5: 1} if method == "Exec" else {2: 1, 4: 1}
        return Call(f"/{self.random.choice(_RUNTIME)}/{method}", content, damage, container=container)

    def _make(self) -> Call:
        service = self.random.choice(_RUNTIME)
        self.made += 1
        if self.pods == 0 or (self.pods < _MOST_PODS and self.random.random() < 0.3):
            return Call(f"/{service}/RunPodSandbox", {1: self._pod_config()}, self._damage(), makes="pod")
        container: Content = {
            1: {1: f"c{self.made}"},
            2: {1: self.random.choice((IMAGE, IMAGE, IMAGE, "nothing.example/image:tag"))},
            3: self.random.choice((["sleep", "1000000"], ["sleep", "1000000"], ["missing"])),
            6: [{1: f"KEY_{number}", 2: "value"} for number in range(self.random.randrange(4))],
            9: [{1: "label", 2: "é" * self.random.choice((1, 2000))}],
            15: {1: self._resources()},
        }
        pod = self.random.randrange(self.pods)
        content = {1: _POD, 2: container, 3: self._pod_config()}
        return Call(f"/{service}/CreateContainer", content, self._damage(), pod=pod, makes="container")

    def _pod_config(self) -> Content:
        metadata = {1: f"p{self.made}-{_SIDE}", 2: f"u{self.made}", 3: "fuzz"}
        annotations = [{1: f"a{number}", 2: "v" * self.random.choice((0, 5, 5000))} for number in range(3)]
        return {1: metadata, 6: [{1: "app", 2: "web"}], 7: annotations, 8: {2: {1: {1: 2}}}}

    def _resources(self) -> Content:
        values = {
            1: (0, 100_000),
            2: (0, -1, 50_000, 5),
            3: (0, 2, 512, -7),
            4: (0, 64 << 20),
            6: ("", "0", "9999", "x"),
        }
        return {number: self.random.choice(allowed) for number, allowed in values.items() if self.random.random() < 0.5}

    def _rarely_last(self, methods: tuple[str, ...], ends: tuple[str, ...]) -> str:
        """One of ``methods``; those that end something are half as frequent as others."""
        method = self.random.choice(methods)
        return self.random.choice(methods) if method in ends else method

    def _index(self, count: int) -> int | None:
        return self.random.randrange(count) if count and self.random.random() < 0.8 else None

    def _nobody(self) -> str:
        return self.random.choice(("", "nobody", "../../x", "é" * 100, "0" * 64))

    def _damage(self) -> int | None:
        return self.random.randrange(1 << 30) if self.random.random() < 0.3 else None


@dataclass(frozen=True)
class Outcome:
    """What came back, in a form that can be compared."""

    message: Any
    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, str | bytes], ...]


async def outcome(side: Side, call: Call) -> Outcome:
    """Make a call on one side."""
    made = side.channel.unary_unary(call.method)(call.request(side), timeout=_SECONDS)
    try:
        response = bytes(await made)
    except grpc.aio.AioRpcError:
        response = b""
    code = await made.code()
    if code is grpc.StatusCode.OK:
        side.note(call, response)
    metadata = (*(await made.initial_metadata() or ()), *(await made.trailing_metadata() or ()))
    message = comparable(response, measured=bool(_MEASURING.search(call.method)))
    return Outcome(message, code, comparable_text(await made.details() or ""), tuple(sorted(metadata)))
