"""A whole koordlet with everything switched on, on a made machine; what the API server says is broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from koordinator.api.kinds import NODE_METRICS
from koordinator.koordlet.agent import Agent
from koordinator.kube.informer import Informer
from tests.fuzz.campaign import Case, Log, check_log, logged
from tests.koordlet.all_strategies import GATES, node_slo_spec
from tests.koordlet.node_under_test import NODE, NodeUnderTest

_GATES: Final = (
    *GATES,
    *("BlkIOReconcile", "PSICollector", "ColdPageCollector", "ResctrlCollector", "Accelerators", "RDMADevices"),
    *("HugePageReport", "NodeMetricPromMetrics", "AuditEvents", "TerwayQoS", "Resctrl", "InterferenceDetection"),
)
_REPORTS_EVERY: Final = 30
"""Seconds."""
_POLICY: Final = {
    "aggregateDurationSeconds": 60,
    "reportIntervalSeconds": _REPORTS_EVERY,
    "nodeAggregatePolicy": {"durations": ["1m0s"]},
}


class KoordletProgram:
    """In each round the agent reports what its healthy pod uses."""

    in_turn = 20

    def __init__(self, folder: Path) -> None:
        self.node = NodeUnderTest(folder)
        self.node.gates = _GATES
        self.node.follows_configuration = True
        self.node.configure()
        self.node.show_slo(node_slo_spec())
        self.node.api.put(NODE_METRICS, {"metadata": {"name": NODE}, "spec": {"metricCollectPolicy": _POLICY}})
        self.agent: Agent
        self._log: Log

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        return self.node._agent().states.informers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with logged() as self._log:
            async with self.node.running() as self.agent:
                await self.node.pass_seconds(35)
                yield

    async def meet(self, cases: Sequence[Case]) -> None:
        for case in cases:
            sound = self.node.api.found(case.kind, case.name, case.namespace)
            self.node.api.put(case.kind, case.document)
            await self.node.pass_seconds(1)
            if sound is not None:
                self.node.api.put(case.kind, sound)
            else:
                self.node.api.remove(case.kind, case.name, case.namespace)
        await self.is_reported()
        check_log(self._log, cases)

    async def is_reported(self) -> None:
        """The next report says what the healthy pod uses."""
        before = self.node.status.get("updateTime")
        for _ in range(2 * _REPORTS_EVERY):
            await self.node.pass_seconds(1)
            if self.node.status.get("updateTime") != before:
                break
        reported = {each["name"]: each for each in self.node.status.get("podsMetric") or ()}
        assert self.node.status.get("updateTime") != before, "nothing is reported"
        assert "web" in reported, self.node.status
