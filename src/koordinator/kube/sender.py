"""Sends requests: authenticated, rate-limited, retried where that is safe, within a deadline."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from multidict import CIMultiDict

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.instruments import CounterSeries, HistogramSeries
from koordinator.base.metrics import Metrics
from koordinator.kube.credentials import Credentials
from koordinator.kube.decoding import status_error
from koordinator.kube.errors import ApiStatusError, CredentialError, TransportError
from koordinator.kube.request import JSON, Request
from koordinator.kube.tls import RotatingContext
from koordinator.kube.transport import Stream, Transport
from koordinator.kube.write_policy import ReadOnly

# The client's request metrics, under the names that Kubernetes programs in Go use.


_DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_NO_RESPONSE: Final = "<error>"


class RequestMetrics:
    """For one API server, whose ``host`` (with its port) is a label of all samples."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._host = host
        self._results = metrics.counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self._durations = metrics.histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            buckets=_DURATION_BUCKETS,
        )
        self._counts: dict[tuple[str, int], CounterSeries] = {}
        self._samples: dict[str, HistogramSeries] = {}

    def attempted(self, method: str, status: int = 0) -> None:
        """Record one attempt, which got a response with this status, or none (0)."""
        count = self._counts.get((method, status))
        if count is None:
            code = str(status) if status else _NO_RESPONSE
            count = self._counts[method, status] = self._results.labels(code, method, self._host)
        count.value += 1

    def took(self, method: str, seconds: float) -> None:
        """Record one call, successful or not, including all attempts and pauses."""
        samples = self._samples.get(method)
        if samples is None:
            samples = self._samples[method] = self._durations.labels(method, self._host)
        samples.observe(seconds)


# The client-side rate limit: ``--kube-api-qps`` and ``--kube-api-burst`` with client-go's meaning.


class RateLimiter:
    """A token bucket: ``burst`` requests at once, then ``qps`` a second, first come, first served.

    ``qps`` of zero or less means no limit. The bucket may go into debt: each request reserves the next free moment, so
    that the order is kept without a queue and a waiter costs one sleep.
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._interval = 1 / qps if qps > 0 else 0.0
        self._allowance = max(burst, 1) * self._interval
        # The time at which the bucket is full again; each request moves it by one interval.
        self._full_at = 0.0

    def reserve(self) -> float:
        """Take a token and return the seconds to wait before using it."""
        if not self._interval:
            return 0.0
        now = self._clock.monotonic()
        self._full_at = max(self._full_at, now) + self._interval
        return max(0.0, self._full_at - self._allowance - now)

    def backlog(self) -> float:
        """The seconds that a request would have to wait now."""
        if not self._interval:
            return 0.0
        return max(0.0, self._full_at + self._interval - self._allowance - self._clock.monotonic())

    async def acquire(self) -> None:
        """Wait for a token. A waiter that is cancelled has consumed its token nevertheless."""
        delay = self.reserve()
        if delay > 0:
            await self._clock.sleep(delay)


# Which failed requests are retried, and when.
#
# - The server requested it (429 or 5xx with Retry-After): always, whatever the verb; the server has not acted.
# - The request never left this machine (connection refused, no route, TLS failure): always.
# - The connection broke after sending: only if repeating is harmless. A repeated update or delete may then result in
#   409 or 404 although the first attempt succeeded, so callers re-read on those, as they must anyway.
# - A create (or JSON patch) whose connection broke is not retried: it may have been applied, and only its caller
#   knows how to find out. The error states so (``TransportError.maybe_applied``).


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays are in seconds. ``attempts`` below is the number of previous failures."""

    random: random.Random = field(repr=False)
    max_server_retries: int = 10
    max_connection_retries: int = 5
    initial_backoff: float = 0.2
    max_backoff: float = 5.0

    def after_response(self, status: int, retry_after: float | None, attempts: int) -> float | None:
        """Return the delay before a retry, or None if the response is final."""
        if retry_after is None or not (status == 429 or status >= 500) or attempts >= self.max_server_retries:
            return None
        # Spread over a tenth more, or all clients that an overloaded server rejects would come back at the same moment.
        return retry_after * self.random.uniform(1.0, 1.1)

    def after_error(self, error: TransportError, *, repeatable: bool, attempts: int) -> float | None:
        """Return the delay before reconnecting, or None if the error is final."""
        if attempts >= self.max_connection_retries or (error.maybe_applied and not repeatable):
            return None
        ceiling = min(self.max_backoff, self.initial_backoff * float(2**attempts))
        return ceiling * self.random.uniform(0.5, 1.0)


logger = logging.getLogger(__name__)

A = TypeVar("A")
Headers = Mapping[str, str]
_READS: Final = ("GET", "HEAD")


@dataclass(slots=True)
class _RetryState:
    """The retries of one call; most calls have none."""

    give_up_at: float
    responses: int = 0
    errors: int = 0
    renewed: bool = False


class Sender:
    """Sends requests to one API server. ``identity`` are the headers that every request carries; with ``read_only``, no
    request that would write is sent."""

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
        read_only: ReadOnly | None = None,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._limiter = limiter
        self.backlog = limiter.backlog
        self._retry = retry
        self._clock = clock
        self._monotonic = clock.monotonic
        self._metrics = metrics
        self._identity = identity
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._read_only = read_only
        self._headers: dict[str, Headers] = {}
        self._headers_for = ""
        self._may_write: Callable[[], bool] | None = None

    def fenced(self, may_write: Callable[[], bool]) -> Sender:
        """Return a sender over the same connections and limits that sends writes only while ``may_write`` returns true.
        The check is made last, when the request has waited for its connection and only has to be sent."""
        fenced = copy(self)
        fenced._headers = {}
        fenced._headers_for = ""
        fenced._may_write = may_write
        return fenced

    def once(self) -> Sender:
        """Return a sender over the same connections and limits that makes each request once, and leaves it to the
        caller to wait and to try again."""
        once = copy(self)
        once._headers = {}
        once._headers_for = ""
        once._retry = replace(self._retry, max_server_retries=0, max_connection_retries=0)
        return once

    async def call(self, request: Request) -> bytes:
        """Return the body of the response. Raises ApiStatusError, TransportError, CredentialError, or, for a write that
        this client may not send, WriteRefusedError."""
        self._check(request)
        started = self._monotonic()
        try:
            return await self._until_response(request, self._exchange, started)
        finally:
            self._metrics.took(request.method, self._monotonic() - started)

    async def stream(self, request: Request) -> Stream:
        """Return the response of a watch once it has begun; the deadline applies to its beginning."""
        self._check(request)
        return await self._until_response(request, self._open, self._monotonic())

    async def close(self) -> None:
        await self._transport.close()

    def _check(self, request: Request) -> None:
        if self._read_only is not None:
            self._read_only.check(request.method, request.target)

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
            raise TransportError(f"{what}: no response within {seconds:g} s", timed_out=True) from error

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

    async def _until_response(
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
                self._refresh_certificates(self._tls)
            try:
                return await attempt(request, self._headers_of(request.content_type, authorization), give_up_at)
            except (TransportError, ApiStatusError) as error:
                retry_state = retry_state or _RetryState(give_up_at)
                await self._recover(request, authorization, error, retry_state)

    async def _recover(
        self, request: Request, authorization: str, error: TransportError | ApiStatusError, retry_state: _RetryState
    ) -> None:
        """Prepare the next attempt (wait, renew credentials), or raise ``error`` if there is none."""
        if isinstance(error, TransportError):
            self._metrics.attempted(request.method)
            delay = self._retry.after_error(error, repeatable=request.repeatable, attempts=retry_state.errors)
            retry_state.errors += 1
        else:
            if error.is_unauthorized and not retry_state.renewed:
                retry_state.renewed = True
                if await self._credentials.renew(authorization):
                    return
            delay = self._retry.after_response(error.code, error.retry_after, retry_state.responses)
            retry_state.responses += 1
        if delay is None or self._monotonic() + delay >= retry_state.give_up_at:
            raise error
        logger.debug("trying again in %.2f s: %s", delay, error)
        await self._clock.sleep(delay)
        await self._limiter.acquire()

    def _refresh_certificates(self, tls: RotatingContext) -> None:
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
