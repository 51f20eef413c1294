"""One intercepted call: its request is collected, a handler may change it, and the end of the response waits for it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.base.time_limits import Limit
from koordinator.node.grpc_messages import MessageError, decode_message, encode_message

logger = logging.getLogger(__name__)

LONGEST_MESSAGE: Final = 16 << 20
"""What kubelet and container runtimes allow."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the request on: as it came, or ``message`` in its place."""

    message: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Respond to the call in the place of the runtime, with a gRPC status."""

    code: int
    text: str


class CallHandler(Protocol):
    """What one intercepted call is given to, around the call of the runtime."""

    async def before(self, request: bytes) -> Forward | Reject:
        """Decide about a request, an encoded message. Cancelled if the client gives up."""
        ...

    async def after(self, response: bytes | None) -> None:
        """The runtime has responded with an encoded message, or has failed (None). Never cancelled by the client."""
        ...


class Interceptor(Protocol):
    """Decides which calls are intercepted."""

    def handler(self, path: str) -> CallHandler | None:
        """Who handles one call of a method; None for calls that pass."""
        ...


class CallStream(Protocol):
    """The stream of a call, as its relay lets the call use it."""

    def forward(self, stream: int, content: bytes) -> None:
        """Send the request, with its length prefix, to the runtime."""
        ...

    def reject(self, stream: int, code: int, text: str) -> None:
        """Respond with a status, and cancel the stream at the runtime."""
        ...

    def release(self, stream: int) -> None:
        """Pass on what was held of the response."""
        ...


class InterceptedCall:
    """Fed by the relay; ``run`` is its task."""

    def __init__(self, stream: int, handler: CallHandler, relay: CallStream, limit: Limit) -> None:
        self._stream = stream
        self._handler = handler
        self._relay = relay
        self._request = bytearray()
        self._response = bytearray()
        self._completed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.limit = limit
        """Of the time until the request is complete."""
        self.held: list[bytes] = []
        """The frames that end the response, once they have arrived."""
        self.buffered = 0
        """Bytes of the request that the relay counts as kept, until the call is over."""
        self.is_forwarded = False
        """Whether the request is on its way to the runtime."""

    def add_request(self, content: bytes) -> bool:
        """Collect DATA of the request; False if it is longer than allowed."""
        self._request += content
        return len(self._request) <= LONGEST_MESSAGE + 5

    def add_response(self, content: bytes) -> None:
        """Collect DATA of the response, which has been passed on already."""
        if len(self._response) <= LONGEST_MESSAGE:
            self._response += content

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """The request is complete."""
        self._task = tasks.create_task(self.run(), name=f"intercepted call {self._stream}")

    @property
    def is_complete(self) -> bool:
        """Whether the whole request has arrived."""
        return self._task is not None

    def responded(self, *, success: bool) -> None:
        """The response is complete."""
        if not self._completed.done():
            self._completed.set_result(success)

    def abandoned(self) -> None:
        """The client has given up, or a connection is lost: hooks before the call are cancelled, those after it run."""
        if self.is_forwarded:
            self.responded(success=False)
        elif self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """The life of the call after its request has arrived."""
        outcome = await self._before()
        if isinstance(outcome, Reject):
            self._relay.reject(self._stream, outcome.code, outcome.text)
            return
        self.is_forwarded = True
        changed = outcome.message is not None
        self._relay.forward(self._stream, encode_message(outcome.message or b"") if changed else bytes(self._request))
        self._request.clear()
        success = await self._completed
        try:
            await self._handler.after(self._response_message() if success else None)
        except Exception:
            logger.exception("what follows an intercepted call failed; its response is passed on")
        self._relay.release(self._stream)

    async def _before(self) -> Forward | Reject:
        try:
            return await self._handler.before(decode_message(bytes(self._request), LONGEST_MESSAGE))
        except MessageError as error:
            logger.warning("a request passes without hooks: %s", error)
        except Exception:
            logger.exception("an intercepted call failed before the runtime was called; it passes without hooks")
        return Forward()

    def _response_message(self) -> bytes | None:
        try:
            return decode_message(bytes(self._response), LONGEST_MESSAGE)
        except MessageError as error:
            logger.warning("a response of the runtime cannot be read: %s", error)
            return None
