"""``koord page`` as a process of its own, and what else a test of it needs: a cluster, and a way to it to be cut."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, ELASTIC_QUOTAS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.interface import PatchType

T = TypeVar("T")
Do = Callable[[KubeClient], Awaitable[T]]
_SECONDS: Final = 120


class Cluster:
    """What a kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def do(self, what: Do[T]) -> T:
        """What a coroutine returns that has a client of the cluster."""

        async def with_client() -> T:
            async with connected(ClientOptions(kubeconfig=str(self.kubeconfig))) as client:
                return await what(client)

        return asyncio.run(with_client())

    def install(self) -> None:
        """Create our custom resources."""

        async def create(client: KubeClient) -> None:
            for definition in custom_resource_definitions():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)

        self.do(create)

    def fill(self, objects: Iterable[tuple[Kind[Any], Mapping[str, Any]]]) -> None:
        """Create objects, with their status where they have one."""

        async def create(client: KubeClient) -> None:
            for kind, each in objects:
                metadata = each["metadata"]
                await client.create(kind, dict(each), metadata.get("namespace", ""))
                # That of a quota is no subresource, and is there already.
                if "status" in each and kind is not ELASTIC_QUOTAS:
                    status = {"status": each["status"]}
                    where = metadata["name"], status, PatchType.MERGE, metadata.get("namespace", "")
                    await client.patch(kind, *where, subresource="status")

        self.do(create)


@contextmanager
def embedded_cluster(folder: Path, options: ServerOptions | None = None) -> Iterator[Cluster]:
    """An embedded API server on a thread of its own, with our custom resources."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        api = EmbeddedApi(options)
        asyncio.run_coroutine_threadsafe(api.start(), loop).result(_SECONDS)
        try:
            api.write_kubeconfig(folder / "kubeconfig")
            cluster = Cluster(folder / "kubeconfig")
            cluster.install()
            yield cluster
        finally:
            asyncio.run_coroutine_threadsafe(api.stop(), loop).result(_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def koord_page(kubeconfig: Path, *words: str) -> Iterator[str]:
    """The link that it prints."""
    command = (sys.executable, "-m", "koordinator.cli.main", "page", f"--kubeconfig={kubeconfig}", *words)
    if "--sign-in" not in words:
        command += ("--no-browser",)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(word for word in printed_by(process, "://").split() if "://" in word)
        finally:
            process.kill()


def printed_by(process: subprocess.Popen[str], text: str) -> str:
    """The first line with a text that a process prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"{process.args!r} ended without {text!r}")
