"""What a change costs an API server that many clients watch: a patch of a pod, sent to all of them.

The server is a process of its own; with ``--rival`` kube-apiserver is measured in the same way in the same run. The
writers go on when their patches are answered, and the figures are the server's CPU microseconds for an event that a
watcher has got, and the events of a second. On a busy machine the first says more than the second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final, cast

import aiohttp
import uvloop
import yaml

from benchmarks.process_usage import usage_of
from tests.real.control_plane import TOKEN, ControlPlane
from tests.real.programs import HOW_TO_GET, find_real_programs

_PODS: Final = "/api/v1/namespaces/default/pods"
_OBJECTS: Final = 20
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_EVENT: Final = b'{"type":"'
_TURN_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str
    process_id: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class Watcher(asyncio.Protocol):
    """Counts events without reading them: what a client does with one is not the server's cost."""

    def __init__(self, server: Server) -> None:
        head = f"GET {_PODS}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n"
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


def _pod(number: int) -> dict[str, Any]:
    environment = [{"name": f"VARIABLE_{each}", "value": "v" * 20} for each in range(10)]
    container = {"name": "main", "image": "registry.example/app:v1", "env": environment}
    return {"metadata": {"name": f"p{number}", "labels": {"app": "x"}}, "spec": {"containers": [container]}}


async def _measure(server: Server, watchers: int, writes: int) -> dict[str, float]:
    context = ssl._create_unverified_context()
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        for number in range(_OBJECTS):
            async with session.post(_PODS, json=_pod(number)) as response:
                response.raise_for_status()
        protocols = [Watcher(server) for _ in range(watchers)]
        loop = asyncio.get_running_loop()
        for protocol in protocols:
            await loop.create_connection(partial(_same, protocol), "127.0.0.1", server.port, ssl=context)
        await _until(protocols, watchers * _OBJECTS)
        before, started = usage_of(server.process_id).cpu_seconds, time.monotonic()
        await asyncio.gather(*(_write(session, first, writes) for first in range(4)))
        await _until(protocols, watchers * (_OBJECTS + writes))
        seconds, used = time.monotonic() - started, usage_of(server.process_id).cpu_seconds - before
        for protocol in protocols:
            assert protocol.transport is not None
            protocol.transport.abort()
    events = watchers * writes
    return {"cpu_per_event": round(used / events * 1e6, 1), "events_per_second": round(events / seconds)}


async def _write(session: aiohttp.ClientSession, first: int, writes: int) -> None:
    for number in range(first, writes, 4):
        body = json.dumps({"metadata": {"annotations": {"n": str(number)}}})
        async with session.patch(f"{_PODS}/p{number % _OBJECTS}", data=body, headers=_MERGE) as response:
            response.raise_for_status()


async def _until(watchers: Sequence[Watcher], events: int) -> None:
    # A look now and then costs less than to be told of each event.
    while sum(watcher.events for watcher in watchers) < events:  # noqa: ASYNC110
        await asyncio.sleep(_TURN_SECONDS)


@contextmanager
def _embedded(folder: Path) -> Iterator[Server]:
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "koordinator.cluster", f"--data={folder / 'data'}", f"--kubeconfig={kubeconfig}"]
    with Popen(command, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            process.stderr.readline()
            access = yaml.safe_load(kubeconfig.read_text())
            url = access["clusters"][0]["cluster"]["server"]
            yield Server(url, access["users"][0]["user"]["token"], process.pid)
        finally:
            process.terminate()


@contextmanager
def _real(folder: Path) -> Iterator[Server]:
    programs = find_real_programs()
    if programs is None:
        raise SystemExit(HOW_TO_GET)
    plane = ControlPlane(programs.kubernetes, folder)
    plane.start()
    try:
        yield Server(plane.url, TOKEN, plane.api_server_process)
    finally:
        plane.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watch_fanout", description=__doc__)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--writes", type=int, default=1_000)
    parser.add_argument("--rival", action="store_true", help="measure kube-apiserver, too")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"benchmark": "watch_fanout", "watchers": options.watchers, "writes": options.writes}
    for name, start in (("embedded", _embedded), ("kube-apiserver", _real)):
        if name == "embedded" or options.rival:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                server = stack.enter_context(start(folder))
                report[name] = uvloop.run(_measure(server, options.watchers, options.writes))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
