from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.cluster.server import EmbeddedApi


@pytest.fixture
def embedded_kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Access to a server in memory that runs in a thread: for tests that drive other programs."""
    kubeconfig = tmp_path / "kubeconfig"
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with EmbeddedApi() as api:
            api.write_kubeconfig(kubeconfig)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(10)
    yield kubeconfig
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()
