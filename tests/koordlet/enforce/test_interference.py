"""Who disturbs another pod on and on is evicted where the NodeSLO names that, by the API server and once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koordinator.api.modification import EVICTED
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.enforce.interference import InterferenceRemedies
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources
from koordinator.koordlet.enforce.policy import EnforcedPolicy
from koordinator.koordlet.features import make_features
from koordinator.koordlet.observe.interference.monitor import InterferenceMonitor
from tests.koordlet.enforce.strategies.qos_fixtures import kubelet_bandwidths, pod_usage, policy, snapshot
from tests.koordlet.enforce.strategies.test_interference_remedies import blamed, extension
from tests.koordlet.enforce.test_evictor import Bench
from tests.recorded_events import RecordedEvents


class Node:
    """``suspects`` are blamed in each round, by ``web``. ``annotations`` are theirs."""

    def __init__(
        self,
        remedies: list[str],
        *,
        observe_only: bool = False,
        annotations: dict[str, str] | None = None,
        suspects: tuple[str, ...] = ("job",),
    ):
        self.bench, self.recorded = Bench(observe_only=observe_only), RecordedEvents()
        for name in suspects:
            self.bench.put(name)
        jobs = [pod_usage(name, "BE", cpu=4.0, memory=1e9, annotations=annotations) for name in suspects]
        pods = (*jobs, pod_usage("web"))
        self.snapshot = snapshot(pods=pods)
        options = SimpleNamespace(
            node_name="n",
            features=make_features(),
            collectors=SimpleNamespace(interference_interval=10.0),
            enforcement=SimpleNamespace(observe_only=observe_only),
        )
        given = SimpleNamespace(clock=self.bench.clock, traffic_control=None)
        self.enforcement = options.enforcement
        context = SimpleNamespace(options=options, given=given, metrics=AgentMetrics(Metrics(), "n"))
        enforced = EnforcedPolicy()
        enforced.accept(policy(extensions=extension(suppress=True, remedies=remedies)))
        sources = SimpleNamespace(pods=pods, policy=enforced, bandwidths_of=lambda _: kubelet_bandwidths(*pods))
        monitor = SimpleNamespace(
            findings=[blamed(uid=each.pod.uid) for each in jobs], mean=lambda *_: 30.0, sent=lambda _: None
        )
        self.remedies = InterferenceRemedies(
            cast("AgentContext", context),
            cast("SnapshotSources", sources),
            cast("InterferenceMonitor", monitor),
            self.recorded,
        )

    def rounds(self, count: int) -> list[str]:
        """Of ten seconds; which evictions were requested."""

        async def play() -> None:
            evict: Any = self.remedies.loop(self.bench.evictor).body
            for _ in range(count):
                self.remedies.strategy.decide(self.snapshot)
                await evict()
                await self.bench.clock.advance(10.0)

        asyncio.run(play())
        return self.bench.requests


def test_who_is_capped_without_effect_is_evicted_once() -> None:
    node = Node(["cap", "migrate"])
    assert node.rounds(6) == []
    assert node.rounds(6) == ["job"]
    (record,) = node.bench.recorded.records
    assert (record.action, record.actor, record.cause.text) == (
        EVICTED,
        "InterferenceDetection",
        "it disturbs shop/web",
    )


@pytest.mark.parametrize(
    "node",
    [
        Node(["cap", "pin"]),
        Node(["migrate"], observe_only=True),
    ],
    ids=["not named", "observe only"],
)
def test_nobody_is_evicted(node: Node) -> None:
    assert node.rounds(30) == []


def test_of_who_may_not_be_evicted_nobody_is_told_that_it_was() -> None:
    node = Node(["migrate"], annotations={"koordinator.sh/eviction-policy": '["BEMemoryEvict"]'})
    assert (node.rounds(30), node.recorded.notes) == ([], [])
    (remedy,) = node.remedies.report.extensions()["uid-web"]["interferenceRemedies"]
    assert (remedy["result"], remedy["what"]) == ("notPossible", "it may not be evicted")


def test_two_who_disturb_others_are_both_evicted() -> None:
    node = Node(["migrate"], suspects=("job", "batch"))
    assert node.rounds(1) == ["job", "batch"]


def test_what_is_only_observed_is_not_reported_as_done() -> None:
    node = Node(["cap"], observe_only=True)
    node.rounds(30)
    assert node.recorded.events == []
    assert node.remedies.report.extensions() == {}


def test_what_was_done_is_reported_no_more_when_the_node_is_only_observed() -> None:
    node = Node(["cap"])
    node.rounds(1)
    assert node.remedies.report.extensions() != {}
    node.enforcement.observe_only = True
    node.rounds(1)
    assert node.remedies.report.extensions() == {}


def test_what_was_only_observed_begins_anew_when_it_is_carried_out() -> None:
    node = Node(["cap"], observe_only=True)
    node.rounds(30)
    node.enforcement.observe_only = False
    node.rounds(1)
    assert [reason for _, reason, _ in node.recorded.notes] == ["InterferenceRemedyTried"]


@pytest.mark.parametrize("members", [[], [5], "text", {"interference": []}])
def test_extensions_that_are_none_are_named(members: object) -> None:
    """``[]`` and the like say nothing; what is not read is named."""
    enforced = EnforcedPolicy()
    invalid = enforced.accept(policy(extensions={"Object": members}))
    assert bool(invalid) == bool(members and members != {"interference": []})
    assert all("extensions.Object.interference" in text for text in invalid)
