"""One request from its caller to an answer: signed, limited, repeated where that is right, within a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from multidict import CIMultiDict

from koordinator.base.clock import Clock
from koordinator.kube.credentials import Credentials
from koordinator.kube.decoding import status_error
from koordinator.kube.errors import ApiStatusError, CredentialError, FencedError, KubeError, TransportError
from koordinator.kube.request import JSON, Request
from koordinator.kube.request_rate import RateLimiter
from koordinator.kube.retry import RetryPolicy
from koordinator.kube.time_limits import Deadlines
from koordinator.kube.tls import RotatingContext
from koordinator.kube.transport import Stream, Transport

logger = logging.getLogger(__name__)

A = TypeVar("A")
Headers = Mapping[str, str]
_READS: Final = ("GET", "HEAD")


@dataclass(slots=True)
class _Progress:
    """What one call has been through."""

    give_up_at: float
    answers: int = 0
    errors: int = 0
    renewed: bool = False


class Sender:
    """Sends requests to one API server. ``identity`` are the headers that every request carries."""

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials,
        limiter: RateLimiter,
        retry: RetryPolicy,
        deadlines: Deadlines,
        clock: Clock,
        *,
        identity: list[tuple[str, str]],
        timeout_seconds: float,
        tls: RotatingContext | None = None,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._limiter = limiter
        self._retry = retry
        self._deadlines = deadlines
        self._clock = clock
        self._identity = identity
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._headers: dict[str, Headers] = {}
        self._headers_for = ""
        self._may_write: Callable[[], bool] | None = None

    def fenced(self, may_write: Callable[[], bool]) -> Sender:
        """A sender over the same connections and limits that changes nothing unless ``may_write`` says so. It is asked
        last of all, when a request has waited for its turn and nothing but sending it is left."""
        fenced = copy(self)
        fenced._headers = {}
        fenced._headers_for = ""
        fenced._may_write = may_write
        return fenced

    async def call(self, request: Request) -> bytes:
        """The body of the answer. Raises ApiStatusError or TransportError, CredentialError when we cannot sign in."""
        return await self._until_answered(request, self._exchange)

    async def stream(self, request: Request) -> Stream:
        """The answer of a watch once it has begun; the deadline is that of its beginning."""
        return await self._until_answered(request, self._open)

    async def close(self) -> None:
        await self._transport.close()

    async def _exchange(self, request: Request, headers: Headers) -> bytes:
        if self._may_write is not None and request.method not in _READS and not self._may_write():
            raise FencedError(f"{request.method} {request.target}: not sent, the right to write is lost")
        response = await self._transport.request(request.method, request.target, headers, request.body)
        if 200 <= response.status < 300:
            return response.body
        raise status_error(response.status, response.headers, response.body)

    async def _open(self, request: Request, headers: Headers) -> Stream:
        stream = await self._transport.stream(request.method, request.target, headers, request.body)
        if 200 <= stream.status < 300:
            return stream
        try:
            raise status_error(stream.status, stream.headers, await stream.read())
        finally:
            stream.abort()

    async def _until_answered(
        self, request: Request, attempt: Callable[[Request, Headers], Coroutine[Any, Any, A]]
    ) -> A:
        await self._limiter.acquire()
        progress = _Progress(self._clock.monotonic() + self._timeout_seconds)
        what = f"{request.method} {request.target}"
        while True:
            authorization = await self._credentials.authorization()
            if self._tls is not None:
                self._follow_rotation(self._tls)
            headers = self._headers_of(request.content_type, authorization)
            remaining = max(progress.give_up_at - self._clock.monotonic(), 0.0)
            try:
                return await self._deadlines.run(remaining, what, attempt(request, headers))
            except TransportError as error:
                delay = self._retry.after_error(error, repeatable=request.repeatable, attempts=progress.errors)
                progress.errors += 1
                await self._pause(progress, delay, error)
            except ApiStatusError as error:
                if error.is_unauthorized and not progress.renewed:
                    progress.renewed = True
                    if await self._credentials.renew(authorization):
                        continue
                delay = self._retry.after_answer(error.code, error.retry_after, progress.answers)
                progress.answers += 1
                await self._pause(progress, delay, error)

    async def _pause(self, progress: _Progress, delay: float | None, error: KubeError) -> None:
        """Wait for the next attempt, or raise ``error`` when there is none or it would come after the deadline."""
        if delay is None or self._clock.monotonic() + delay >= progress.give_up_at:
            raise error
        logger.debug("trying again in %.2f s: %s", delay, error)
        await self._clock.sleep(delay)
        await self._limiter.acquire()

    def _follow_rotation(self, tls: RotatingContext) -> None:
        try:
            if tls.refresh():
                self._transport.use_tls(tls.context)
        except CredentialError as error:
            logger.warning("the certificates changed but cannot be used; the old ones stay in use: %s", error)

    def _headers_of(self, content_type: str, authorization: str) -> Headers:
        if authorization != self._headers_for:
            self._headers.clear()
            self._headers_for = authorization
        headers = self._headers.get(content_type)
        if headers is None:
            headers = CIMultiDict([*self._identity, ("Accept", JSON), ("Content-Type", content_type)])
            if authorization:
                headers["Authorization"] = authorization
            self._headers[content_type] = headers
        return headers
