"""An API server that fails in the ways that people have seen: in front of the one in memory, or of a real one.

``Faults`` holds rules: which requests fail (by verb, resource, subresource, namespace, name) and how (a status with or
without Retry-After, late, never, or with a lost connection; before or after the write was carried out). Rules may be
added and removed while clients are connected, and count what they have hit.

- ``FaultyTransport`` puts them between a client and any transport; ``InMemoryApi.faults`` are those of its clients;
- ``relay`` puts them between processes and a real API server, by a kubeconfig of its own.

``FAULTS`` lists the faults by what causes them: a test that must survive all of them is parametrised by it. To add one,
append it there.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
from aiohttp import web
from yarl import URL

from koordinator.base.clock import Clock
from koordinator.cluster.http.request import parse_resource_path
from koordinator.kube.errors import TransportError
from koordinator.kube.transport import Response, Stream, Transport

Ending = Literal["answer", "hang", "drop"]
_WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_REASONS: Final = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 429: "TooManyRequests", 500: "InternalError",
                   503: "ServiceUnavailable", 504: "Timeout"}  # fmt: skip
_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade"})
_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


@dataclass(frozen=True, slots=True)
class Fault:
    """How a request fails: after ``delay`` seconds with a ``status``, or never (``hang``), or by a connection that is
    lost (``drop``). ``carried_out``: the server has done it before; without a ``status``, what it has answered then is
    what arrives after the delay."""

    ending: Ending = "answer"
    status: int = 0
    message: str = "it was refused by a fault"
    retry_after: float | None = None
    delay: float = 0.0
    carried_out: bool = False


FAULTS: Final[Mapping[str, Fault]] = {
    "etcd or a webhook fails": Fault(status=500, message="failed calling webhook: connection refused"),
    "the server is overloaded": Fault(status=429, message="too many requests", retry_after=1),
    "the server asks for an hour": Fault(status=429, message="too many requests", retry_after=3600),
    "the server is not ready": Fault(status=503, message="etcd is away"),
    "a webhook refuses": Fault(status=403, message='admission webhook "w" denied the request: no'),
    "another writer was first": Fault(status=409, message="the object has been modified"),
    "it is not there": Fault(status=404, message="not found"),
    "a webhook takes half a minute and fails": Fault(status=500, message="context deadline exceeded", delay=30),
    "a webhook takes half a minute": Fault(delay=30),
    "there is never an answer": Fault("hang"),
    "the answer is lost": Fault("drop", carried_out=True),
    "the answer itself is late": Fault(delay=20, carried_out=True),
    "the answer is never sent": Fault("hang", carried_out=True),
    "the server gives up too early": Fault(status=504, message="request did not complete", carried_out=True),
    "the connection breaks before": Fault("drop"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for; the verb is that of Kubernetes."""

    verb: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(slots=True)
class Rule:
    """Which requests have ``fault``: empty texts are any, ``name`` and ``namespace`` are patterns of the shell.
    ``times``: how often at most. ``hits`` counts by name of the object, ``in_flight`` those that are failing now."""

    fault: Fault
    verb: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = "*"
    name: str = "*"
    times: float = float("inf")
    hits: list[str] = field(default_factory=list)
    in_flight: int = 0

    def applies(self, request: Request) -> bool:
        return (
            len(self.hits) < self.times
            and self.verb in ("", request.verb)
            and self.plural in ("", request.plural)
            and (self.subresource == request.subresource or not (self.subresource or self.plural))
            and fnmatchcase(request.namespace, self.namespace)
            and fnmatchcase(request.name, self.name)
        )


def bindings(fault: Fault, name: str = "*", namespace: str = "*", times: float = float("inf")) -> Rule:
    """A rule for the Bindings of the pods of this name."""
    return Rule(fault, "create", "pods", "binding", namespace, name, times)


class Faults:
    """The first rule that applies decides."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)

    def rule_for(self, request: Request) -> Rule | None:
        """The rule that decides about the request, and counts it."""
        for rule in self.rules:
            if rule.applies(request):
                rule.hits.append(request.name)
                return rule
        return None


def read_request(method: str, url: URL, body: bytes) -> Request:
    """What is asked for, by method, path and body."""
    path = parse_resource_path(url.path)
    if path is None:
        return Request(method.lower())
    read = "watch" if "watch" in url.query else "get" if path.name else "list"
    name = path.name
    if not name and body.startswith(b"{"):
        name = json.loads(body).get("metadata", {}).get("name", "")
    return Request(_WRITES.get(method, read), path.plural, path.namespace or "", name, path.subresource)


def _status(fault: Fault) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a failure."""
    headers = {"Content-Type": "application/json"}
    if fault.retry_after is not None:
        headers["Retry-After"] = f"{fault.retry_after:g}"
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": fault.message,
        "reason": _REASONS.get(fault.status, ""),
        "code": fault.status,
    }
    return headers, json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class _Answer:
    """Implements ``koordinator.kube.transport.Response``."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FaultyTransport:
    """Implements ``koordinator.kube.transport.Transport`` over another one; time passes by ``clock``."""

    def __init__(self, faults: Faults, transport: Transport, clock: Clock) -> None:
        self._faults = faults
        self._transport = transport
        self._clock = clock

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        give_up_at: float,
        may_send: Callable[[], bool] | None = None,
    ) -> Response:
        async def done() -> Response:
            return await self._transport.request(
                method, target, headers, body, give_up_at=give_up_at, may_send=may_send
            )

        if not self._faults.rules:
            return await done()
        rule = self._faults.rule_for(read_request(method, URL(target, encoded=True), body or b""))
        if rule is None:
            return await done()
        rule.in_flight += 1
        try:
            return await self._fail(rule.fault, f"{method} {target}", done, give_up_at)
        finally:
            rule.in_flight -= 1

    async def _fail(self, fault: Fault, what: str, done: Callable[[], Any], give_up_at: float) -> Response:
        answer: Response | None = await done() if fault.carried_out else None
        left = give_up_at - self._clock.monotonic()
        if fault.ending == "hang" or fault.delay > left:
            await self._clock.sleep(left)
            raise TransportError(f"{what}: no response within {left:g} s", timed_out=True)
        if fault.delay:
            await self._clock.sleep(fault.delay)
        if fault.ending == "drop":
            raise TransportError(f"{what}: the server closed the connection without a response")
        if fault.status:
            return _Answer(fault.status, *_status(fault))
        response: Response = answer if answer is not None else await done()
        return response

    async def stream(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Stream:
        return await self._transport.stream(method, target, headers, body)

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._transport.use_tls(context)

    async def close(self) -> None:
        await self._transport.close()


class _Relay:
    """Hands requests on to a server, but for those that fail."""

    def __init__(self, faults: Faults, server: str, session: aiohttp.ClientSession) -> None:
        self._faults = faults
        self._server = URL(server)
        self._session = session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        rule = self._faults.rule_for(read_request(request.method, request.rel_url, body))
        if rule is None:
            return await self._hand_on(request, body)
        rule.in_flight += 1
        try:
            return await self._fail(rule.fault, request, body)
        finally:
            rule.in_flight -= 1

    async def _fail(self, fault: Fault, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        late: web.StreamResponse | None = None
        if fault.carried_out:
            async with self._asked(request, body) as answer:
                late = web.Response(status=answer.status, headers=_passed_on(answer), body=await answer.read())
        if fault.ending == "hang":
            # Until the client goes away, which cancels this.
            await asyncio.Event().wait()
        await asyncio.sleep(fault.delay)
        if fault.ending == "drop":
            assert request.transport is not None
            request.transport.abort()
        if fault.ending == "answer" and not fault.status:
            return late if late is not None else await self._hand_on(request, body)
        headers, text = _status(fault)
        return web.Response(status=fault.status or 500, headers=headers, body=text)

    @asynccontextmanager
    async def _asked(self, request: web.BaseRequest, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = URL(f"{self._server}{request.raw_path}", encoded=True)
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, skip_auto_headers=_AUTOMATIC
        ) as answer:
            yield answer

    async def _hand_on(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        async with self._asked(request, body) as answer:
            headers = _passed_on(answer)
            response = web.StreamResponse(status=answer.status, headers=headers)
            with suppress(aiohttp.ClientError, ConnectionError):
                # Either end may go in the middle, which the other one sees.
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response


def _passed_on(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers that are not about the one connection."""
    return {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}


@asynccontextmanager
async def relay(faults: Faults, kubeconfig: Path, certificates: Path, folder: Path) -> AsyncIterator[Path]:
    """A server before that of ``kubeconfig``; yields the kubeconfig of those who go through it. ``certificates`` has
    the apiserver.crt and apiserver.key of the real one, with which this one serves, too."""
    document = json.loads(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    asking = ssl.create_default_context(cafile=cluster["certificate-authority"])
    asking.check_hostname = False
    connector = aiohttp.TCPConnector(ssl=asking, limit=0)
    endless = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=endless, auto_decompress=False) as session:
        server = web.Server(_Relay(faults, cluster["server"], session).handle, handler_cancellation=True)
        runner = web.ServerRunner(server, access_log=None, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving)
            await site.start()
            host, port = runner.addresses[0][:2]
            cluster["server"] = f"https://{host}:{port}"
            path = folder / "relay-kubeconfig"
            path.write_text(json.dumps(document))
            yield path
        finally:
            transports = [each.transport for each in server.connections]
            with suppress(OSError):
                await runner.cleanup()
            # Python's TLS never closes a connection whose peer has gone while nobody was reading.
            for transport in transports:
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(0)
