"""Clients for tests, and a clock for them that never makes anyone wait."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from koordinator.base.clock import ManualClock
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect

T = TypeVar("T")
# Nothing here waits on purpose; a test that takes this long hangs.
_HANG_SECONDS = 20.0


class ImpatientClock(ManualClock):
    """Sleeping takes no time but moves the clock; ``naps`` has what was slept.

    Only time limits and deadlines, which are there for what does not end, wait for ``advance``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name() in ("time-limits", "deadline"):
            await super().sleep(seconds)
            return
        self.naps.append(seconds)
        self._move_to(self.monotonic() + seconds)


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[KubeClient]:
    """A client of ``url`` without any configuration, closed at the end."""
    options = {"clock": ImpatientClock(), "random": random.Random(1), "environment": {}, **options}
    client = await connect(ClientOptions(master=url, **options))
    try:
        yield client
    finally:
        await client.close()


async def client_with(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], **options: Any) -> KubeClient:
    """A client of a kubeconfig with one cluster and one user, written to ``tmp_path``."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return await connect(
        ClientOptions(kubeconfig=str(path), **{"clock": ImpatientClock(), "environment": {}, **options})
    )


def base64(data: bytes) -> str:
    """As kubeconfigs hold certificates and keys."""
    return b64encode(data).decode()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine to its end, or fail."""

    async def bounded() -> T:
        async with asyncio.timeout(_HANG_SECONDS):
            return await work

    return asyncio.run(bounded())
