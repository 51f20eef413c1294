"""koord-descheduler with every plugin and its controllers, among healthy pods and broken objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.kinds import (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    GENERIC_WORKLOADS,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
)
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.features import GATES
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer import Informer
from tests.descheduler.clusters import NOW, PLUGIN_ARGS, make_node, make_pod
from tests.fuzz.campaign import SLOTS, Case, Log, check_log, logged
from tests.in_memory_api import InMemoryApi

_LIMITS: Final = ("maxMigratingPerNode", "maxMigratingPerWorkload", "maxUnavailablePerWorkload")
_MIGRATION: Final = {
    **dict.fromkeys(_LIMITS, 12),
    "evictBurst": 99,
    "gangPolicy": "Whole",
    "objectLimiters": {"workload": {"duration": "0s"}},
}
_DESCHEDULE: Final = (
    *("PodLifeTime", "RemoveFailedPods", "RemovePodsHavingTooManyRestarts", "RemovePodsViolatingNodeAffinity"),
    *("RemovePodsViolatingNodeTaints", "RemovePodsViolatingInterPodAntiAffinity"),
)
_PROTECTED: Final = {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}}
_EVICTOR: Final = {
    "gangPolicy": "Whole",
    "namespaceLabelSelector": {},
    "podProtections": {"extraEnabled": ["PodsWithPVC"], "config": _PROTECTED},
}
_ARGS: Final = {
    **PLUGIN_ARGS,
    "LowNodeLoad": {**PLUGIN_ARGS["LowNodeLoad"], "expectedHighThresholds": {"cpu": 60}},
    "DefaultEvictor": _EVICTOR,
    "MigrationController": _MIGRATION,
}
_BALANCE: Final = tuple(name for name in PLUGIN_ARGS if name not in _DESCHEDULE)


def _enabled(names: Iterable[str]) -> Document:
    return {"enabled": [{"name": name} for name in names]}


DOCUMENT: Final[Document] = {
    "apiVersion": VERSION,
    "kind": KIND,
    "deschedulingInterval": "20s",
    "profiles": [
        {
            "name": "p",
            "plugins": {
                "deschedule": _enabled(_DESCHEDULE),
                "balance": _enabled(_BALANCE),
                "filter": _enabled(["DefaultEvictor"]),
            },
            "pluginConfig": [{"name": name, "args": dict(args)} for name, args in _ARGS.items()],
        }
    ],
}
_GOOD: Final = "good"


class DeschedulerProgram:
    """In each round a healthy job moves a healthy pod."""

    in_turn = 1

    def __init__(self) -> None:
        self.clock = ManualClock(start=NOW)
        self.api = InMemoryApi(self.clock, others=(CLONE_SETS, ADVANCED_STATEFUL_SETS, GENERIC_WORKLOADS))
        for name in (_GOOD, *SLOTS):
            self.api.put(NODES, to_document(make_node(name)))
        owner: dict[str, Any] = {"namespace": "default", "name": "web", "uid": "uid-web"}
        self.api.put(REPLICA_SETS, {"metadata": owner, "spec": {"replicas": 15, "selector": {}}})
        client = self.api.client()
        self._stop = asyncio.Event()
        process = Process(clock=self.clock, random=Random(1), stop=self._stop)
        events = EventBroadcaster(client, program="koord-descheduler", clock=self.clock, random=Random(1))
        configuration = resolve(DOCUMENT, "", Catalogue(BUILT_IN, lambda: ()))
        self.descheduler = Descheduler(client, events, configuration, process, frozenset(GATES))
        self._log: Log

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        return self.descheduler.informers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with logged() as self._log:
            async with asyncio.TaskGroup() as tasks, self.descheduler.informers.started(20):
                work = tasks.create_task(self.descheduler.deschedule(self._stop))
                await self.clock.advance(1)
                yield
                self._stop.set()
                await self.clock.advance(1)
                await work

    async def meet(self, cases: Sequence[Case]) -> None:
        for case in cases:
            self.api.put(case.kind, case.document)
        for number in range(9):
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.api.put(
                PODS,
                to_document(
                    make_pod(f"web-{number}", _GOOD, status=ready, age=5, spec={"schedulerName": "koord-scheduler"})
                ),
            )
        reference = {"namespace": "default", "name": "web-0"}
        spec = {"podRef": reference, "mode": "EvictDirectly", "ttl": "5m0s"}
        self.api.put(POD_MIGRATION_JOBS, {"metadata": {"name": "good"}, "spec": spec})
        cycles = self.descheduler.cycles
        for _ in range(30):
            await self.clock.advance(1)
            if self._is_evicted() and self.descheduler.cycles > cycles:
                break
        job = self.api.found(POD_MIGRATION_JOBS, "good") or {}
        assert self.descheduler.cycles > cycles, "no cycle has ended"
        assert self._is_evicted(), f"the pod of the healthy job stays: {job.get('status')}"
        self._restore(cases)
        await self.clock.advance(1)
        check_log(self._log, cases)

    def _is_evicted(self) -> bool:
        pod = self.api.found(PODS, "web-0", "default")
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def _restore(self, cases: Sequence[Case]) -> None:
        for case in cases:
            if case.kind.plural == NODES.plural:
                self.api.put(NODES, to_document(make_node(case.name)))
            elif self.api.found(case.kind, case.name, case.namespace) is not None:
                self.api.remove(case.kind, case.name, case.namespace)
        for kind in (POD_MIGRATION_JOBS, RESERVATIONS, PODS):
            for document in self.api.all(kind):
                self.api.remove(kind, document["metadata"]["name"], document["metadata"].get("namespace", ""))
