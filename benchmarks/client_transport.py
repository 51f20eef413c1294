"""CPU of a small POST on our own connections and on aiohttp's, against a trivial server on loopback.

This is what binding a pod costs besides the decision. The server is a process of its own, so that only the client's CPU
is counted; the two transports take turns, so that the machine's moods hit both.

usage: python -m benchmarks.client_transport [--requests 5000] [--rounds 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Sequence

import uvloop
from aiohttp import web

from koordinator.kube.aiohttp_transport import AiohttpTransport
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint, Transport

_CONCURRENCY = 50
_BODY = json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pod"}, "target": {"name": "node"}})
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "benchmark"}


def serve(listener: socket.socket) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    application = web.Application()
    application.router.add_post("/{path:.*}", answer)
    uvloop.install()
    web.run_app(application, sock=listener, print=lambda *_: None, access_log=None)


async def cpu_of(transport: Transport, requests: int) -> float:
    """Microseconds of this process's CPU for one request."""
    numbers = iter(range(requests))

    async def worker() -> None:
        for _ in numbers:
            response = await transport.request("POST", "/bind", _HEADERS, _BODY.encode())
            assert response.status == 201

    before = time.process_time()
    await asyncio.gather(*(worker() for _ in range(_CONCURRENCY)))
    return (time.process_time() - before) * 1e6 / requests


async def measure(port: int, requests: int, rounds: int) -> dict[str, float]:
    endpoint = Endpoint(f"http://127.0.0.1:{port}")
    transports: dict[str, Transport] = {
        "ours": PooledTransport(endpoint, None, time.monotonic, max_connections=_CONCURRENCY),
        "aiohttp": AiohttpTransport(endpoint, max_connections=_CONCURRENCY),
    }
    try:
        figures: dict[str, list[float]] = {name: [] for name in transports}
        for transport in transports.values():
            await cpu_of(transport, requests // 10)
        for _ in range(rounds):
            for name, transport in transports.items():
                figures[name].append(await cpu_of(transport, requests))
        return {name: statistics.median(values) for name, values in figures.items()}
    finally:
        for transport in transports.values():
            await transport.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args(arguments)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
        server.start()
        try:
            figures = uvloop.run(measure(listener.getsockname()[1], options.requests, options.rounds))
        finally:
            server.terminate()
            server.join()
    report = {f"{name}_cpu_microseconds": round(value, 1) for name, value in figures.items()}
    print(
        json.dumps({"benchmark": "client_transport", **report, "ratio": round(figures["ours"] / figures["aiohttp"], 3)})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
