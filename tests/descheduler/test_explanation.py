"""What the next cycle would do, without doing it: the plan, who stays and why, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from koordinator.api.codec import to_document
from koordinator.api.pod import Pod
from koordinator.api.rebalance_explanation import PlannedEviction, RebalanceExplanation
from koordinator.descheduler.cycle import Cycle
from koordinator.descheduler.eviction_pipeline import EvictionLimiter, ProfileEvictor
from koordinator.descheduler.executors import Live
from koordinator.descheduler.explanation import NOT_CHOSEN, explain
from koordinator.descheduler.framework import (
    BalancePlugin,
    Cordon,
    DeletionCost,
    Eviction,
    FilterPlugin,
    Plan,
    Remark,
    Snapshot,
    Step,
)
from koordinator.descheduler.plugins.low_node_load.plugin import LowNodeLoad
from koordinator.descheduler.profiles import Profile
from koordinator.model.label_selector import CompiledSelector, parse_selector
from tests.descheduler.clusters import make_handle, make_metric, make_node, make_pod, make_snapshot
from tests.descheduler.test_cycle import NODES_THERE, WEB, Proposing, Recorder
from tests.in_memory_api import InMemoryApi


def rehearse(
    *plugins: BalancePlugin,
    refused: Sequence[str] = (),
    limits: Sequence[int | None] = (),
    snapshot: Snapshot | None = None,
    selector: CompiledSelector | None = None,
) -> RebalanceExplanation:
    recorder = Recorder(refused)
    evictor = ProfileEvictor()
    evictor.connect([recorder], recorder)
    profile = Profile("test", selector, evictor, {each.name: each for each in plugins}, [], plugins)
    taken = snapshot or make_snapshot(NODES_THERE, WEB)
    live = {pod.metadata.key: pod for pods in taken.pods_by_node.values() for pod in pods}
    cycle = Cycle([profile], lambda: EvictionLimiter(*limits), lambda: taken, live.get, Live(InMemoryApi().client()))
    document = asyncio.run(explain(cycle))
    assert recorder.evicted == [], "nothing is carried out"
    return document


def evict(*pods: Pod) -> list[Step]:
    return [Eviction(pod, "too many") for pod in pods]


def names(entries: Sequence[PlannedEviction]) -> list[str]:
    return [each.pod.removeprefix("default/") for each in entries]


def test_who_would_leave_and_why() -> None:
    document = rehearse(Proposing(evict(*WEB[:2])))
    assert to_document(document)["evictions"][0] == {
        "uid": "uid-web-0",
        "pod": "default/web-0",
        "node": "b",
        "plugin": "Proposing",
        "profile": "test",
        "reason": "too many",
    }
    assert (document.nodes, document.pods, names(document.evictions)) == (2, 6, ["web-0", "web-1"])


def test_who_would_stay_and_why() -> None:
    document = rehearse(Proposing(evict(WEB[0])), refused=("web-1", "web-2"))
    assert [(each.why, each.pods) for each in document.stays] == [(NOT_CHOSEN, 3), ("protected", 2)]
    assert document.stays[1].examples == ["default/web-1", "default/web-2"]


def test_limits_hold_and_say_so() -> None:
    plugin = Proposing(evict(*WEB))
    document = rehearse(plugin, limits=(None, None, 2))
    assert names(document.evictions) == ["web-0", "web-1"]
    assert document.refused[0].why == "maximum number of evicted pods total reached"
    assert plugin.responses == [True, True, False, False, False, False], "what comes next depends on it"
    (stays,) = document.stays
    assert (stays.why, stays.pods) == ("maximum number of evicted pods total reached", 4)
    assert stays.examples == ["default/web-3", "default/web-5", "default/web-2"]


def test_what_is_proposed_twice_leaves_once() -> None:
    document = rehearse(Proposing(evict(WEB[0], WEB[0])))
    assert names(document.evictions) == ["web-0"]
    assert document.refused[0].why == "it has been evicted in this cycle"


def test_a_pod_that_is_terminating_is_refused() -> None:
    leaving = make_pod("web-0", "b", deletionTimestamp="2026-01-01T12:00:00Z")
    document = rehearse(Proposing(evict(leaving)), snapshot=make_snapshot(NODES_THERE, [leaving]))
    assert document.refused[0].why == "the pod is terminating"


def test_other_steps_and_remarks() -> None:
    steps: list[Step] = [Remark("two nodes are hot"), Cordon("a", True, "hot"), DeletionCost(WEB[0], 5, "goes first")]
    document = rehearse(Proposing(steps))
    assert [(each.profile, each.plugin, each.text) for each in document.remarks] == [
        ("test", "Proposing", "two nodes are hot")
    ]
    assert [each.what for each in document.others] == [
        "cordon node a",
        "set the deletion cost of pod default/web-0 to 5",
    ]


def test_a_plugin_that_fails_ends_neither_the_others_nor_the_response() -> None:
    document = rehearse(Proposing(error=ValueError("odd")), Proposing(evict(WEB[0])))
    assert document.errors == ["Proposing: ValueError: odd"]
    assert names(document.evictions) == ["web-0"]


def test_pods_on_nodes_of_no_profile_say_so() -> None:
    selector = parse_selector("pool=x")
    document = rehearse(Proposing(), selector=selector)
    assert {each.why: each.pods for each in document.stays} == {
        NOT_CHOSEN: 3,
        "no profile looks at its node": 3,
    }


def test_a_cluster_of_one_node_is_left_alone() -> None:
    document = rehearse(Proposing(evict(*WEB)), snapshot=make_snapshot(NODES_THERE[:1], WEB))
    assert (document.evictions, len(document.errors)) == ([], 1)


def test_asking_does_not_count_as_a_hot_cycle() -> None:
    """A node has to be hot in more than two cycles; however often somebody asks in between, the third does it."""
    args = LowNodeLoad.args_type(
        high_thresholds={"cpu": 60}, low_thresholds={"cpu": 30}, anomaly_condition=condition(), node_fit=False
    ).completed("")
    plugin = LowNodeLoad(args, make_handle())
    pods = [make_pod(f"p{number}", "hot") for number in range(4)]
    nodes = [make_node("hot"), make_node("cold")]
    metrics = [make_metric("hot", {f"p{number}": "900m" for number in range(4)}), make_metric("cold", {})]
    snapshot = make_snapshot(nodes, pods, metrics)

    def cycle() -> list[Eviction]:
        return [step for step in plugin.balance(snapshot) if isinstance(step, Eviction)]

    assert [bool(cycle()) for _ in range(2)] == [False, False]
    requested = [bool(rehearse(plugin, snapshot=snapshot).evictions) for _ in range(3)]
    assert requested == [True, True, True], "each says what the third cycle would do"
    assert cycle()


def test_hot_nodes_are_named_with_what_they_use_and_for_how_long() -> None:
    args = LowNodeLoad.args_type(
        high_thresholds={"cpu": 60, "memory": 95},
        low_thresholds={"cpu": 30, "memory": 90},
        anomaly_condition=condition(),
        node_fit=False,
    ).completed("")
    plugin = LowNodeLoad(args, make_handle())
    pods = [make_pod(f"p{number}", "hot") for number in range(4)]
    metrics = [make_metric("hot", {f"p{number}": "900m" for number in range(4)}), make_metric("cold", {})]
    snapshot = make_snapshot([make_node("hot"), make_node("cold")], pods, metrics)
    found = []
    for _ in range(4):
        (hot,) = rehearse(plugin, snapshot=snapshot).hot
        found.append((hot.cycles, hot.needed, hot.confirmed))
        for _ in plugin.balance(snapshot):
            pass
    assert found == [(1, 3, False), (2, 3, False), (3, 3, True), (1, 3, True)]
    assert (hot.node, hot.pods, hot.usage, hot.thresholds) == ("hot", "all", {"cpu": 90.0}, {"cpu": 60.0})


def test_a_plugin_that_only_says_what_it_would_do_evicts_nothing_in_the_plan_either() -> None:
    document = rehearse(Proposing([Eviction(WEB[0], "too many", dry_run=True)]), limits=(None, None, 0))
    assert document.evictions == []
    assert [each.what for each in document.others] == [
        "say that it would evict pod default/web-0, by its argument dryRun"
    ]


class Prepared(Proposing, FilterPlugin):
    """Counts how often it is prepared."""

    name = "Prepared"

    def __init__(self) -> None:
        super().__init__(evict(*WEB[:1]))
        self.prepared = 0

    async def prepare(self, snapshot: Snapshot) -> None:
        self.prepared += 1

    def deschedule(self, snapshot: Snapshot) -> Plan:
        yield Remark(f"prepared {self.prepared} times")
        yield from super().deschedule(snapshot)


def test_plugins_are_prepared_as_in_a_cycle_and_keep_nothing_of_it() -> None:
    plugin = Prepared()
    for _ in range(2):
        assert rehearse(plugin).remarks[0].text == "prepared 1 times"
    assert plugin.prepared == 0


def condition() -> Any:
    from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition

    return AnomalyCondition(consecutive_abnormalities=2)
