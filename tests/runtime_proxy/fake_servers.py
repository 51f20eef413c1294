"""A container runtime and a hook server made with grpcio: another implementation of gRPC than the one under test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


CallHandler = Callable[[bytes, Any], Awaitable[bytes]]


@dataclass
class Received:
    """One call that a server has got."""

    method: str
    message: bytes
    metadata: dict[str, str | bytes]


@dataclass
class FakeRuntime:
    """Answers every method: those of ``answers`` as they say, ids for what is created, nothing else for the rest."""

    responses: dict[str, CallHandler] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    created: int = 0

    def messages(self, method: str) -> list[bytes]:
        """The requests of one method, by its last name."""
        return [call.message for call in self.received if call.method.endswith(f"/{method}")]

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        metadata = {key: value for key, value in context.invocation_metadata() if not key.startswith("user-agent")}
        self.received.append(Received(method, message, metadata))
        name = method.rpartition("/")[2]
        if name in self.responses:
            return await self.responses[name](message, context)
        if name == "Version":
            return cri.VersionResponse(runtime_name="fake", runtime_version="1").SerializeToString()
        if name == "RunPodSandbox":
            self.created += 1
            return cri.RunPodSandboxResponse(pod_sandbox_id=f"pod-{self.created}").SerializeToString()
        if name == "CreateContainer":
            self.created += 1
            return cri.CreateContainerResponse(container_id=f"container-{self.created}").SerializeToString()
        return b""

    async def stream(self, method: str, message: bytes, context: Any) -> AsyncIterator[bytes]:
        self.received.append(Received(method, message, {}))
        for event in self.events:
            yield event


HookAnswer = Callable[[Any, Any], None]


@dataclass
class FakeHookServer:
    """Echoes what it receives, as koordlet does, after ``change`` has had a go at the response."""

    change: HookAnswer = lambda request, response: None
    received: list[tuple[str, Any]] = field(default_factory=list)
    error: str = ""
    wait: Callable[[], Awaitable[None]] | None = None

    def requests(self, hook: str) -> list[Any]:
        """The requests of one hook."""
        return [request for name, request in self.received if name == hook]

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        name = method.rpartition("/")[2].removesuffix("Hook")
        request: Any
        response: Any
        if name.endswith("PodSandbox"):
            request = PodSandboxHookRequest.FromString(message)
            response = PodSandboxHookResponse(
                labels=request.labels, annotations=request.annotations, cgroup_parent=request.cgroup_parent
            )
        else:
            request = ContainerResourceHookRequest.FromString(message)
            response = ContainerResourceHookResponse(
                container_annotations=request.container_annotations,
                container_resources=request.container_resources,
                pod_cgroup_parent=request.pod_cgroup_parent,
                container_envs=request.container_envs,
            )
        self.received.append((name, request))
        if self.wait is not None:
            await self.wait()
        if self.error:
            await context.abort(grpc.StatusCode.INTERNAL, self.error)
        self.change(request, response)
        return bytes(response.SerializeToString())


class _Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: Any) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        method = details.method
        if method.endswith("/GetContainerEvents"):

            async def stream(message: bytes, context: Any) -> AsyncIterator[bytes]:
                async for event in self._server.stream(method, message, context):
                    yield event

            return grpc.unary_stream_rpc_method_handler(stream)
        if method.startswith("/not.there."):
            return None

        async def respond(message: bytes, context: Any) -> bytes:
            return bytes(await self._server.respond(method, message, context))

        return grpc.unary_unary_rpc_method_handler(respond)


@asynccontextmanager
async def serving(server: FakeRuntime | FakeHookServer, path: Path) -> AsyncIterator[None]:
    """Serve on a unix socket."""
    grpc_server = grpc.aio.server(options=UNLIMITED)
    grpc_server.add_generic_rpc_handlers((_Generic(server),))
    grpc_server.add_insecure_port(f"unix:{path}")
    await grpc_server.start()
    try:
        yield
    finally:
        await grpc_server.stop(None)
        path.unlink(missing_ok=True)


@asynccontextmanager
async def channel(path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A client's connection."""
    # A pool of its own, so that no two channels share a connection.
    options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as opened:
        yield opened


async def call(opened: grpc.aio.Channel, method: str, message: bytes = b"", **options: Any) -> bytes:
    """One unary call of bytes."""
    return bytes(await opened.unary_unary(method)(message, **options))


async def never() -> None:
    """A server that hangs."""
    await asyncio.Event().wait()
