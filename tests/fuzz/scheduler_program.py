"""koord-scheduler with the profile of the chart, among healthy nodes and broken ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from koordinator.api.kinds import DEVICES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from koordinator.scheduler.engine.row_amounts import CPU
from tests.fuzz.campaign import SLOTS, Case, Log, check_log, logged
from tests.scheduler.broken_input.test_broken_objects import healthy, healthy_pod, running_beside
from tests.scheduler.scheduler_api import SchedulerApi

ABOUT_NODES = (NODES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, DEVICES)
_GOOD = "good"


class SchedulerProgram:
    """One healthy node, and one that broken objects may be about for each of them."""

    def __init__(self) -> None:
        self.api = SchedulerApi()
        for name in (_GOOD, *SLOTS):
            for kind in ABOUT_NODES:
                self.api.put(kind, healthy(kind, name))
        self.fixture = running_beside(self.api)
        self._log: Log

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with logged() as self._log:
            async with self.fixture.running():
                yield

    async def meet(self, cases: Sequence[Case]) -> None:
        for case in cases:
            self.api.put(case.kind, case.document)
        await self.fixture.until_idle(2)
        confined, free = healthy_pod("confined", _GOOD), healthy_pod("free")
        for pod in (confined, free):
            self.api.put(PODS, pod)
        await self.fixture.until_idle(2)
        placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self._healthy_pods()}
        assert placed.get("confined") == _GOOD, f"the healthy pod waits: {self.fixture.events.notes[-5:]}"
        assert placed.get("free"), f"the free pod waits: {self.fixture.events.notes[-5:]}"
        self._check_columns()
        self.fixture.events.notes.clear()
        for pod in self._healthy_pods():
            self.api.remove(PODS, pod["metadata"]["name"], "default")
        for case in cases:
            if case.kind in ABOUT_NODES:
                self.api.put(case.kind, healthy(case.kind, case.name))
            else:
                self.api.remove(case.kind, case.name, case.document["metadata"].get("namespace", ""))
        await self.fixture.until_idle(1)
        check_log(self._log, cases)

    def _healthy_pods(self) -> list[dict]:
        return [pod for pod in self.api.all(PODS) if pod["metadata"]["namespace"] == "default"]

    def _check_columns(self) -> None:
        columns = self.fixture.scheduler.state.view.columns
        for row in columns.row_of.values():
            assert columns.requested[row, CPU] >= 0
            assert columns.allocatable[row, CPU] >= 0
