"""Clusters that are filled once and then started afresh from a copy of etcd's data, as often as wanted.

Writing 5,000 nodes and 50,000 pods takes a minute; a copy takes a second, and every contender starts from exactly the
same objects.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import pod_mixes, workload
from benchmarks.cases import Case
from benchmarks.control_planes import started
from benchmarks.pod_mixes import Document
from koordinator.api.kinds import ELASTIC_QUOTAS, NODE_METRICS, POD_GROUPS, RESERVATIONS, Kind
from koordinator.api.priority import PriorityClass
from koordinator.kube.interface import Client, PatchType
from tests.real.control_plane import ControlPlane

RUNNING_NAMESPACE = "running"
_BATCH_PRIORITY = 5000
_DATA = "etcd-data"
_READY_SECONDS = 600.0
"""For an API server that finds a hundred thousand objects on a busy machine."""
Fill = Callable[[ControlPlane, Client], Awaitable[None]]


class StoredClusters:
    """``folder`` holds everything and may be deleted at the end."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder

    @asynccontextmanager
    async def started(self, case: Case) -> AsyncIterator[tuple[ControlPlane, Client]]:
        """A fresh control plane with the nodes and running pods of the case, and a client of it."""
        async with self.started_from(await self._with_running(case)) as started_plane:
            yield started_plane

    @asynccontextmanager
    async def started_from(self, stored: Path) -> AsyncIterator[tuple[ControlPlane, Client]]:
        """A fresh control plane with what ``stored`` has returned, and a client of it."""
        folder = self._folder / "fresh"
        await self._copy(stored, folder)
        try:
            async with self._plane(folder) as (plane, client):
                yield plane, client
        finally:
            await asyncio.to_thread(shutil.rmtree, folder)

    async def _with_running(self, case: Case) -> Path:
        nodes = await self.stored(f"{case.nodes}-nodes", None, lambda _, client: _fill(client, case.nodes))
        quotas = case.quotas
        if quotas is not None:
            nodes = await self.stored(
                f"{case.name}-quotas", nodes, lambda _, client: _set(client, ELASTIC_QUOTAS, quotas())
            )
        pod_groups = case.pod_groups
        if pod_groups is not None:
            nodes = await self.stored(
                f"{case.name}-groups", nodes, lambda _, client: _set(client, POD_GROUPS, pod_groups())
            )
        reservations = case.reservations
        if reservations is not None:
            nodes = await self.stored(
                f"{case.name}-reservations", nodes, lambda _, client: _reserve(client, reservations())
            )
        if not case.running:
            return nodes
        name = f"{case.nodes}-nodes-{case.running}-pods"
        return await self.stored(name, nodes, lambda _, client: _run(client, case.running, case.nodes))

    async def stored(self, name: str, base: Path | None, fill: Fill) -> Path:
        """The data of a control plane that ``fill`` has filled, upon that of ``base``; made once for each name."""
        folder, unfinished = self._folder / name, self._folder / f"{name}-unfinished"
        if not folder.exists():
            try:
                if base is not None:
                    await self._copy(base, unfinished)
                async with self._plane(unfinished) as (plane, client):
                    await fill(plane, client)
                unfinished.rename(folder)
            finally:
                await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
        return folder

    async def _copy(self, source: Path, target: Path) -> None:
        await asyncio.to_thread(shutil.copytree, source / _DATA, target / _DATA)

    @asynccontextmanager
    async def _plane(self, folder: Path) -> AsyncIterator[tuple[ControlPlane, Client]]:
        plane = ControlPlane(self._programs, folder, ready_seconds=_READY_SECONDS)
        async with started(plane) as client:
            yield plane, client


async def _fill(client: Client, nodes: int) -> None:
    await workload.install_definitions(client)
    await workload.create_namespace(client, RUNNING_NAMESPACE)
    await workload.create_priority_class(client, PriorityClass.BATCH.value, _BATCH_PRIORITY)
    await workload.create_nodes(client, nodes, NODE_METRICS)


async def _run(client: Client, pods: int, nodes: int) -> None:
    await workload.create_pods(client, pod_mixes.running(pods, nodes), RUNNING_NAMESPACE)


async def _set(client: Client, kind: Kind[Any], documents: Sequence[Document]) -> None:
    for document in documents:
        await workload.create(client, kind, document, "default")


async def _reserve(client: Client, documents: Sequence[Document]) -> None:
    for document in documents:
        created = {key: value for key, value in document.items() if key != "status"}
        await workload.create(client, RESERVATIONS, created)
        await client.patch(
            RESERVATIONS,
            document["metadata"]["name"],
            {"status": document["status"]},
            PatchType.MERGE,
            subresource="status",
        )
