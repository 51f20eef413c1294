"""Live, dry run and rehearsal: the same plan, and only the first of them writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_METRICS, NODES, PODS, REPLICA_SETS
from koordinator.api.rebalance_explanation import RebalanceExplanation
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.cycle import CycleReport
from koordinator.descheduler.framework import DeschedulePlugin, Eviction
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.plugins.table import DECIDING
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.descheduler.clusters import NOW, PLUGIN_ARGS, make_metric, make_node, make_pod
from tests.examples import examples
from tests.in_memory_api import InMemoryApi

Document = dict[str, Any]
Decision = tuple[str, str, str, str]
_READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}
_POINTS: Final = {True: "deschedule", False: "balance"}


class _World:
    """A cluster and a configuration that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.clock = ManualClock(start=NOW)
        self.api = InMemoryApi(self.clock)
        for number in range(3):
            owner = {"namespace": "default", "name": f"web-{number}", "uid": f"uid-web-{number}"}
            self.api.put(REPLICA_SETS, {"metadata": owner, "spec": {"replicas": 20, "selector": {}}})
        for number in range(self._random.randint(2, 5)):
            self._put_node(f"node-{number}", taken=number < 2)
        self.document = self._configuration()

    def _put_node(self, name: str, *, taken: bool) -> None:
        chance = self._random
        taints = [{"key": "a", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
        node = make_node(name, taints=taints, labels={"class": chance.choice(("dear", "cheap"))})
        self.api.put(NODES, to_document(node))
        pods = [f"{name}-{number}" for number in range(chance.randint(0, 8) if taken else chance.randint(0, 1))]
        for pod in pods:
            owner = f"web-{chance.randint(0, 2)}"
            spec = {"schedulerName": "koord-scheduler", "priority": chance.choice((5500, 9500))}
            made = to_document(make_pod(pod, name, owner=owner, requests={"cpu": "250m"}, status=_READY))
            self.api.put(PODS, {**made, "spec": {**made["spec"], **spec}})
        measured = {pod: f"{chance.randint(100, 900)}m" for pod in pods if chance.random() < 0.9}
        self.api.put(NODE_METRICS, to_document(make_metric(name, measured)))

    def _configuration(self) -> Document:
        chance = self._random
        names = chance.sample(sorted(PLUGIN_ARGS), 3)
        plugins: Document = {"deschedule": {"enabled": []}, "balance": {"enabled": []}}
        for name in names:
            plugins[_POINTS[issubclass(DECIDING[name], DeschedulePlugin)]]["enabled"].append({"name": name})
        given = {name: dict(PLUGIN_ARGS[name]) for name in names}
        if chance.random() < 0.5:
            evictor = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
            plugins |= {"evict": evictor, "filter": evictor}
            given["DefaultEvictor"] = {"nodeFit": chance.random() < 0.5}
        else:
            limits = ("maxMigratingGlobally", "maxMigratingPerNamespace", "maxMigratingPerNode")
            workload = ("maxMigratingPerWorkload", "maxUnavailablePerWorkload")
            given["MigrationController"] = {
                "nodeFit": chance.random() < 0.5,
                **{name: chance.randint(1, 8) for name in (*limits, *workload)},
            }
        return {
            "apiVersion": VERSION,
            "kind": KIND,
            "deschedulingInterval": "60s",
            "maxNoOfPodsToEvictPerNode": chance.choice((None, 2)),
            "maxNoOfPodsToEvictTotal": chance.choice((None, 3)),
            "profiles": [
                {
                    "name": "p",
                    "plugins": plugins,
                    "pluginConfig": [{"name": name, "args": args} for name, args in given.items()],
                }
            ],
        }

    def descheduler(self, *, dry_run: bool) -> Descheduler:
        client, process = self.api.client(), Process(clock=self.clock, random=Random(1))
        configuration = resolve({**self.document, "dryRun": dry_run}, "", Catalogue(BUILT_IN, lambda: ()))
        return Descheduler(
            client,
            EventBroadcaster(client, program="koord-descheduler", clock=self.clock, random=Random(1)),
            configuration,
            process,
        )


def _decisions(report: CycleReport) -> list[Decision]:
    return [
        (each.plugin, each.step.pod.metadata.key, each.step.reason, each.refusal)
        for each in report.outcomes
        if isinstance(each.step, Eviction)
    ]


def _rehearsed(document: RebalanceExplanation) -> list[Decision]:
    """In no order: refused evictions are listed apart."""
    planned = (*document.evictions, *document.refused)
    return sorted((each.plugin, each.pod, each.reason, each.why or "") for each in planned)


async def _plans(world: _World) -> tuple[Sequence[RebalanceExplanation], CycleReport, CycleReport]:
    """Two rehearsals, a dry run, and then the cycle that the same program carries out."""
    dry, live = world.descheduler(dry_run=True), world.descheduler(dry_run=False)
    async with asyncio.timeout(20), dry.informers.started(20), live.informers.started(20):
        rehearsals = [await live.explain_rebalance() for _ in range(2)]
        dry_run = await dry.run_cycle()
        assert world.api.writes.total() == 0
        return rehearsals, dry_run, await live.run_cycle()


def _compare(seed: int) -> None:
    rehearsals, dry_run, live = asyncio.run(_plans(_World(seed)))
    assert not live.errors
    assert _decisions(dry_run) == _decisions(live)
    assert [_rehearsed(each) for each in rehearsals] == [sorted(_decisions(live))] * 2


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_three_give_the_same_plan(seed: int) -> None:
    _compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_the_three_give_the_same_plan_in_a_thousand_clusters(first: int) -> None:
    for seed in range(first, first + 100):
        _compare(seed)


def test_there_is_something_to_plan() -> None:
    plans = [asyncio.run(_plans(_World(seed)))[2] for seed in range(4)]
    assert any(plan.evicted for plan in plans)
    assert any(plan.refused for plan in plans)
