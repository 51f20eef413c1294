"""The outermost layer of the server: connections, authentication, routing, a Status for each error, and counts."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.base.metrics import Metrics
from koordinator.base.server_limits import ServerLimits
from koordinator.cluster.access.authorizer import AlwaysAllow, Authorizer
from koordinator.cluster.errors import ApiError, bad_request, method_not_allowed, storage_failure, too_large
from koordinator.cluster.http.access import USER, Authenticator, access_request, acting_user, check_allowed
from koordinator.cluster.http.endpoints import Endpoints, Health
from koordinator.cluster.http.negotiation import REPRESENTATION, encoded
from koordinator.cluster.http.request import ResourcePath, parse_resource_path
from koordinator.cluster.http.resources import ResourceHandler, wants_watch
from koordinator.cluster.http.response import failure
from koordinator.cluster.http.reviews import Reviews
from koordinator.cluster.limits import MAX_BODY, TOO_DEEP
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import StorageError, WriteFailed
from koordinator.cluster.verbs.environment import Environment
from koordinator.kube.metrics_page import MetricsPage

_LOG = logging.getLogger(__name__)


_CONNECTIONS: Final = ServerLimits(connections=10_000, body=34.0, idle=90.0)
"""Times as on the real server: 34 s is its time for a write."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What clients may take up. Watches are meant to last: they are not limited in time, and counted apart."""

    connections: ServerLimits = _CONNECTIONS
    requests: int = 3_000
    """In flight at one time."""
    watches: int = 7_500
    """At one time, and never more than three quarters of the connections: the rest is for other requests."""

    def most_watches(self, files: int) -> int:
        """Of a process that may open so many ``files``."""
        return max(1, min(self.watches, self.connections.connections * 3 // 4, files // 2))


_MAX_LINE = 64 << 10
"""Bytes of a request line or header; selectors can be long."""
CONNECTION_OPTIONS: Final[Mapping[str, Any]] = {
    # The real server takes no compressed bodies; a few of their bytes could be gigabytes.
    "auto_decompress": False,
    "max_line_size": _MAX_LINE,
    "max_field_size": _MAX_LINE,
}


class Application:
    """Handles every request; meant for ``aiohttp.web.Server``, below the routing that resource paths do not need."""

    def __init__(
        self,
        environment: Environment,
        authenticator: Authenticator,
        health: Health,
        limits: HttpLimits | None = None,
        metrics: Metrics | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._limits = limits or HttpLimits()
        self._in_flight = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._watches = OpenWatches(self._limits.most_watches(files if files > 0 else 1 << 31))
        metrics = metrics or Metrics()
        self._metrics = RequestMetrics(metrics, environment)
        metrics.register(OpenRequests(lambda: self._in_flight, lambda: self._watches.open))
        self._metrics_page = MetricsPage(metrics, environment.clock)
        self._authenticator = authenticator
        self._authorizer = authorizer or AlwaysAllow()
        self._resources = ResourceHandler(
            environment, Reviews(authenticator, self._authorizer, environment.clock), self._authorizer
        )
        self._endpoints = Endpoints(environment.registry, health, environment.account_tokens)

    def server(self) -> web.Server:
        return web.Server(
            self.handle, request_factory=_request, handler_cancellation=True, access_log=None, **CONNECTION_OPTIONS
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = parse_resource_path(request.path)
        is_watch = path is not None and wants_watch(request, path)
        response = await self._handled(request, path, is_watch=is_watch)
        agreed = request.get(REPRESENTATION)
        if agreed is not None and agreed.encoding != "json":
            response = await encoded(response, agreed)
        self._metrics.count(request.method, path, response.status, is_watch=is_watch)
        return response

    async def _handled(
        self, request: web.BaseRequest, path: ResourcePath | None, *, is_watch: bool
    ) -> web.StreamResponse:
        try:
            # Before there can be too many of them: who may not send it is told so instead.
            self._admit(request, path, is_watch=is_watch)
            with self._one_more(is_watch=is_watch):
                return await self._respond(request, path)
        except ApiError as error:
            return failure(error)
        except RecursionError:
            return failure(bad_request(f"the request or the object that it is about {TOO_DEEP}"))
        except web.HTTPRequestTimeout:
            why = f"the request body did not arrive within {self._limits.connections.body:g} seconds"
            return failure(ApiError(408, "Timeout", f"Timeout: {why}"))
        except web.HTTPRequestEntityTooLarge:
            return failure(too_large(f"limit is {MAX_BODY}"))
        except StorageError as error:
            # The store says itself when writes begin to fail; a line for each of them would fill a disk that is full.
            level = logging.DEBUG if isinstance(error, WriteFailed) else logging.ERROR
            _LOG.log(level, "%s %r: %s", request.method, request.path, error)
            return failure(storage_failure(error))
        except Exception:
            _LOG.exception("%s %r failed", request.method, request.path)
            return failure(ApiError(500, "InternalError", "Internal error occurred: see the API server's log"))

    def _admit(self, request: web.BaseRequest, path: ResourcePath | None, *, is_watch: bool) -> None:
        """Find out who sends the request, and keep it there. Raises ApiError 401, and 403 for what is not permitted."""
        sender = self._authenticator.authenticate(request)
        user = request[USER] = acting_user(sender, request.raw_headers, self._authorizer)
        if not self._authorizer.permits_all:
            check_allowed(self._authorizer, user, access_request(request, path, is_watch=is_watch))

    @contextmanager
    def _one_more(self, *, is_watch: bool) -> Iterator[None]:
        """Raises ApiError 429 when there are too many of its sort."""
        if is_watch:
            with self._watches.one():
                yield
            return
        if self._in_flight >= self._limits.requests:
            raise too_many_requests()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def _respond(self, request: web.BaseRequest, path: ResourcePath | None) -> web.StreamResponse:
        if request.can_read_body and not request.content.is_eof():
            # Kept in the request.
            await request.read()
        if path is not None:
            return await self._resources.handle(request, path)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if request.path == "/metrics":
            body, content_type = await self._metrics_page.rendered(request.headers.get("Accept", ""))
            return web.Response(body=body, headers={"Content-Type": content_type})
        return self._endpoints.handle(request)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=MAX_BODY
    )


# What ``/metrics`` shows of the server, under the names that it has on kube-apiserver: requests, watches, objects.


_NO_PATH: Final = ResourcePath("", "", "", None, "", "")
_ON_COLLECTION: Final = {"GET": "LIST", "DELETE": "DELETECOLLECTION"}
_METHODS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))


class RequestMetrics:
    """Counts requests as they end. Names that only a client made up do not become series."""

    def __init__(self, metrics: Metrics, environment: Environment) -> None:
        self._environment = environment
        self._total = metrics.counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP response "
            "code.",
            ("verb", "group", "version", "resource", "subresource", "scope", "code"),
            stability="STABLE",
        )
        metrics.register(_ObjectCounts(environment))

    def count(self, method: str, path: ResourcePath | None, code: int, *, is_watch: bool) -> None:
        """A request that has ended with ``code``."""
        path = path or _NO_PATH
        resource = self._environment.registry.served.get((path.group, path.version, path.plural))
        if resource is None:
            verb = method if method in _METHODS else "other"
            self._total.labels(verb, "", "", "", "", "", str(code)).inc()
            return
        verb = "WATCH" if is_watch else method if path.name else _ON_COLLECTION.get(method, method)
        subresource = path.subresource if path.subresource in resource.subresources else ""
        scope = "resource" if path.name else "namespace" if path.namespace else "cluster"
        self._total.labels(
            verb if method in _METHODS else "other",
            path.group, path.version, path.plural, subresource, scope, str(code),
        ).inc()  # fmt: skip


class OpenRequests(Collector):
    """How many requests and watches there are at this moment."""

    def __init__(self, requests: Callable[[], int], watches: Callable[[], int]) -> None:
        self._requests = requests
        self._watches = watches

    def collect(self) -> Iterable[Metric]:
        requests = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "[STABLE] Requests that are worked on, without watches."
        )
        requests.add_metric((), self._requests())
        watches = GaugeMetricFamily(
            "apiserver_longrunning_requests", "[STABLE] Requests that last: watches.", labels=("verb",)
        )
        watches.add_metric(("WATCH",), self._watches())
        return (requests, watches)


class _ObjectCounts(Collector):
    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "apiserver_resource_objects", "[ALPHA] Number of stored objects by kind.", labels=("group", "resource")
        )
        for kind in self._environment.registry:
            if _is_stored(kind):
                page = self._environment.storage.list(kind.prefix, limit=1)
                family.add_metric((kind.group, kind.plural), len(page.items) + page.remaining)
        return (family,)


def _is_stored(resource: Resource) -> bool:
    return resource.storage_version and "watch" in resource.verbs


# How many watches may be open, and the memory of those that have ended. Each holds a connection for an hour or so:
# without a limit of their own, they would take all connections, and nobody could send another request, not even the one
# that would end them.


_MANY: Final = 500
"""Watches whose memory is worth the milliseconds that it takes to give it back."""
_SETTLED_SECONDS: Final = 2.0


def too_many_requests() -> ApiError:
    """429, in the words of the real server."""
    return ApiError(429, "TooManyRequests", "Too many requests, please try again later.", retry_after=1)


def give_memory_back_soon() -> None:
    """When the connections of the watches are gone, too."""
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, _give_memory_back)


def _give_memory_back() -> None:
    """Collect the cycles that connections leave, and return what the C library's allocator holds without need."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        _LOG.debug("this C library has no malloc_trim")


class OpenWatches:
    """Counts them; ``most`` may be open at one time."""

    def __init__(self, most: int, give_back: Callable[[], None] = give_memory_back_soon) -> None:
        self._most = most
        self._give_back = give_back
        self.open = 0
        self._ended = 0
        self._is_full = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """While one more is open. Entering raises ApiError 429 when there are too many."""
        if self.open >= self._most:
            if not self._is_full:
                _LOG.warning("%d watches are open; others are refused, so that other requests are served", self.open)
            self._is_full = True
            raise too_many_requests()
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._is_full = False
            self._count_ended()

    def _count_ended(self) -> None:
        """A crowd that has gone leaves more than it is worth to keep; a few that come and go do not."""
        self._ended += 1
        if self._ended >= _MANY and self._ended > self.open:
            self._ended = 0
            self._give_back()
