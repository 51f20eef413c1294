"""The proxy's socket in front of docker: each request gets a connection of its own to the daemon.

Heads and bodies go on as they come, whatever their encoding, each piece at once: logs and events are followed without
delay. After an upgrade (attach, exec) both directions are passed on until each has ended by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from koordinator.base import http_streams
from koordinator.base.accepting import Acceptor, attach
from koordinator.base.deadline import within
from koordinator.base.http_streams import Head, HttpError
from koordinator.base.served_connections import ProgramConnections, ServedConnection, ServedConnections
from koordinator.base.served_stream import ServedStream
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.runtime_proxy.buffer_budget import BufferBudget, BufferLease
from koordinator.runtime_proxy.docker_interceptor import DockerCall, DockerInterceptor
from koordinator.runtime_proxy.hook_dispatcher import HookError
from koordinator.runtime_proxy.server import listen

logger = logging.getLogger(__name__)
_LONGEST_BODY: Final = 16 << 20
_SWITCHING: Final = 101


class _LateError(HttpError):
    """The body of a request is not here in time."""


class DockerServer:
    """Listens on a unix socket from ``start`` to ``stop``."""

    def __init__(
        self,
        interceptor: DockerInterceptor,
        runtime: Path,
        tasks: asyncio.TaskGroup,
        connections: ProgramConnections,
        limits: ServerLimits = SOCKET_LIMITS,
    ) -> None:
        """``runtime`` is docker's socket; ``tasks`` must outlive ``stop``."""
        self._interceptor = interceptor
        self._runtime = runtime
        self._tasks = tasks
        self._program = connections
        self._limits = limits
        self._budget = BufferBudget()
        self._pool: ServedConnections | None = None
        self._acceptor: Acceptor | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    async def start(self, path: Path) -> None:
        """Listen at ``path``. ListenError if that fails."""
        listener = listen(path)
        self._pool = self._program.serve(str(path), self._limits)
        self._acceptor = Acceptor(self._pool, self._accept)
        self._acceptor.start([listener])
        logger.info("serving docker at %s on %s", self._runtime, path)

    async def stop(self, path: Path, grace: float) -> None:
        """Accept no more, let requests in hand finish for ``grace`` seconds, and close all connections."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        if self._acceptor is None or self._pool is None:
            return
        self._acceptor.stop()
        for connection in self._connections.values():
            connection.is_last = True
        with suppress(TimeoutError):
            await within(self._program.clock, grace, self._pool.quiet.wait())
        for task in self._connections:
            task.cancel()
        self._pool.close_all()
        await self._pool.time_limits.close()

    def _accept(self, accepted: socket.socket, served: ServedConnection) -> None:
        protocol = ServedStream(served, self._accepted, limit=http_streams.LONGEST_HEAD)
        self._tasks.create_task(attach(accepted, served, protocol), name="accept a connection")

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: ServedStream) -> None:
        connection = _Connection(reader, writer, protocol, self._interceptor, self._runtime, self._budget)
        task = self._tasks.create_task(connection.serve(), name="connection of a docker client")
        self._connections[task] = connection
        task.add_done_callback(lambda done: self._connections.pop(done, None))


class _Connection:
    """One connection of a client: its requests, one after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: ServedStream,
        interceptor: DockerInterceptor,
        runtime: Path,
        budget: BufferBudget,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = protocol
        self._served = protocol.served
        self._served.progress = self._progress
        self._interceptor = interceptor
        self._runtime = runtime
        self._budget = budget
        self._is_its_turn = False
        """Whether the rest of a body is to come."""
        self._is_tunnel = False
        self.is_last = False
        """Whether the request in hand is the last one."""

    async def serve(self) -> None:
        """Pass on requests until either side closes."""
        try:
            while not self.is_last:
                head = await http_streams.read_head(self._reader, self._served.await_header)
                if head is None:
                    return
                self._served.begin()
                if not await self._exchange(head):
                    return
                self._served.rest(is_complete=True)
        except (HttpError, OSError) as error:
            logger.info("a connection of a docker client is closed: %s", error)
        except Exception:
            # One request must not end the others.
            logger.exception("a connection of a docker client is closed")
        finally:
            self._writer.close()
            self._served.begin()
            self._served.deliver(self._writer.transport.get_write_buffer_size())

    def _progress(self) -> int | None:
        """Nobody knows whose turn it is after an upgrade."""
        return None if self._is_tunnel else self._protocol.client.progress(is_its_turn=self._is_its_turn)

    async def _exchange(self, head: Head) -> bool:
        """One request and its response; returns whether the connection can be used for another."""
        try:
            head.check_length()
        except HttpError as error:
            return self._refuse(f"koord-runtime-proxy: {error}", "400 Bad Request")
        method, target, *_ = head.words()
        call = self._interceptor.handler(method, target)
        try:
            docker, to_docker = await asyncio.open_unix_connection(str(self._runtime), limit=http_streams.LONGEST_HEAD)
        except OSError as error:
            return self._refuse(f"koord-runtime-proxy: docker at {self._runtime}: {error.strerror or error}")
        try:
            if call is None:
                return await self._passed(head, docker, to_docker)
            with BufferLease(self._budget) as lease:
                return await self._intercepted(head, call, docker, to_docker, lease)
        except* (HttpError, OSError) as errors:
            raise HttpError(str(errors.exceptions[0])) from errors.exceptions[0]
        finally:
            # What docker has not read of a request that is over is not needed.
            to_docker.transport.abort()

    async def _passed(self, head: Head, docker: asyncio.StreamReader, to_docker: asyncio.StreamWriter) -> bool:
        to_docker.write(head.encode())
        async with asyncio.TaskGroup() as tasks:
            body = tasks.create_task(self._send_body(head, to_docker))
            watch = tasks.create_task(self._end_when_gone(body, to_docker))
            response, status = await _response_head(docker, self._writer)
            self._writer.write(response.encode())
            if status == _SWITCHING or _is_hijacked(response):
                watch.cancel()
                self._is_tunnel = True
                await body
                await self._tunnel(docker, to_docker)
                return False
            if not http_streams.response_has_no_body(head.words()[0], status):
                await http_streams.copy_body(response, docker, self._writer)
            await self._writer.drain()
            # A response before the end of its request: the rest of the request is not needed any more.
            is_over = body.done()
            body.cancel()
            watch.cancel()
        return is_over and not self._closes(head, response)

    async def _intercepted(
        self,
        head: Head,
        call: DockerCall,
        docker: asyncio.StreamReader,
        to_docker: asyncio.StreamWriter,
        lease: BufferLease,
    ) -> bool:
        """The response waits for the hooks after the call."""
        if head.get("expect").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            body = await self._read_body(head, lease)
        except _LateError as late:
            return self._refuse(f"koord-runtime-proxy: {late}", "408 Request Timeout")
        try:
            changed = await call.before(body if call.takes_body else b"")
        except HookError as error:
            return self._refuse(str(error))
        sent = body if changed is None else changed
        to_docker.write((head.with_body(len(sent)) if sent else head).encode() + sent)
        response, status = await _response_head(docker, self._writer)
        content = b""
        if not http_streams.response_has_no_body(head.words()[0], status):
            content = await http_streams.read_body(response, docker, _LONGEST_BODY)
            response = response.with_body(len(content))
        await call.after(status, content)
        self._writer.write(response.encode() + content)
        await self._writer.drain()
        return not self._closes(head, response)

    async def _read_body(self, head: Head, lease: BufferLease) -> bytes:
        late = _LateError(f"the body was not here after {self._served.limits.body:g} s")
        self._is_its_turn = True
        self._served.await_body(lambda: self._reader.set_exception(late))
        try:
            return await http_streams.read_body(head, self._reader, _LONGEST_BODY, lease)
        finally:
            self._is_its_turn = False
            self._served.work()

    async def _send_body(self, head: Head, to_docker: asyncio.StreamWriter) -> None:
        """However long it takes: it may be an image that is made meanwhile."""
        if head.is_chunked or head.length:
            self._is_its_turn = True
            try:
                await http_streams.copy_body(head, self._reader, to_docker)
            finally:
                self._is_its_turn = False

    async def _tunnel(self, docker: asyncio.StreamReader, to_docker: asyncio.StreamWriter) -> None:
        """Both directions; a client that has said all still hears what docker says."""
        async with asyncio.TaskGroup() as tasks:
            upstream = tasks.create_task(_copy_and_close(self._reader, to_docker))
            await http_streams.copy_all(docker, self._writer)
            upstream.cancel()

    async def _end_when_gone(self, body: asyncio.Task[None], to_docker: asyncio.StreamWriter) -> None:
        """Half-close the connection to docker, so that it ends what is no longer read, such as its events.

        The client may still read: a response that docker sends nevertheless is passed on.
        """
        await self._protocol.gone.wait()
        await asyncio.wait((body,))
        if not to_docker.is_closing():
            to_docker.write_eof()

    def _refuse(self, text: str, status: str = "500 Internal Server Error") -> bool:
        content = f"{text}\n".encode()
        head = Head(f"HTTP/1.1 {status}", (("Content-Type", "text/plain; charset=utf-8"),))
        self._writer.write(head.with_body(len(content)).encode() + content)
        return False

    @staticmethod
    def _closes(request: Head, response: Head) -> bool:
        words = f"{request.get('connection')},{response.get('connection')}".lower()
        is_old = "HTTP/1.0" in (request.words()[-1], response.words()[0])
        return (
            is_old
            or "close" in words
            or not (response.is_chunked or response.length is not None or "204" in response.line)
        )


async def _response_head(docker: asyncio.StreamReader, client: asyncio.StreamWriter) -> tuple[Head, int]:
    """The final response; those that only say "continue" are passed on."""
    while True:
        response = await http_streams.read_head(docker)
        if response is None:
            raise HttpError("docker has closed the connection without a response")
        text = response.words()[1]
        if not text.isascii() or not text.isdigit():
            raise HttpError(f"{response.line!r} is not the head of a response")
        status = int(text)
        if status >= 200 or status == _SWITCHING:
            return response, status
        client.write(response.encode())


def _is_hijacked(response: Head) -> bool:
    """Whether docker sends a raw stream from here on, as to clients that did not request an upgrade."""
    return response.get("content-type") in (
        "application/vnd.docker.raw-stream",
        "application/vnd.docker.multiplexed-stream",
    ) and not (response.is_chunked or response.length is not None)


async def _copy_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        await http_streams.copy_all(reader, writer)
        writer.write_eof()
