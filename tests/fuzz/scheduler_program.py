"""koord-scheduler with all that it can be configured to read, among healthy nodes and broken ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kinds import (
    DEVICES,
    GENERIC_WORKLOADS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
)
from koordinator.kube.informer import Informer
from koordinator.model.gang_declaration import GENERIC_WORKLOAD
from koordinator.model.transformers import POD_GATES
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import MULTI_QUOTA_TREE, RESIZE_POD
from tests.fuzz.campaign import SLOTS, Case, Log, check_log, logged
from tests.scheduler.broken_input.test_broken_objects import chart_profile, healthy, healthy_pod
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

ABOUT_NODES: Final = (NODES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, DEVICES)
_CHART: Final = Path(__file__).parents[1] / "scheduler/configuration/chart_profile.yaml"
_CONFIGURATION: Final = _CHART.read_text().replace(
    "filterExpiredNodeMetrics: false",
    "filterExpiredNodeMetrics: false\n          estimator: recommendedUsageEstimator",
)
_GATES: Final = frozenset({GENERIC_WORKLOAD, MULTI_QUOTA_TREE, RESIZE_POD, *POD_GATES})
_GOOD: Final = "good"
_MOST_ROUNDS: Final = 20


def _profile(view: ClusterView) -> Profile:
    view.network_topology = True
    return chart_profile(view, _CONFIGURATION)


class SchedulerProgram:
    """One healthy node, and one that a broken object may be about for each of a batch."""

    in_turn = 1

    def __init__(self) -> None:
        self.api = SchedulerApi(others=(GENERIC_WORKLOADS,))
        for name in (_GOOD, *SLOTS):
            for kind in ABOUT_NODES:
                self.api.put(kind, healthy(kind, name))
        self.fixture = RunningScheduler(self.api, _profile, lambda pod, view: make_pod_info(pod), _GATES)
        self._log: Log

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        return self.fixture.scheduler.informers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with logged() as self._log:
            async with self.fixture.running():
                yield

    async def meet(self, cases: Sequence[Case]) -> None:
        for case in cases:
            self.api.put(case.kind, case.document)
        await self.fixture.until_idle(2)
        confined = [] if any(_is_on_the_good_node(case) for case in cases) else [healthy_pod("confined", _GOOD)]
        for pod in (*confined, healthy_pod("free")):
            self.api.put(PODS, pod)
        for _ in range(_MOST_ROUNDS):
            await self.fixture.until_idle(2)
            placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self._healthy_pods()}
            if all(placed.values()):
                break
        assert placed.get("confined", _GOOD) == _GOOD, f"the healthy pod waits: {self.fixture.events.notes[-5:]}"
        assert placed["free"], f"the free pod waits: {self.fixture.events.notes[-5:]}"
        self._check_columns()
        self.fixture.events.notes.clear()
        for pod in self._healthy_pods():
            self.api.remove(PODS, pod["metadata"]["name"], "default")
        for case in cases:
            if case.kind in ABOUT_NODES:
                self.api.put(case.kind, healthy(case.kind, case.name))
            elif self.api.found(case.kind, case.name, case.namespace) is not None:
                self.api.remove(case.kind, case.name, case.namespace)
        await self.fixture.until_idle(1)
        check_log(self._log, cases)

    def _healthy_pods(self) -> list[Document]:
        return [pod for pod in self.api.all(PODS) if pod["metadata"]["namespace"] == "default"]

    def _check_columns(self) -> None:
        columns = self.fixture.scheduler.state.view.columns
        for row in columns.row_of.values():
            assert columns.requested[row, CPU] >= 0
            assert columns.allocatable[row, CPU] >= 0


def _is_on_the_good_node(case: Case) -> bool:
    """Such a pod takes of it what it says, or closes it if it cannot be decoded."""
    spec = case.document.get("spec")
    return case.kind.plural == PODS.plural and isinstance(spec, dict) and spec.get("nodeName") == _GOOD
