"""All controllers of koord-manager, among a healthy node and broken ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from koordinator.api.kinds import NODES
from koordinator.kube.informer import Informer
from koordinator.manager.features import make_features
from koordinator.manager.options import Options
from koordinator.manager.recommender.options import RecommenderOptions
from tests.fuzz.campaign import SLOTS, Case, Log, check_log, logged
from tests.manager.broken_input.bench import CONFIG, SYSTEM, ManagerBench, node

_GATES: Final = ("MultiQuotaTree", "ElasticQuotaGuaranteeUsage", "FreeResource", "EnableSyncGPUSharedResource")
_GOOD: Final = "good"
_CORES: Final = ("40", "60")
_OFFERED: Final = {"40": 25_000, "60": 5_000}


class ManagerProgram:
    """The healthy node reports another usage in each round, and offers what that leaves."""

    in_turn = 1

    def __init__(self) -> None:
        features = make_features()
        features.set(dict.fromkeys(_GATES, True))
        self.bench = ManagerBench(
            options=Options(features=features, recommender=RecommenderOptions(source="nodemetric"))
        )
        self.bench.configure()
        self.bench.add_node(_GOOD)
        self.bench.report(_GOOD)
        for name in SLOTS:
            self.bench.add_node(name)
        self._round = 0
        self._log: Log

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        return self.bench.informers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with logged() as self._log:
            async with self.bench.working(None):
                yield

    async def meet(self, cases: Sequence[Case]) -> None:
        bench, cluster = self.bench, self.bench.cluster
        for case in cases:
            cluster.put(case.kind, case.document)
        await bench.clock.advance(60)
        self._round += 1
        cpu = _CORES[self._round % 2]
        if (cases[0].namespace, cases[0].name) != (SYSTEM, CONFIG):
            bench.report(_GOOD, cpu)
            await bench.until_offered(_GOOD, _OFFERED[cpu], 30)
        for case in cases:
            if case.kind is NODES:
                cluster.put(NODES, node(case.name))
            elif cluster.found(case.kind, case.name, case.namespace) is not None:
                cluster.remove(case.kind, case.name, case.namespace)
        bench.configure()
        bench.report(_GOOD, cpu)
        await bench.until_offered(_GOOD, _OFFERED[cpu], 60)
        check_log(self._log, cases)
        assert all(informer.handler_errors == 0 for informer in bench.informers)
