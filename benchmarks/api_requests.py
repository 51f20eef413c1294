"""What requests cost the embedded API server beside kube-apiserver with etcd: rates and CPU time, and their ratios.

Both servers run, and every case is sent to one after the other, so that both see the same machine; each figure is the
median of the rounds. CPU time is that of all processes of a server. A ratio above 1 means that the embedded server is
better: more requests a second, or less CPU time for a request. On a busy machine the second says more than the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import uvloop

from benchmarks.api_servers import EMBEDDED, RIVAL, STARTS, Server
from benchmarks.workload import node, together
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import SystemClock
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint

_CONNECTIONS: Final = 8
_LIMIT_SECONDS: Final = 120.0
_FILLING: Final = 32
_LISTED: Final = 5_000
_LISTS_EACH: Final = 50
"""Requests of other cases for each list."""
_SHARED: Final = 20
"""Objects that are patched and applied again and again."""
_METRICS: Final = f"/apis/{NODE_METRICS.api_version}/{NODE_METRICS.plural}"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_JSON: Final = "application/json"
_EVENT: Final = b'{"type":"'
_TURN_SECONDS: Final = 0.02

_NODES: Final = 5_000
_PODS: Final = 50_000

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes | None = None
    media_type: str = _JSON


class Requests:
    """Sends requests to one server over connections that stay open."""

    def __init__(self, server: Server) -> None:
        clock, context = SystemClock(), ssl._create_unverified_context()
        self._now = clock.monotonic
        self._transport = PooledTransport(
            Endpoint(server.url), context, clock, TimeLimits(clock), max_connections=_CONNECTIONS
        )
        agent = {"Authorization": f"Bearer {server.token}", "User-Agent": "benchmark/1", "Accept": _JSON}
        self._headers = {name: {**agent, "Content-Type": name} for name in (_JSON, _MERGE, _APPLY)}

    async def send(self, request: Request) -> None:
        """Raises RuntimeError for a response that is an error."""
        headers = self._headers[request.media_type]
        response = await self._transport.request(
            request.method, request.path, headers, request.body, give_up_at=self._now() + _LIMIT_SECONDS
        )
        if response.status >= 300:
            raise RuntimeError(f"{request.method} {request.path}: {response.status} {response.body[:500]!r}")

    async def send_all(self, requests: Iterable[Request], concurrency: int = _CONNECTIONS) -> None:
        await together((self.send(request) for request in requests), concurrency)

    async def close(self) -> None:
        await self._transport.close()


def _encoded(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _created(path: str, document: Document) -> Request:
    return Request("POST", path, _encoded(document))


def _pod(name: str) -> Document:
    environment = [{"name": f"VARIABLE_{each}", "value": "v" * 20} for each in range(10)]
    amounts = {"cpu": "500m", "memory": "512Mi"}
    resources = {"requests": amounts, "limits": amounts}
    container = {"name": "main", "image": "registry.example/app:v1", "env": environment, "resources": resources}
    metadata = {"name": name, "labels": {"app": "x", "team": "y"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _status(number: int) -> Document:
    conditions = [
        {"type": name, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{number % 60:02}Z"}
        for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    address = f"10.0.{number // 250 % 250}.{number % 250 + 1}"
    return {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}}


def _metric(number: int) -> Document:
    return {
        "apiVersion": NODE_METRICS.api_version,
        "kind": NODE_METRICS.name,
        "metadata": {"name": f"node-{number:05d}"},
        "spec": {},
    }


def _metric_status(number: int) -> Document:
    usage = {"resources": {"cpu": f"{number % 997}m", "memory": f"{number % 991}Mi"}}
    pods = [{"name": f"p{each}", "namespace": "default", "podUsage": usage} for each in range(10)]
    return {"status": {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": usage}, "podsMetric": pods}}


def _applied(number: int) -> Document:
    name = f"c{number % _SHARED}"
    data = {"value": str(number), "other": "the same"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "x"}}, "data": data}


def _requests(case: str, number: int, turn: int) -> Request:
    """The request of a case by its number; ``turn`` tells the objects of one round from those of another."""
    pods, name = _pods("default"), f"p{turn}-{number}"
    unique = turn * 100_000 + number
    match case:
        case "pod create":
            return _created(pods, _pod(name))
        case "pod get":
            return Request("GET", f"{pods}/{name}")
        case "pod status merge patch":
            return Request("PATCH", f"{pods}/{name}/status", _encoded(_status(number)), _MERGE)
        case "pod delete":
            return Request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
        case "server-side apply":
            configuration = _applied(unique)
            path = f"/api/v1/namespaces/default/configmaps/{configuration['metadata']['name']}"
            return Request("PATCH", f"{path}?fieldManager=benchmark", _encoded(configuration), _APPLY)
        case "custom resource patch":
            path = f"{_METRICS}/node-{number % _SHARED:05d}/status"
            return Request("PATCH", path, _encoded({"status": _metric_status(unique)["status"]}), _MERGE)
        case "list of 5,000 pods":
            return Request("GET", _pods("many"))
    raise ValueError(case)


_LIST: Final = "list of 5,000 pods"
CASES: Final = (
    "pod create", "pod get", "pod status merge patch", _LIST, "server-side apply", "custom resource patch",
    "pod delete",
)  # fmt: skip
"""In this order: a case uses what an earlier one has made."""
WATCH: Final = "watch event"


class Watcher(asyncio.Protocol):
    """Counts events without reading them: what a client does with one is not the server's cost."""

    def __init__(self, server: Server, path: str) -> None:
        head = f"GET {path}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        self._request = head.encode()
        self._rest = b""
        self.events = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loop's own TLS transports are none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        self.events += data.count(_EVENT)
        self._rest = data[1 - len(_EVENT) :]


def _same(watcher: Watcher) -> Watcher:
    return watcher


async def _until(watchers: Sequence[Watcher], events: int) -> None:
    # A look now and then costs less than to be told of each event.
    while sum(watcher.events for watcher in watchers) < events:  # noqa: ASYNC110
        await asyncio.sleep(_TURN_SECONDS)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of requests, or of events that watchers have got."""

    per_second: float
    cpu_microseconds: float


async def _measured(server: Server, count: int, work: Callable[[], Awaitable[None]]) -> Figures:
    before, started = server.cpu_seconds(), time.perf_counter()
    await work()
    seconds, used = time.perf_counter() - started, server.cpu_seconds() - before
    return Figures(round(count / seconds, 1), round(used / count * 1e6, 1))


async def _sent(server: Server, client: Requests, case: str, count: int, turn: int) -> Figures:
    requests = [_requests(case, number, turn) for number in range(count)]
    return await _measured(server, count, lambda: client.send_all(requests))


async def _watched(server: Server, client: Requests, watchers: int, writes: int, turn: int) -> Figures:
    """Patches of pods that are all sent to every watcher."""
    path, loop, context = _pods("watched"), asyncio.get_running_loop(), ssl._create_unverified_context()
    protocols = [Watcher(server, path) for _ in range(watchers)]
    for protocol in protocols:
        await loop.create_connection(partial(_same, protocol), "127.0.0.1", server.port, ssl=context)
    await _until(protocols, watchers * _SHARED)

    async def work() -> None:
        labels = ({"metadata": {"annotations": {"n": f"{turn}-{number}"}}} for number in range(writes))
        bodies = (_encoded(each) for each in labels)
        paths = (f"{path}/p{number % _SHARED}" for number in range(writes))
        await client.send_all(
            (Request("PATCH", where, body, _MERGE) for where, body in zip(paths, bodies, strict=True)), 4
        )
        await _until(protocols, watchers * (_SHARED + writes))

    figures = await _measured(server, watchers * writes, work)
    for protocol in protocols:
        assert protocol.transport is not None
        protocol.transport.abort()
    return figures


async def _fill(client: Requests, listed: int) -> None:
    definition = next(each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "NodeMetric")
    await client.send(_created("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition))
    for namespace in ("many", "watched"):
        await client.send(_created("/api/v1/namespaces", {"metadata": {"name": namespace}}))
    await client.send_all((_created(_pods("many"), _pod(f"p{number}")) for number in range(listed)), _FILLING)
    await client.send_all(_created(_pods("watched"), _pod(f"p{number}")) for number in range(_SHARED))
    await _until_served(client)
    await client.send_all(_created(_METRICS, _metric(number)) for number in range(_SHARED))


async def _until_served(client: Requests) -> None:
    """A kind is served some time after its definition is stored."""
    for _ in range(200):
        try:
            return await client.send(Request("GET", _METRICS))
        except RuntimeError:
            await asyncio.sleep(0.1)
    raise RuntimeError("the custom resources are not served")


async def _compare(servers: Mapping[str, Server], options: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """Case -> server -> its figures in each round."""
    clients = {name: Requests(server) for name, server in servers.items()}
    found: dict[str, dict[str, list[Figures]]] = {case: {name: [] for name in servers} for case in (*CASES, WATCH)}
    for client in clients.values():
        await _fill(client, options.listed)
    for turn in range(options.rounds + 1):
        for case, by_server in found.items():
            # Who is first changes from round to round; the first round warms up.
            for name in sorted(servers, reverse=bool(turn % 2)):
                figures = await _figures(servers[name], clients[name], case, turn, options)
                if turn:
                    by_server[name].append(figures)
    for client in clients.values():
        await client.close()
    return found


async def _figures(server: Server, client: Requests, case: str, turn: int, options: argparse.Namespace) -> Figures:
    if case == WATCH:
        return await _watched(server, client, options.watchers, max(8, options.requests // 2), turn)
    count = max(1, options.requests // _LISTS_EACH) if case == _LIST else options.requests
    return await _sent(server, client, case, count, turn)


def compared(case: str, by_server: Mapping[str, Sequence[Figures]]) -> Document:
    """The medians, and those of the ratios of each round."""
    line: Document = {"benchmark": "api_requests", "case": case}
    for name, rounds in by_server.items():
        line[name] = {
            "per_second": median(each.per_second for each in rounds),
            "cpu_microseconds": median(each.cpu_microseconds for each in rounds),
        }
    if RIVAL in by_server and EMBEDDED in by_server:
        pairs = list(zip(by_server[EMBEDDED], by_server[RIVAL], strict=True))
        line["ratio_per_second"] = round(median(ours.per_second / other.per_second for ours, other in pairs), 2)
        line["ratio_cpu"] = round(median(other.cpu_microseconds / ours.cpu_microseconds for ours, other in pairs), 2)
    return line


async def _large(server: Server, nodes: int, pods: int) -> Document:
    """What a cluster of that size takes of memory at its most, and the CPU time of a list of its pods."""
    client = Requests(server)
    await client.send_all((_created("/api/v1/nodes", node(number)) for number in range(nodes)), _FILLING)
    await client.send_all((_created(_pods("default"), _running(number, nodes)) for number in range(pods)), _FILLING)
    listed = await _measured(server, 1, lambda: client.send(Request("GET", "/api/v1/pods")))
    await client.close()
    return {"peak_mebibytes": round(server.peak_bytes() / 2**20), "list_cpu_microseconds": listed.cpu_microseconds}


def _running(number: int, nodes: int) -> Document:
    pod = _pod(f"p{number}")
    return {**pod, "spec": {**pod["spec"], "nodeName": f"node-{number % nodes:05d}"}}


def _print(line: Document) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api_requests", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=500, help="of a case in a round (default: %(default)s)")
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--listed", type=int, default=_LISTED, help="pods in a list (default: %(default)s)")
    parser.add_argument("--only", choices=STARTS, help="measure one server alone")
    parser.add_argument(
        "--large", action="store_true", help="the memory of 5,000 nodes and 50,000 pods, and no requests"
    )
    options = parser.parse_args(arguments)
    names = [options.only] if options.only else list(STARTS)
    with ExitStack() as stack:
        servers = {}
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers[name] = stack.enter_context(STARTS[name](folder))
        ready = {name: round(server.ready_seconds, 2) for name, server in servers.items()}
        _print({"benchmark": "api_requests", "case": "ready", "seconds": ready})
        if options.large:
            large = {name: uvloop.run(_large(server, _NODES, _PODS)) for name, server in servers.items()}
            _print({"benchmark": "api_requests", "case": "5,000 nodes and 50,000 pods", **large})
            return 0
        for case, by_server in uvloop.run(_compare(servers, options)).items():
            _print(compared(case, by_server))
    return 0


if __name__ == "__main__":
    sys.exit(main())
