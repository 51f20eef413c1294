"""Runs the operations of a workload against an API server, one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Final, Protocol

from benchmarks.process_usage import Usage
from benchmarks.scheduler_perf import background
from benchmarks.scheduler_perf.creation import Creator
from benchmarks.scheduler_perf.measurement import Measurement, MetricsCollection
from benchmarks.scheduler_perf.operations import (
    AnyOperation,
    Barrier,
    Churn,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreatePods,
    DeletePods,
    Sleep,
    Stage,
    StartCollectingMetrics,
    StopCollectingMetrics,
    UpdateAny,
)
from benchmarks.scheduler_perf.pod_tracker import Key, PodTracker, selected
from benchmarks.scheduler_perf.templates import Templates
from benchmarks.scheduler_perf.updates import update_any
from koordinator.base.durations import parse_duration
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client

_QUIET_LIMIT: Final = 5.0
"""CPU is counted from rest to rest; seconds that the scheduler is given to come to it."""


class Created(Enum):
    """When the pods whose metrics are collected are created."""

    BEFORE = "before"
    """While the scheduler stands still: the rate is the scheduler's."""
    DURING = "during"
    """While it schedules, as scheduler_perf does it: the rate can be that of the creation."""


class Scheduler(Protocol):
    """The process that is measured."""

    def usage(self) -> Usage: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def until_quiet(self, limit: float) -> None: ...


class Executor:
    """``limit``: seconds that one operation may wait for pods. ``tasks`` runs what goes on in the background."""

    def __init__(
        self,
        client: Client,
        templates: Templates,
        default_pod: str | None,
        tracker: PodTracker,
        scheduler: Scheduler,
        tasks: asyncio.TaskGroup,
        limit: float,
        created: Created = Created.BEFORE,
    ) -> None:
        self._client = client
        self._templates = templates
        self._creator = Creator(client, templates, default_pod)
        self._tracker = tracker
        self._scheduler = scheduler
        self._tasks = tasks
        self._limit = limit
        self._created = created
        self._collection: MetricsCollection | None = None
        self._left_behind: dict[str, dict[Key, Mapping[str, str]]] = {}
        """Namespace -> pods that no operation has waited for, with their labels; barriers do."""
        self.background: list[asyncio.Task[None]] = []
        self.must_be_bound: list[Key] = []
        self.measurements: list[Measurement] = []

    async def run(self, operations: Sequence[AnyOperation]) -> None:
        """Raises KoordinatorError that says which operation went wrong."""
        for number, operation in enumerate(operations):
            try:
                await self._run(operation, number)
            except KoordinatorError as error:
                name = type(operation).__struct_config__.tag
                raise KoordinatorError(f"operation {number} ({name}): {error}") from error

    async def _run(self, operation: AnyOperation, number: int) -> None:
        match operation:
            case CreateNodes():
                await self._creator.nodes(operation, number)
            case CreateNamespaces():
                await self._creator.namespaces(operation)
            case CreatePods():
                await self._create_pods(operation, operation.namespace or f"namespace-{number}")
            case CreateAny():
                await self._creator.any(operation)
            case UpdateAny():
                template = self._templates.at(operation.template_path)
                await update_any(self._client, operation, template, asyncio.sleep)
            case DeletePods():
                await self._delete_pods(operation)
            case Churn():
                await self._churn(operation, operation.namespace or f"namespace-{number}")
            case Barrier():
                await self._barrier(operation)
            case Sleep():
                duration = parse_duration(operation.duration or "0s")
                await asyncio.sleep(duration / timedelta(seconds=1))
            case StartCollectingMetrics():
                await self._scheduler.until_quiet(_QUIET_LIMIT)
                self._start_collecting(operation.name, operation.namespaces, operation.label_selector)
            case StopCollectingMetrics():
                await self._stop_collecting()
            case _:
                raise KoordinatorError("not supported")

    async def _create_pods(self, operation: CreatePods, namespace: str) -> None:
        await self._creator.namespace(namespace)
        if operation.collect_metrics:
            return await self._measure_pods(operation, namespace)
        pods = await self._creator.pods(operation, namespace)
        if operation.skip_wait_to_completion:
            self._left_behind.setdefault(namespace, {}).update(pods)
            return None
        return await self._until_bound(pods)

    async def _measure_pods(self, operation: CreatePods, namespace: str) -> None:
        # What earlier pods have left to be done, such as writing events, is not these pods' cost.
        await self._scheduler.until_quiet(_QUIET_LIMIT)
        began = time.perf_counter()
        if self._created is Created.DURING:
            self._start_collecting(namespace, [namespace])
            pods = await self._creator.pods(operation, namespace)
            creation_seconds = time.perf_counter() - began
        else:
            self._scheduler.pause()
            pods = await self._creator.pods(operation, namespace)
            creation_seconds = time.perf_counter() - began
            self._start_collecting(namespace, [namespace])
            self._scheduler.resume()
        await self._until_bound(pods)
        await self._stop_collecting(creation_seconds)

    async def _until_bound(self, keys: Collection[Key]) -> None:
        await self._tracker.until_bound(keys, self._limit)
        self.must_be_bound += keys

    async def _delete_pods(self, operation: DeletePods) -> None:
        deletion = background.delete_pods(self._client, operation, asyncio.sleep)
        if operation.skip_wait_to_completion:
            self.background.append(self._tasks.create_task(deletion))
        else:
            await deletion

    async def _churn(self, operation: Churn, namespace: str) -> None:
        await self._creator.namespace(namespace)
        documents = [self._templates.at(path).document() for path in operation.template_paths]
        churn = background.churn(self._client, operation, documents, namespace, asyncio.sleep)
        self.background.append(self._tasks.create_task(churn))

    async def _barrier(self, operation: Barrier) -> None:
        namespaces = operation.namespaces or list(self._left_behind)
        unknown = [namespace for namespace in namespaces if namespace not in self._left_behind]
        if unknown:
            raise KoordinatorError(f"namespaces {unknown} have no pods that have not been waited for")
        keys = [
            key
            for namespace in namespaces
            for key, labels in self._left_behind[namespace].items()
            if selected(labels, operation.label_selector)
        ]
        if operation.stage_requirement is Stage.ATTEMPTED:
            await self._tracker.until_attempted(keys, self._limit)
            return
        await self._until_bound(keys)
        for namespace in namespaces:
            del self._left_behind[namespace]

    def _start_collecting(
        self, name: str, namespaces: Sequence[str], label_selector: Mapping[str, str] | None = None
    ) -> None:
        if self._collection is not None:
            raise KoordinatorError("metrics are being collected already")
        self._collection = MetricsCollection(
            name, frozenset(namespaces), label_selector, time.perf_counter(), self._scheduler.usage()
        )

    async def _stop_collecting(self, creation_seconds: float | None = None) -> None:
        if self._collection is None:
            raise KoordinatorError("metrics are not being collected")
        collection, self._collection = self._collection, None
        bindings = list(self._tracker.bindings.items())
        await self._scheduler.until_quiet(_QUIET_LIMIT)
        self.measurements.append(collection.finish(bindings, self._scheduler.usage(), creation_seconds))
