"""CPU of what is requested of an API server for each pod, against a trivial server with TLS on loopback.

A small POST on our own connections and on aiohttp's; and, with all that the client does above its connections, a
binding and an event from its recording to its response. ``reprieve`` is what the event loop and TLS cost for the same
bytes when nothing is done with them. The server is a process of its own, so that only the client's CPU is counted; the
cases take turns and the best round of each counts, so that the machine's moods hit none.

usage: python -m benchmarks.client_transport [--requests 1000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, cast

import aiohttp
import uvloop
import yaml

from koordinator.api.kinds import PODS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.base.clock import SystemClock
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint
from koordinator.scheduler.binding.binding_cycle import PodBinding
from koordinator.scheduler.cycle.failure_report import PodEvents
from tests.kube.certificates import Authority

_CONCURRENCY: Final = 32
_HOST: Final = "127.0.0.1"
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "benchmark"}
_PROFILE: Final = "koord-scheduler"
# What an API server sends with its responses.
_RESPONSE_HEAD: Final = (
    b"HTTP/1.1 201 Created\r\nAudit-Id: 0f1a7a3e-6c2c-4d5b-9a4e-6f1f0b7f8a11\r\nCache-Control: no-cache, private\r\n"
    b"Content-Type: application/json\r\nX-Kubernetes-Pf-Flowschema-Uid: 5d1d8b0e-1c5e-4d0e-8a52-0c6d0a0b7a44\r\n"
    b"X-Kubernetes-Pf-Prioritylevel-Uid: 1a0d7a35-6f55-4a64-8a3c-7b4f2f6f2f11\r\n"
    b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n"
)
_STATUS: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'

Case = Callable[[list[Pod]], Awaitable[None]]
"""Sends a request for each of the pods."""


class Responder(asyncio.Protocol):
    """Answers an event with itself and everything else with a Status."""

    def __init__(self) -> None:
        self._arrived = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        head, end, body = self._arrived.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        self._arrived = b""
        response = body if b'"kind":"Event"' in body else _STATUS
        assert self._transport is not None
        self._transport.write(_RESPONSE_HEAD % len(response) + response)


def serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Responder, sock=listener, ssl=context)
        await server.serve_forever()

    uvloop.run(run())


class Echo(asyncio.Protocol):
    """The least that can be done for a request: write bytes, and be told that bytes came."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._waiter is not None
        self._waiter.set_result(None)

    def send(self, request: bytes) -> asyncio.Future[None]:
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiter

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()


async def least_case(port: int, context: ssl.SSLContext) -> tuple[Case, list[Echo]]:
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(Echo, _HOST, port, ssl=context, server_hostname=_HOST))[1]
        for _ in range(_CONCURRENCY)
    ]
    body = PodBinding("default", "pod", "uid", "node-1").body()
    head = "".join(f"{name}: {value}\r\n" for name, value in {**_HEADERS, "Content-Length": len(body)}.items())
    message = f"POST /bind HTTP/1.1\r\nHost: {_HOST}\r\n{head}\r\n".encode() + body

    async def run(pods: list[Pod]) -> None:
        left = iter(pods)

        async def worker(connection: Echo) -> None:
            for _ in left:
                await connection.send(message)

        await asyncio.gather(*map(worker, connections))

    return run, connections


Post = Callable[[bytes], Awaitable[int]]
"""Sends a body and returns the status."""


def our_post(transport: PooledTransport) -> Post:
    async def post(body: bytes) -> int:
        return (await transport.request("POST", "/bind", _HEADERS, body, give_up_at=time.monotonic() + 60)).status

    return post


def aiohttp_post(session: aiohttp.ClientSession, url: str, context: ssl.SSLContext) -> Post:
    async def post(body: bytes) -> int:
        async with session.post(url, data=body, headers=_HEADERS, ssl=context) as response:
            await response.read()
            return response.status

    return post


def post_case(post: Post) -> Case:
    async def run(pods: list[Pod]) -> None:
        left = iter(pods)
        body = PodBinding("default", "pod", "uid", "node-1").body()

        async def worker() -> None:
            for _ in left:
                assert await post(body) == 201

        await asyncio.gather(*(worker() for _ in range(_CONCURRENCY)))

    return run


def binding_case(client: KubeClient) -> Case:
    async def run(pods: list[Pod]) -> None:
        left = iter(pods)

        async def worker() -> None:
            for pod in left:
                metadata = pod.metadata
                body = PodBinding(metadata.namespace, metadata.name, metadata.uid, "node-1").body()
                await client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")

        await asyncio.gather(*(worker() for _ in range(_CONCURRENCY)))

    return run


def event_case(broadcaster: EventBroadcaster) -> Case:
    events = PodEvents(broadcaster, [_PROFILE])

    async def run(pods: list[Pod]) -> None:
        for pod in pods:
            note = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to node-1"
            events.pod_event(pod, "Normal", "Scheduled", "Binding", note)
        unwritten = await broadcaster.flush(60)
        assert not unwritten

    return run


_made = iter(range(1 << 62))


def make_pods(count: int) -> list[Pod]:
    """Pods that were never there before: an event that repeats is not written again."""
    return [
        Pod(
            metadata=ObjectMeta(name=f"pod-{next(_made)}", namespace="default", uid="0f1a7a3e", resource_version="7"),
            spec=PodSpec(scheduler_name=_PROFILE),
        )
        for _ in range(count)
    ]


async def measure(port: int, authority: Authority, folder: Path, requests: int, rounds: int) -> dict[str, float]:
    """Microseconds of this process's CPU for one request, by case."""
    clock = SystemClock()
    limits = TimeLimits(clock)
    context = ssl.create_default_context(cadata=authority.pem.decode())
    endpoint = Endpoint(f"https://{_HOST}:{port}")
    ours = PooledTransport(endpoint, context, clock, limits, max_connections=_CONCURRENCY)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_CONCURRENCY),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )
    client = await connect(ClientOptions(kubeconfig=str(write_kubeconfig(folder, endpoint.url, authority))))
    broadcaster = EventBroadcaster(client, instance="benchmark", clock=clock, random=Random(1))
    least, connections = await least_case(port, context)
    cases = {
        "least": least,
        "ours": post_case(our_post(ours)),
        "aiohttp": post_case(aiohttp_post(session, f"{endpoint.url}/bind", context)),
        "binding": binding_case(client),
        "event": event_case(broadcaster),
    }
    writing = asyncio.create_task(broadcaster.run(), name="events")
    try:
        for case in cases.values():
            await case(make_pods(requests))
        return {name: min(figures) for name, figures in (await take_turns(cases, requests, rounds)).items()}
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        for closing in (ours, session, client, limits):
            await closing.close()
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)


async def take_turns(cases: dict[str, Case], requests: int, rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            pods = make_pods(requests)
            before = time.process_time()
            await case(pods)
            figures[name].append((time.process_time() - before) * 1e6 / requests)
    return figures


def write_kubeconfig(folder: Path, url: str, authority: Authority) -> Path:
    ca, path = folder / "ca.crt", folder / "kubeconfig"
    ca.write_bytes(authority.pem)
    document = {
        "current-context": "benchmark",
        "clusters": [{"name": "benchmark", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "benchmark", "user": {"token": "none"}}],
        "contexts": [{"name": "benchmark", "context": {"cluster": "benchmark", "user": "benchmark"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def server_of(authority: Authority, folder: Path) -> Iterator[int]:
    """A server in a process of its own; its port."""
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        listener.listen(1024)
        arguments = (listener, authority.server_context(folder))
        server = multiprocessing.get_context("fork").Process(target=serve, args=arguments, daemon=True)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.terminate()
            server.join()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    authority = Authority()
    with tempfile.TemporaryDirectory() as folder, server_of(authority, Path(folder)) as port:
        figures = uvloop.run(measure(port, authority, Path(folder), options.requests, options.rounds))
    report = {f"{name}_cpu_microseconds": round(value, 1) for name, value in figures.items()}
    print(
        json.dumps({"benchmark": "client_transport", **report, "ratio": round(figures["ours"] / figures["aiohttp"], 3)})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
