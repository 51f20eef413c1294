"""koord-scheduler ends when it is told to, whatever it waits for: real processes, real signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from koordinator.api.kinds import LEASES
from koordinator.api.timestamps import format_micro_time
from koordinator.base.clock import SystemClock
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.connect import ClientOptions, connect
from tests.free_ports import free_ports

LONGEST = 8.0
"""Seconds. Much for a machine that is busy, and less than any deadline that one might have waited for: 10."""
ELECTED, ALONE = (), ("--leader-elect=false",)
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{token: t}}}}]
current-context: c
"""


@asynccontextmanager
async def nobody(folder: Path) -> AsyncIterator[Path]:
    """Nobody listens."""
    (port,) = free_ports(1)
    path = folder / "kubeconfig"
    path.write_text(_KUBECONFIG.format(server=f"http://127.0.0.1:{port}"))
    yield path


@asynccontextmanager
async def mute(folder: Path) -> AsyncIterator[Path]:
    """Connections are accepted, and that is all."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        path = folder / "kubeconfig"
        path.write_text(_KUBECONFIG.format(server=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        yield path


@asynccontextmanager
async def led_by_another(folder: Path) -> AsyncIterator[Path]:
    """The lease is held for an hour to come."""
    path = folder / "kubeconfig"
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(path)
        client = await connect(ClientOptions(kubeconfig=str(path)))
        now = format_micro_time(SystemClock().now())
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
        lease = {"metadata": {"name": "kube-scheduler", "namespace": "kube-system"}, "spec": spec}
        await client.create(LEASES, lease, "kube-system")
        await client.close()
        yield path


Server = Callable[[Path], AbstractAsyncContextManager[Path]]


async def until_said(process: asyncio.subprocess.Process, text: str) -> str:
    """What the program has said up to the line with ``text``."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = await process.stderr.readline()
        assert line, said
        said += line.decode()
    return said


async def stop(
    server: Server, folder: Path, options: tuple[str, ...], text: str, number: signal.Signals
) -> tuple[int, str]:
    """Exit status and what was said, of a program that gets the signal once it has said ``text``."""
    async with server(folder) as kubeconfig:
        (port,) = free_ports(1)
        command = [
            sys.executable,
            "-m",
            "koordinator.scheduler",
            f"--kubeconfig={kubeconfig}",
            f"--port={port}",
            *options,
        ]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            said = await until_said(process, text)
            process.send_signal(number)
            async with asyncio.timeout(LONGEST):
                _, rest = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode or 0, said + rest.decode()


@pytest.mark.parametrize(
    ("server", "options", "text", "number"),
    [
        (nobody, ELECTED, "attempting to acquire leader lease", signal.SIGINT),
        (nobody, ALONE, "cannot connect", signal.SIGTERM),
        (mute, ELECTED, "attempting to acquire leader lease", signal.SIGTERM),
        (mute, ALONE, "serving health and metrics", signal.SIGINT),
        (led_by_another, ELECTED, "the leader is another", signal.SIGINT),
    ],
    ids=["nobody, elected", "nobody, alone", "mute, elected", "mute, alone", "standby"],
)
def test_it_ends_when_it_is_told_to(
    server: Server, options: tuple[str, ...], text: str, number: signal.Signals, tmp_path: Path
) -> None:
    status, said = asyncio.run(stop(server, tmp_path, options, text, number))
    assert status == 0, said
    assert "Traceback" not in said
