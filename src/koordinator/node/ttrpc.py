"""ttrpc over one multiplexed unix socket, as NRI plugins speak it (github.com/containerd/ttrpc and nri, pkg/net).

Two conversations share the socket: in one the runtime calls the plugin, in the other the plugin calls the runtime. A
frame of the multiplexer is the conversation's number and a length, four bytes each, before a part of the conversation;
a ttrpc message is a length, a stream, a type and flags before a request or a response.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError

from koordinator.api.protobuf.nri_pb2 import TtrpcRequest, TtrpcResponse, TtrpcStatus
from koordinator.node import grpc_messages
from koordinator.node.errors import NodeError
from koordinator.node.grpc_messages import GrpcError

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Handles ``/service/method`` with a message; GrpcError for one that fails."""

_PLUGIN: Final = 1
_RUNTIME: Final = 2
"""The numbers of the conversations, by who is called."""
_FRAME: Final = struct.Struct(">II")
_MESSAGE: Final = struct.Struct(">IIBB")
_REQUEST: Final = 1
_RESPONSE: Final = 2
_LONGEST: Final = 4 << 20
_FIRST_PART: Final = 4096
"""Go's side reads into a buffer of that size first, and refuses a frame that does not fit into what it reads into."""


class TtrpcError(NodeError):
    """The other side is gone, or does not speak the protocol."""


class TtrpcConnection:
    """One socket. ``run`` reads it; ``call`` may be used while it does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._arrived = {_PLUGIN: bytearray(), _RUNTIME: bytearray()}
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1

    async def run(self) -> None:
        """Serve calls until cancelled, one after the other. TtrpcError when the other side is gone."""
        try:
            while True:
                number, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                if length > _LONGEST + _MESSAGE.size:
                    raise TtrpcError(f"a frame of {length} bytes: at most {_LONGEST} are allowed")
                content = await self._reader.readexactly(length)
                if number in self._arrived:
                    self._arrived[number] += content
                    await self._handle_messages(number)
        except (asyncio.IncompleteReadError, OSError, DecodeError) as error:
            raise TtrpcError(f"the connection ended: {error}") from error
        finally:
            for call in self._calls.values():
                call.cancel()
            self._writer.close()

    async def call(self, service: str, method: str, message: bytes) -> bytes:
        """Call the runtime while ``run`` runs. GrpcError with its status."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[stream] = response
        request = TtrpcRequest(service=service, method=method, payload=message)
        try:
            await self._send(_RUNTIME, stream, _REQUEST, request.SerializeToString())
            return await response
        finally:
            del self._calls[stream]

    async def _handle_messages(self, number: int) -> None:
        arrived = self._arrived[number]
        while len(arrived) >= _MESSAGE.size:
            length, stream, kind, _ = _MESSAGE.unpack_from(arrived)
            if length > _LONGEST:
                raise TtrpcError(f"a message of {length} bytes: at most {_LONGEST} are allowed")
            if len(arrived) < _MESSAGE.size + length:
                return
            content = bytes(arrived[_MESSAGE.size : _MESSAGE.size + length])
            del arrived[: _MESSAGE.size + length]
            if number == _PLUGIN and kind == _REQUEST:
                await self._respond(stream, content)
            elif number == _RUNTIME and kind == _RESPONSE:
                self._finish(stream, content)

    async def _respond(self, stream: int, content: bytes) -> None:
        request = TtrpcRequest.FromString(content)
        try:
            payload = await self._handler(f"/{request.service}/{request.method}", request.payload)
            response = TtrpcResponse(payload=payload)
        except GrpcError as error:
            response = TtrpcResponse(status=TtrpcStatus(code=error.code, message=error.text))
        except DecodeError as error:
            response = TtrpcResponse(status=TtrpcStatus(code=grpc_messages.INTERNAL, message=str(error)))
        await self._send(_PLUGIN, stream, _RESPONSE, response.SerializeToString())

    def _finish(self, stream: int, content: bytes) -> None:
        call = self._calls.get(stream)
        if call is None or call.done():
            return
        response = TtrpcResponse.FromString(content)
        if response.status.code:
            call.set_exception(GrpcError(response.status.code, response.status.message))
        else:
            call.set_result(response.payload)

    async def _send(self, number: int, stream: int, kind: int, content: bytes) -> None:
        message = _MESSAGE.pack(len(content), stream, kind, 0) + content
        for part in (message[:_FIRST_PART], message[_FIRST_PART:]):
            if part:
                self._writer.write(_FRAME.pack(number, len(part)) + part)
        await self._writer.drain()
