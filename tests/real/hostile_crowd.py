"""A crowd of hostile clients as a process of its own: ``python -m tests.real.hostile_crowd`` reads what it shall do.

Its standard input has one JSON document per server; the crowd is complete when it says so, and ends with its input. Who
is thrown out comes back, a hundred of them a second.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.real_world.hostile_clients import HOSTILE_CLIENTS, Held, HostileClient, Target

_AT_ONCE = 50
_ROUND_SECONDS = 0.5
_KINDS = {client.name: client for client in HOSTILE_CLIENTS}


@dataclass(frozen=True)
class Victim:
    """A server, and how many of each kind come to it."""

    port: int
    request: bytes
    is_tls: bool
    clients: Mapping[str, int]


@contextmanager
def hostile_crowd(*victims: Victim) -> Iterator[None]:
    """While this lasts, they are attacked."""
    documents = [
        {"port": each.port, "request": each.request.decode(), "tls": each.is_tls, "clients": dict(each.clients)}
        for each in victims
    ]
    command = [sys.executable, "-m", "tests.real.hostile_crowd"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(documents).encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"complete\n"
            yield
        finally:
            process.stdin.close()
            process.wait(20)


class _Member:
    """One client, which comes back when it is thrown out."""

    def __init__(self, kind: HostileClient, target: Target) -> None:
        self._kind = kind
        self._target = target
        self._held: Held | None = None

    @property
    def is_out(self) -> bool:
        return self._held is None or _is_out(self._held)

    async def go_on(self) -> None:
        if self._held is not None:
            await self._held.go_on()

    async def come(self) -> None:
        self.end()
        try:
            async with asyncio.timeout(10):
                self._held = await self._kind.begin(self._target)
        except (OSError, TimeoutError):
            self._held = None

    def end(self) -> None:
        if self._held is not None:
            self._held.end()


def _is_out(held: Held) -> bool:
    if held.writer is not None:
        return held.writer.is_closing()
    try:
        return held.plain.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def _attack(members: list[_Member]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(member: _Member) -> None:
        async with gate:
            await member.come()

    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    await asyncio.gather(*map(one, members))
    sys.stdout.write("complete\n")
    sys.stdout.flush()
    while not ended.done():
        out = [member for member in members if member.is_out]
        await asyncio.gather(*map(one, out[:_AT_ONCE]))
        for member in members:
            await member.go_on()
        await asyncio.wait((ended,), timeout=_ROUND_SECONDS)
    for member in members:
        member.end()


def _main() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    members = []
    for victim in json.loads(sys.stdin.readline()):
        request = victim["request"].encode()
        target = Target("127.0.0.1", victim["port"], request, tls if victim["tls"] else None)
        members += [_Member(_KINDS[name], target) for name, count in victim["clients"].items() for _ in range(count)]
    asyncio.run(_attack(members))


if __name__ == "__main__":
    _main()
