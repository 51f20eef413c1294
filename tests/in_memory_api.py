"""The embedded API server in memory, for all unit tests: its store, verbs and HTTP layer, without sockets and TLS.

Clients are real ones, over a connection that hands requests to the server directly. So objects have the generation,
the status subresource, the admission and the validation that they have on a real API server. What no client could
store, such as an object that cannot be read, is put into the store behind the server's back.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from ssl import SSLContext
from typing import Any, Final, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.payload import Payload
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from koordinator.api.codec import to_document
from koordinator.api.kinds import NAMESPACES, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import Clock, ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.time_limits import TimeLimits
from koordinator.cluster.admission.plugins import admission_chain
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.custom_resources import resources_of
from koordinator.cluster.http.access import Authenticator
from koordinator.cluster.http.application import Application
from koordinator.cluster.http.endpoints import Health
from koordinator.cluster.http.request import parse_resource_path
from koordinator.cluster.http.reviews import REVIEW_RESOURCES
from koordinator.cluster.limits import MAX_BODY
from koordinator.cluster.metrics_api import METRICS_RESOURCES
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.service_addresses import ServiceAddresses
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Change, Stored
from koordinator.cluster.system_objects import create_system_objects
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.environment import Environment, timestamp
from koordinator.cluster.verbs.target import Target
from koordinator.kube.client import KubeClient
from koordinator.kube.credentials import fixed_credentials
from koordinator.kube.errors import ApiStatusError, FencedError, TransportError
from koordinator.kube.kubeconfig import User
from koordinator.kube.sender import RateLimiter, RequestMetrics, RetryPolicy, Sender
from koordinator.kube.transport import Transport
from koordinator.kube.write_policy import ReadOnly
from tests.real_world.faulty_api_server import Faults, FaultyTransport

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request: the verb as Kubernetes names it, and what it is about."""

    verb: str
    plural: str
    name: str = ""
    subresource: str = ""
    body: bytes = field(default=b"", compare=False, repr=False)
    dry_run: bool = False


class Hang(Exception):
    """A fault: the request is never answered."""


Fault = Callable[[ApiRequest, bool], Exception | None]
"""How a request fails, before it is done (False) or behind it (True), so that it took effect."""
NO_FAULT: Final[Fault] = lambda api_request, done: None  # noqa: E731

_TOKEN = "token"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_READS = ("GET", "HEAD")
_WATCHED = {"created": "ADDED", "updated": "MODIFIED", "deleted": "DELETED"}


class InMemoryApi:
    """``without_groups``: API groups that this server does not know; ``others``: custom resources beside ours.
    ``away``: connections are refused, and open watches break. ``asked`` is what clients have asked, ``writes`` counts
    what they have changed by verb and plural."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        without_groups: frozenset[str] = frozenset(),
        others: Sequence[Kind[Any]] = (),
    ) -> None:
        self.clock = clock or ManualClock()
        self.away = False
        self.requests: list[ApiRequest] = []
        self.fault = NO_FAULT
        """Of requests that have a response; of watches, before they begin."""
        self.faults = Faults()
        """What real API servers do to requests on their way; time passes by the clock of the client."""
        self.writes: Counter[tuple[str, str]] = Counter()
        self._storage = _Storage()
        builtin = (*BUILTIN_RESOURCES, *REVIEW_RESOURCES, *METRICS_RESOURCES)
        registry = Registry(tuple(each for each in builtin if each.group not in without_groups))
        for resource in (*_custom_resources(), *(each for kind in others for each in resources_of(_definition(kind)))):
            registry.add(resource)
        services = registry.stored["", "services"]
        assert services is not None
        self._environment = Environment(
            self._storage,
            registry,
            self.clock,
            Random(1),
            admission=admission_chain(),
            addresses=ServiceAddresses(self._storage, services, Random(1)),
            creation_warnings={},
        )
        self._application = Application(self._environment, Authenticator.of(_TOKEN), Health())
        self._streams: set[InMemoryStream] = set()
        for name in ("default", "koordinator-system"):
            self.put(NAMESPACES, {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[InMemoryApi]:
        """With the system's objects and the loops of the server around the block; not needed without either."""
        await create_system_objects(self._environment)
        loops = BackgroundLoops(self.clock, Random(1))
        for name, body in Termination(self._environment).loops().items():
            loops.add(name, body)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(loops.run())
            try:
                yield self
            finally:
                await self._storage.close()
                task.cancel()

    def connection(self) -> InMemoryConnection:
        return InMemoryConnection(self)

    def client(
        self,
        clock: Clock | None = None,
        connection: Transport | None = None,
        read_only: ReadOnly | None = None,
    ) -> KubeClient:
        """A client whose deadlines and pauses go by ``clock``, or else by that of the server. It does not repeat
        requests that the server could not be queried."""
        clock, random = clock or self.clock, Random(1)
        sender = Sender(
            FaultyTransport(self.faults, connection or self.connection(), clock),
            fixed_credentials(User(token=_TOKEN)),
            RateLimiter(clock, 0, 0),
            RetryPolicy(random, max_connection_retries=0),
            clock,
            RequestMetrics(Metrics(), "in-memory"),
            identity=[("User-Agent", "test")],
            timeout_seconds=60,
            read_only=read_only,
        )
        # No watch stalls in memory, and to look for that twice a second would cost more than all else.
        return KubeClient(sender, TimeLimits(ManualClock()), random)

    def go_away(self) -> None:
        self.away = True
        for stream in list(self._streams):
            stream.break_off("connection reset by peer")

    def come_back(self) -> None:
        self.away = False

    def put(self, kind: Kind[Any], document: Document) -> None:
        """Store a whole document, whatever is in it, as if a client had written it and its status. Of its metadata,
        what the server gives is filled in; the generation grows with each change beyond metadata and status. Its
        namespace is made if need be."""
        name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
        if namespace and self.found(NAMESPACES, namespace) is None:
            self.put(NAMESPACES, {"metadata": {"name": namespace}, "spec": {"finalizers": ["kubernetes"]}})
        before = self.found(kind, name, namespace)
        known = before["metadata"] if before is not None else {}
        generation = known.get("generation", 0) + (before is None or _desired(before) != _desired(document))
        given: Document = {
            "uid": known.get("uid") or self._environment.new_uid(),
            "creationTimestamp": known.get("creationTimestamp") or timestamp(self.clock.now()),
            **document["metadata"],
            "generation": generation,
        }
        given.pop("resourceVersion", None)
        body = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
        # As Python writes it, since that has no bounds for numbers.
        text = json.dumps({"metadata": given, **body}, separators=(",", ":"))
        self._storage.put(self._key(kind, namespace, name), text.encode())

    def remove(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        """Without any finalizer or grace period."""
        self._storage.remove(self._key(kind, namespace, name))

    def found(self, kind: Kind[Any], name: str, namespace: str = "") -> Document | None:
        stored = self._storage.get(self._key(kind, namespace, name))
        return None if stored is None else _document(self._resource(kind), stored)

    def document(self, kind: Kind[Any], name: str, namespace: str = "") -> Document:
        """Of what must be there."""
        found = self.found(kind, name, namespace)
        assert found is not None, f"there are no {kind.plural} {name}"
        return found

    def names(self, kind: Kind[Any]) -> list[str]:
        return sorted(document["metadata"]["name"] for document in self.all(kind))

    def all(self, kind: Kind[Any]) -> list[Document]:
        resource = self._resource(kind)
        return [_document(resource, stored) for stored in self._storage.list(resource.prefix).items]

    @property
    def revision(self) -> int:
        """Of the last change."""
        return self._storage.revision()

    def changes(self, kind: Kind[Any], since: int) -> list[tuple[int, str, Document]]:
        """Those of a kind after a revision: the revision, the type as a watch has it, and the document."""
        resource = self._resource(kind)
        return [
            (change.revision, _WATCHED[change.type], _document(resource, change.current))
            for change in self._storage.changes(resource.prefix, since)
        ]

    def _resource(self, kind: Kind[Any]) -> Resource:
        resource = self._environment.registry.served.get((kind.group, kind.version, kind.plural))
        assert resource is not None, f"{kind} is not served"
        return resource

    def _key(self, kind: Kind[Any], namespace: str, name: str) -> str:
        return Target(self._resource(kind), namespace or None, name).key

    async def respond(self, api_request: ApiRequest, request: web.BaseRequest, writer: Writer) -> InMemoryResponse:
        response = await self._application.handle(request)
        body = getattr(response, "body", None)
        if isinstance(body, Payload):
            await body.write(writer)
        written = bytes(writer.body) or body or b""
        if response.status < 300 and request.method in _VERBS:
            self.writes[api_request.verb, api_request.plural] += 1
        return InMemoryResponse(response.status, response.headers, written)


@dataclass(frozen=True, slots=True)
class InMemoryResponse:
    """Implements ``koordinator.kube.transport.Response``."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class InMemoryConnection:
    """Implements ``koordinator.kube.transport.Transport``. ``dead``: the process on this side has ended."""

    def __init__(self, api: InMemoryApi) -> None:
        self._api = api
        self.dead = False

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        give_up_at: float,
        may_send: Callable[[], bool] | None = None,
    ) -> InMemoryResponse:
        if may_send is not None and not may_send():
            raise FencedError(f"{method} {target}: not sent, the right to write is lost")
        api_request = self._reach(method, target, body)
        if (failure := await self._failure(api_request, done=False)) is not None:
            return failure
        writer = Writer(lambda: None)
        reply = await self._api.respond(api_request, _request(method, target, headers, body, writer), writer)
        return await self._failure(api_request, done=True) or reply

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> InMemoryStream:
        api_request = self._reach(method, target, body)
        stream = InMemoryStream(self._api._streams)
        if (failure := await self._failure(api_request, done=False)) is not None:
            stream.respond(failure)
            return stream
        request = _request(method, target, headers, body, stream.writer)
        await stream.begin(self._api._application.handle(request))
        return stream

    def use_tls(self, context: SSLContext) -> None:
        raise AssertionError("there is no TLS in memory")

    async def close(self) -> None:
        """Nothing is open but streams, which their readers abort."""

    def _reach(self, method: str, target: str, body: bytes | None) -> ApiRequest:
        if self.dead:
            raise TransportError(f"{method} {target}: the process has ended")
        api_request = _api_request(method, URL(target, encoded=True), body or b"")
        self._api.requests.append(api_request)
        if self._api.away:
            raise TransportError(f"{method} {target}: connection refused", maybe_applied=False)
        return api_request

    async def _failure(self, api_request: ApiRequest, *, done: bool) -> InMemoryResponse | None:
        error = self._api.fault(api_request, done)
        if isinstance(error, Hang):
            await asyncio.Event().wait()
        return failed(error)


def failed(error: Exception | None) -> InMemoryResponse | None:
    """What an API server responds with comes as a response; what else a fault is, is raised."""
    if isinstance(error, ApiStatusError):
        status: Document = {"kind": "Status", "status": "Failure", "message": error.message, "reason": error.reason}
        status |= {"details": to_document(error.details), "code": error.code}
        return InMemoryResponse(error.code, {}, json.dumps(status).encode())
    if error is not None:
        raise error
    return None


class InMemoryStream:
    """Implements ``koordinator.kube.transport.Stream``."""

    def __init__(self, streams: set[InMemoryStream]) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._news = asyncio.Event()
        self.writer = Writer(self._news.set)
        self._streams = streams
        self._task: asyncio.Task[web.StreamResponse] | None = None
        self._broken = ""

    async def begin(self, handling: Coroutine[Any, Any, web.StreamResponse]) -> None:
        """Until the headers are there."""
        self._streams.add(self)
        self._task = task = asyncio.get_running_loop().create_task(handling)
        task.add_done_callback(lambda _: self._news.set())
        try:
            while not task.done() and not self.writer.status and not self._broken:
                await self._wait()
        except asyncio.CancelledError:
            self.abort()
            raise
        self._check()
        self.status, self.headers = self.writer.status, self.writer.headers
        if not self.status:
            response = task.result()
            self.status, self.headers = response.status, response.headers
            self.writer.body += getattr(response, "body", None) or b""

    def respond(self, reply: InMemoryResponse) -> None:
        """With what is whole already."""
        self.status, self.headers = reply.status, reply.headers
        self.writer.body += reply.body

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            self._check()
            chunk = self.writer.take()
            if chunk:
                yield chunk
            elif self._task is None or self._task.done():
                return
            else:
                await self._wait()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    def abort(self) -> None:
        self._streams.discard(self)
        if self._task is not None:
            self._task.cancel()
        self._broken = self._broken or "aborted"
        self._news.set()

    def break_off(self, why: str) -> None:
        self._broken = why
        self.abort()

    def _check(self) -> None:
        if self._broken:
            raise TransportError(self._broken)

    async def _wait(self) -> None:
        await self._news.wait()
        self._news.clear()


class Writer(AbstractStreamWriter):
    """Keeps what the server writes until it is taken."""

    def __init__(self, written: Callable[[], None]) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body = bytearray()
        self._written = written

    def take(self) -> bytes:
        taken = bytes(self.body)
        self.body.clear()
        return taken

    async def write(self, chunk: bytes | bytearray | memoryview[Any]) -> None:
        self.body += chunk
        self._written()

    async def write_eof(self, chunk: bytes = b"") -> None:
        await self.write(chunk)

    async def drain(self) -> None: ...

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None: ...

    def enable_chunking(self) -> None: ...

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        self.status, self.headers = int(status_line.split(" ")[1]), headers
        self._written()


def _api_request(method: str, url: URL, body: bytes) -> ApiRequest:
    path = parse_resource_path(url.path)
    if path is None:
        return ApiRequest(method.lower(), url.path)
    read = "watch" if "watch" in url.query else "get" if path.name else "list"
    name = path.name or json.loads(body or b"{}").get("metadata", {}).get("name", "")
    return ApiRequest(_VERBS.get(method, read), path.plural, name, path.subresource, body, "dryRun" in url.query)


class _Protocol:
    """What a request asks about its connection."""

    transport = ssl_context = peername = sockname = None


class _Storage(MemoryStorage):
    """With writes that need no task."""

    def put(self, key: str, value: bytes) -> None:
        self._flush()
        before = self.get(key)
        stored = Stored(key, value, self.revision() + 1)
        self._apply([Change("updated" if before is not None else "created", stored, before)])

    def changes(self, prefix: str, since: int) -> list[Change]:
        self._flush()
        cursor, found = self.watch(prefix, since), list[Change]()
        while batch := cursor.pending():
            found += batch
        cursor.close()
        return found

    def remove(self, key: str) -> None:
        self._flush()
        before = self.get(key)
        assert before is not None, f"{key} does not exist"
        self._apply([Change("deleted", Stored(key, before.value, self.revision() + 1), before)])


def _request(
    method: str, target: str, headers: Mapping[str, str], body: bytes | None, writer: AbstractStreamWriter
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    sent = CIMultiDict(headers)
    sent["Host"] = "in-memory"
    sent["Content-Length"] = str(len(body or b""))
    raw = tuple((name.encode(), value.encode()) for name, value in sent.items())
    message = RawRequestMessage(
        method, target, HttpVersion11, CIMultiDictProxy(sent), raw, False, None, False, False, URL(target, encoded=True)
    )
    payload = StreamReader(BaseProtocol(loop), 1 << 16, loop=loop)
    if body:
        payload.feed_data(body)
    payload.feed_eof()
    task = cast("asyncio.Task[None]", asyncio.current_task())
    return web.BaseRequest(
        message, payload, cast("Any", _Protocol()), writer, task, loop, client_max_size=MAX_BODY, scheme="https"
    )


@cache
def _custom_resources() -> tuple[Resource, ...]:
    """Ours. What is stored behind the server's back is shown as it is, not pruned."""
    return tuple(
        replace(resource, current=None)
        for definition in custom_resource_definitions()
        for resource in resources_of(definition)
    )


def _definition(kind: Kind[Any]) -> Document:
    """Of a custom resource with any fields, a status and no scale."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name, "listKind": f"{kind.name}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


def _document(resource: Resource, stored: Stored) -> Document:
    document: Document = {"apiVersion": resource.api_version, "kind": resource.kind, **json.loads(stored.value)}
    document["metadata"]["resourceVersion"] = str(stored.revision)
    return document if resource.from_stored is None else resource.from_stored(document)


def _desired(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata", "status")}
