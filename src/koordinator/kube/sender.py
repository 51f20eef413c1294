"""One request from its caller to an answer: signed, limited, repeated where that is right, within a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from multidict import CIMultiDict

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.credentials import Credentials
from koordinator.kube.decoding import status_error
from koordinator.kube.errors import ApiStatusError, CredentialError, TransportError
from koordinator.kube.request import JSON, Request
from koordinator.kube.request_metrics import RequestMetrics
from koordinator.kube.request_rate import RateLimiter
from koordinator.kube.retry import RetryPolicy
from koordinator.kube.tls import RotatingContext
from koordinator.kube.transport import Stream, Transport

logger = logging.getLogger(__name__)

A = TypeVar("A")
Headers = Mapping[str, str]
_READS: Final = ("GET", "HEAD")


@dataclass(slots=True)
class _RetryState:
    """What one call has been through; most go through nothing and have none."""

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
        clock: Clock,
        metrics: RequestMetrics,
        *,
        identity: list[tuple[str, str]],
        timeout_seconds: float,
        tls: RotatingContext | None = None,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._limiter = limiter
        self._retry = retry
        self._clock = clock
        self._monotonic = clock.monotonic
        self._metrics = metrics
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
        started = self._monotonic()
        try:
            return await self._until_answered(request, self._exchange, started)
        finally:
            self._metrics.took(request.method, self._monotonic() - started)

    async def stream(self, request: Request) -> Stream:
        """The answer of a watch once it has begun; the deadline is that of its beginning."""
        return await self._until_answered(request, self._open, self._monotonic())

    async def close(self) -> None:
        await self._transport.close()

    async def _exchange(self, request: Request, headers: Headers, give_up_at: float) -> bytes:
        method = request.method
        response = await self._transport.request(
            method,
            request.target,
            headers,
            request.body,
            give_up_at=give_up_at,
            may_send=None if method in _READS else self._may_write,
        )
        status = response.status
        self._metrics.attempted(method, status)
        if 200 <= status < 300:
            return response.body
        raise status_error(status, response.headers, response.body)

    async def _open(self, request: Request, headers: Headers, give_up_at: float) -> Stream:
        what = f"{request.method} {request.target}"
        seconds = give_up_at - self._monotonic()
        try:
            return await within(self._clock, seconds, self._begin(request, headers))
        except TimeoutError as error:
            raise TransportError(f"{what}: no answer within {seconds:g} s", timed_out=True) from error

    async def _begin(self, request: Request, headers: Headers) -> Stream:
        stream = await self._transport.stream(request.method, request.target, headers, request.body)
        status = stream.status
        if 200 <= status < 300:
            self._metrics.attempted(request.method, status)
            return stream
        try:
            failure = status_error(status, stream.headers, await stream.read())
        finally:
            stream.abort()
        self._metrics.attempted(request.method, status)
        raise failure

    async def _until_answered(
        self, request: Request, attempt: Callable[[Request, Headers, float], Coroutine[Any, Any, A]], now: float
    ) -> A:
        delay = self._limiter.reserve()
        if delay > 0:
            await self._clock.sleep(delay)
            now = self._monotonic()
        give_up_at = now + self._timeout_seconds
        retry_state: _RetryState | None = None
        while True:
            authorization = await self._credentials.authorization()
            if self._tls is not None:
                self._follow_rotation(self._tls)
            try:
                return await attempt(request, self._headers_of(request.content_type, authorization), give_up_at)
            except (TransportError, ApiStatusError) as error:
                retry_state = retry_state or _RetryState(give_up_at)
                await self._recover(request, authorization, error, retry_state)

    async def _recover(
        self, request: Request, authorization: str, error: TransportError | ApiStatusError, retry_state: _RetryState
    ) -> None:
        """Do what has to come before the next attempt, or raise ``error`` where there is to be none."""
        if isinstance(error, TransportError):
            self._metrics.attempted(request.method)
            delay = self._retry.after_error(error, repeatable=request.repeatable, attempts=retry_state.errors)
            retry_state.errors += 1
        else:
            if error.is_unauthorized and not retry_state.renewed:
                retry_state.renewed = True
                if await self._credentials.renew(authorization):
                    return
            delay = self._retry.after_answer(error.code, error.retry_after, retry_state.answers)
            retry_state.answers += 1
        if delay is None or self._monotonic() + delay >= retry_state.give_up_at:
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
