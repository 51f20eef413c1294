"""The proxy's socket in front of docker: each request gets a connection of its own to the daemon.

Heads and bodies go on as they come, whatever their encoding, each piece at once: logs and events are followed without
delay. After an upgrade (attach, exec) both directions are passed on until each has ended by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from koordinator.runtime_proxy import http_streams
from koordinator.runtime_proxy.buffer_budget import BufferBudget, BufferLease
from koordinator.runtime_proxy.docker_interceptor import DockerCall, DockerInterceptor
from koordinator.runtime_proxy.hook_dispatcher import HookError
from koordinator.runtime_proxy.http_streams import Head, HttpError
from koordinator.runtime_proxy.server import listen

logger = logging.getLogger(__name__)

_Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Event], None]
_LONGEST_BODY: Final = 16 << 20
_SWITCHING: Final = 101


class DockerServer:
    """Listens on a unix socket from ``start`` to ``stop``."""

    def __init__(self, interceptor: DockerInterceptor, runtime: Path, tasks: asyncio.TaskGroup) -> None:
        """``runtime`` is docker's socket; ``tasks`` must outlive ``stop``."""
        self._interceptor = interceptor
        self._runtime = runtime
        self._tasks = tasks
        self._budget = BufferBudget()
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    async def start(self, path: Path) -> None:
        """Listen at ``path``. ListenError if that fails."""
        self._server = await listen(path, self._accept)
        logger.info("serving docker at %s on %s", self._runtime, path)

    async def stop(self, path: Path, grace: float) -> None:
        """Accept no more, let requests in hand finish for ``grace`` seconds, and close all connections."""
        if self._server is not None:
            self._server.close()
        with suppress(FileNotFoundError):
            os.unlink(path)
        for connection in self._connections.values():
            connection.is_last = True
        busy = [task for task, connection in self._connections.items() if connection.is_busy]
        if busy:
            await asyncio.wait(busy, timeout=grace)
        for task in self._connections:
            task.cancel()

    def _accept(self) -> asyncio.Protocol:
        return _ClientProtocol(asyncio.StreamReader(limit=http_streams.LONGEST_HEAD), self._accepted)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        connection = _Connection(reader, writer, gone, self._interceptor, self._runtime, self._budget)
        task = self._tasks.create_task(connection.serve(), name="connection of a docker client")
        self._connections[task] = connection
        task.add_done_callback(lambda done: self._connections.pop(done, None))


class _ClientProtocol(asyncio.StreamReaderProtocol):
    """A stream whose end is known before what came before it has been read."""

    def __init__(self, reader: asyncio.StreamReader, accepted: _Accepted) -> None:
        self._gone = asyncio.Event()
        super().__init__(reader, lambda reader, writer: accepted(reader, writer, self._gone))

    def eof_received(self) -> bool | None:
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(exc)


class _Connection:
    """One connection of a client: its requests, one after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gone: asyncio.Event,
        interceptor: DockerInterceptor,
        runtime: Path,
        budget: BufferBudget,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._gone = gone
        self._interceptor = interceptor
        self._runtime = runtime
        self._budget = budget
        self.is_busy = False
        self.is_last = False
        """Whether the request in hand is the last one."""

    async def serve(self) -> None:
        """Pass on requests until either side closes."""
        try:
            while not self.is_last and (head := await http_streams.read_head(self._reader)) is not None:
                self.is_busy = True
                if not await self._exchange(head):
                    return
                self.is_busy = False
        except (HttpError, OSError) as error:
            logger.info("a connection of a docker client is closed: %s", error)
        except Exception:
            # One request must not end the others.
            logger.exception("a connection of a docker client is closed")
        finally:
            self._writer.close()

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
            to_docker.close()

    async def _passed(self, head: Head, docker: asyncio.StreamReader, to_docker: asyncio.StreamWriter) -> bool:
        to_docker.write(head.encode())
        async with asyncio.TaskGroup() as tasks:
            body = tasks.create_task(_send_body(head, self._reader, to_docker))
            watch = tasks.create_task(self._end_when_gone(body, to_docker))
            response, status = await _response_head(docker, self._writer)
            self._writer.write(response.encode())
            if status == _SWITCHING or _is_hijacked(response):
                watch.cancel()
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
        body = await http_streams.read_body(head, self._reader, _LONGEST_BODY, lease)
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
        await self._gone.wait()
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


async def _send_body(head: Head, reader: asyncio.StreamReader, to_docker: asyncio.StreamWriter) -> None:
    if head.is_chunked or head.length:
        await http_streams.copy_body(head, reader, to_docker)


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
