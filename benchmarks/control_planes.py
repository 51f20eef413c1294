"""A real control plane that is thrown away after use, with a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client
from tests.real.control_plane import ControlPlane


@asynccontextmanager
async def started(plane: ControlPlane) -> AsyncIterator[Client]:
    """Start it, and stop it at the end. What was answered is in etcd by then: the API server is not waited for."""
    await asyncio.to_thread(plane.start)
    try:
        client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig)))
        try:
            yield client
        finally:
            await client.close()
    finally:
        plane.kill_api_server()
        await asyncio.to_thread(plane.stop)
