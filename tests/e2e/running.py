"""``koord up`` and ``koord demo`` as a person starts them, for tests that look at what they run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from tests.free_ports import free_ports
from tests.waiting import once

T = TypeVar("T")


_CLAIMS = 17
"""Of the demonstration."""


@dataclass(frozen=True)
class Up:
    """A running cluster."""

    process: asyncio.subprocess.Process
    kubeconfig: Path
    data: Path
    scheduler_port: int
    output: list[str]

    async def client(self) -> KubeClient:
        return await connect(ClientOptions(kubeconfig=str(self.kubeconfig)))


class Kubectl:
    """kubectl with the kubeconfig of the cluster."""

    def __init__(self, up: Up) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(up.kubeconfig)}

    async def __call__(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {output.decode()}"
        return output.decode()

    async def status(self, resource: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self("get", resource, "-o=json"))["status"]
        return found


async def start_koord_up(data: Path, *arguments: str, port: int = 0) -> asyncio.subprocess.Process:
    """Start it on free ports, but for ``port`` of the API."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "koordinator.cli.main", "up", f"--data={data}", "--free-ports", f"--port={port}", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@asynccontextmanager
async def koord_up(data: Path, *arguments: str, port: int = 0) -> AsyncIterator[Up]:
    """Start it, wait until it says that the cluster is up, interrupt it at the end."""
    (scheduler_port,) = free_ports(1)
    process = await start_koord_up(data, f"--scheduler-port={scheduler_port}", *arguments, port=port)
    output: list[str] = []
    try:
        async with asyncio.timeout(60):
            await _said(process, output, "The cluster is up")
        yield Up(process, data / "kubeconfig", data, scheduler_port, output)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def _said(process: asyncio.subprocess.Process, output: list[str], text: str) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        output.append(line.decode())
        if text in output[-1]:
            return
    raise AssertionError("koord up ended early:\n" + "".join(output))


async def eventually(client: KubeClient, name: str, holds: Callable[[Pod], bool], what: str) -> Pod:
    """The pod of namespace default once ``holds``."""
    return await once(client, PODS, lambda pod: pod.metadata.name == name and holds(pod), "default", what)


def plain_pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that names no scheduler."""
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def play_demo(folder: Path) -> str:
    """The report of a whole day of ``koord demo``, all of whose claims have to hold."""
    command = [sys.executable, "-m", "koordinator.cli.main", "demo", f"--data={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("✓") == _CLAIMS
    assert "✗" not in done.stdout
    return done.stdout
