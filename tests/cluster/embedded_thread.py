"""The embedded API in a thread, for tests that are plain functions and for programs that run beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from koordinator.cluster.server import EmbeddedApi, ServerOptions


@contextmanager
def embedded_server(folder: Path, options: ServerOptions | None = None) -> Iterator[Path]:
    """The kubeconfig of a server in memory."""
    kubeconfig = folder / "kubeconfig"
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with EmbeddedApi(options) as api:
            api.write_kubeconfig(kubeconfig)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(20), "the embedded API did not start"
        yield kubeconfig
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
