"""Containers that a kubelet would start and end through koord-runtime-proxy, one after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.soak_churn import Ledger
from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import GrpcError
from tests.real.cri_fuzz import encode

_SERVICE: Final = "/runtime.v1.RuntimeService"
_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.3
_IMAGE: Final = "pause"


class ContainerChurn:
    """``run`` goes on until ``stop`` is set. A call that the proxy's end has broken is made again, as by kubelet."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._client = GrpcClient(socket)
        self.ledger = Ledger(created=Counter())

    async def run(self, stop: asyncio.Event, pause: float) -> None:
        while not stop.is_set():
            self.ledger.started += 1
            name = f"containers-{self.ledger.started}"
            try:
                await self._live(name)
                self.ledger.completed += 1
            except TimeoutError:
                self.ledger.lost.append(f"{name}: a call did not succeed within {_SECONDS:.0f} s")
            await asyncio.sleep(pause)
        self._client.close()

    async def _live(self, name: str) -> None:
        """A pod with one container, from its sandbox to its removal."""
        pod = {1: {1: name, 2: name, 3: "soak"}, 8: {1: f"/soak/{name}", 2: {1: {1: 2}}}}
        answer = await self._call("RunPodSandbox", encode({1: pod}))
        sandbox = cri.RunPodSandboxResponse.FromString(answer).pod_sandbox_id
        container = {1: {1: "main"}, 2: {1: _IMAGE}, 3: ["sleep", "1000"], 15: {1: {3: 100}}}
        answer = await self._call("CreateContainer", encode({1: sandbox, 2: container, 3: pod}))
        identity = cri.CreateContainerResponse.FromString(answer).container_id
        self.ledger.created["container"] += 1
        for method, named in (
            ("StartContainer", identity),
            ("StopContainer", identity),
            ("RemoveContainer", identity),
            ("StopPodSandbox", sandbox),
            ("RemovePodSandbox", sandbox),
        ):
            await self._call(method, encode({1: named}))

    async def _call(self, method: str, message: bytes) -> bytes:
        async with asyncio.timeout(_SECONDS):
            while True:
                try:
                    return await self._client.unary(f"{_SERVICE}/{method}", message, _CALL_SECONDS)
                except (GrpcError, OSError):
                    self.ledger.outcomes["calls made again"] += 1
                    await asyncio.sleep(_RETRY_SECONDS)
