"""A cycle: limits, the order of profiles and plugins, and steps that are held against live objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.descheduler.cycle import TOO_SMALL, Cycle, CycleReport, is_ready
from koordinator.descheduler.eviction_pipeline import EvictionLimiter, ProfileEvictor
from koordinator.descheduler.executors import DryRun, Live
from koordinator.descheduler.framework import (
    BalancePlugin,
    Cordon,
    DeletionCost,
    DeschedulePlugin,
    Eviction,
    EvictionResult,
    EvictPlugin,
    FilterPlugin,
    Plan,
    Plugin,
    Remark,
    Snapshot,
    Step,
)
from koordinator.descheduler.profiles import Profile
from koordinator.model.label_selector import CompiledSelector, parse_selector
from tests.descheduler.clusters import make_handle, make_node, make_pod, make_snapshot
from tests.in_memory_api import InMemoryApi


class Recorder(EvictPlugin, FilterPlugin):
    """Evicts all but what it is told to refuse."""

    name = "Recorder"

    def __init__(self, refused: Sequence[str] = ()) -> None:
        super().__init__(None, make_handle())
        self.evicted: list[tuple[str, str, str]] = []
        self.refused = refused

    def filter(self, pod: Pod) -> Sequence[str]:
        return ["protected"] if pod.metadata.name in self.refused else []

    async def evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        self.evicted.append((pod.metadata.name, plugin, reason))
        return EvictionResult(True)


class Proposing(DeschedulePlugin, BalancePlugin):
    """Proposes steps and keeps the responses."""

    name = "Proposing"

    def __init__(self, proposed: Sequence[Step] = (), error: Exception | None = None) -> None:
        super().__init__(None, make_handle())
        self.proposed = proposed
        self.error = error
        self.responses: list[bool] = []
        self.seen: list[Snapshot] = []

    def deschedule(self, snapshot: Snapshot) -> Plan:
        self.seen.append(snapshot)
        for step in self.proposed:
            self.responses.append((yield step))
        if self.error is not None:
            raise self.error

    def balance(self, snapshot: Snapshot) -> Plan:
        return self.deschedule(snapshot)


NODES_THERE = [make_node("a", labels={"pool": "x"}), make_node("b")]
WEB = [make_pod(f"web-{n}", "a" if n % 2 else "b") for n in range(6)]


def run(
    plugin: Plugin,
    *,
    recorder: Recorder | None = None,
    limiter: EvictionLimiter | None = None,
    live: Sequence[Pod] = WEB,
    stage: str = "deschedule",
    api: InMemoryApi | None = None,
    selector: CompiledSelector | None = None,
    dry_run: bool = False,
    nodes: int = 2,
) -> tuple[CycleReport, Recorder]:
    recorder, limiter = recorder or Recorder(), limiter or EvictionLimiter()
    evictor = ProfileEvictor()
    evictor.connect([recorder], recorder)
    points = {"deschedule": [], "balance": [], stage: [plugin]}
    profile = Profile(
        "test",
        selector,
        evictor,
        {plugin.name: plugin},
        cast("list[DeschedulePlugin]", points["deschedule"]),
        cast("list[BalancePlugin]", points["balance"]),
    )
    pods = {pod.metadata.key: pod for pod in live}
    snapshot = make_snapshot(NODES_THERE[:nodes], WEB)
    api = api or InMemoryApi()

    async def scenario() -> CycleReport:
        executor = DryRun() if dry_run else Live(api.client())
        return await Cycle([profile], lambda: limiter, lambda: snapshot, pods.get, executor).run()

    return asyncio.run(scenario()), recorder


def stored_cluster() -> InMemoryApi:
    """The API server of the nodes and pods."""
    api = InMemoryApi()
    for node in NODES_THERE:
        api.put(NODES, to_document(node))
    for pod in WEB:
        api.put(PODS, to_document(pod))
    return api


def evictions(**fields: Any) -> list[Step]:
    return [Eviction(pod, "too many", **fields) for pod in WEB]


@pytest.mark.parametrize("stage", ["deschedule", "balance"])
def test_evictions_are_carried_out_with_plugin_and_reason(stage: str) -> None:
    report, recorder = run(Proposing(evictions()), stage=stage)
    assert recorder.evicted[0] == ("web-0", "Proposing", "too many")
    assert len(report.evicted) == 6


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        ({"total": 3}, ["web-0", "web-1", "web-2"]),
        ({"total": 0}, []),
        ({"per_node": 1}, ["web-0", "web-1"]),
        ({"per_namespace": 4}, ["web-0", "web-1", "web-2", "web-3"]),
    ],
)
def test_limits_of_a_cycle(limits: dict[str, int], names: list[str]) -> None:
    plugin = Proposing(evictions())
    _, recorder = run(plugin, limiter=EvictionLimiter(**limits))
    assert [name for name, _, _ in recorder.evicted] == names
    assert plugin.responses.count(True) == len(names)


@pytest.mark.parametrize(
    ("live", "text"),
    [
        ([], "the pod is gone"),
        ([make_pod("web-0", "b", uid="another")], "the pod is gone"),
        ([make_pod("web-0", "a")], "the pod is on node a now"),
        ([make_pod("web-0", "b", deletionTimestamp="2026-01-01T00:00:00Z")], "the pod is terminating"),
    ],
)
def test_what_has_changed_since_the_snapshot_is_left_alone(live: list[Pod], text: str) -> None:
    plugin = Proposing(evictions()[:1])
    report, recorder = run(plugin, live=live)
    assert not recorder.evicted
    assert [each.refusal for each in report.refused] == [text]
    assert plugin.responses == [False]


def test_filters_are_called_again_before_each_eviction() -> None:
    report, recorder = run(Proposing(evictions()[:2]), recorder=Recorder(refused=["web-0"]))
    assert [name for name, _, _ in recorder.evicted] == ["web-1"]
    assert [each.refusal for each in report.refused] == ["protected"]


def test_no_pod_is_evicted_twice_in_a_cycle() -> None:
    plugin = Proposing([*evictions()[:1], *evictions()[:1]])
    _, recorder = run(plugin)
    assert len(recorder.evicted) == 1
    assert plugin.responses == [True, False]


def test_a_plugin_in_dry_run_evicts_nothing_and_uses_no_limit() -> None:
    limiter = EvictionLimiter(total=1)
    plugin = Proposing(evictions(dry_run=True))
    _, recorder = run(plugin, limiter=limiter)
    assert (recorder.evicted, limiter.total) == ([], 0)
    assert all(plugin.responses)


def test_the_whole_program_in_dry_run_counts_towards_the_limits() -> None:
    api = stored_cluster()
    steps = [*evictions(), Cordon("a", True, "drain"), DeletionCost(WEB[0], 1, "rank")]
    plugin = Proposing(steps)
    _, recorder = run(plugin, limiter=EvictionLimiter(total=2), dry_run=True, api=api)
    assert (recorder.evicted, api.writes.total()) == ([], 0)
    assert plugin.responses == [True, True, False, False, False, False, True, True]


def test_a_plugin_that_fails_is_reported() -> None:
    report, recorder = run(Proposing(evictions()[:1], error=ValueError("broken")))
    assert report.errors == ["Proposing: ValueError: broken"]
    assert len(recorder.evicted) == 1


class Hasty(DeschedulePlugin):
    """No generator: it fails when it is called."""

    name = "Hasty"

    def deschedule(self, snapshot: Snapshot) -> Plan:
        raise ValueError("hasty")


def test_a_plugin_that_is_no_generator_is_reported() -> None:
    report, _ = run(Hasty(None, make_handle()))
    assert report.errors == ["Hasty: ValueError: hasty"]


def test_a_cluster_of_one_node_is_left_alone() -> None:
    report, recorder = run(Proposing(evictions()), nodes=1)
    assert report.errors == [TOO_SMALL]
    assert not recorder.evicted


def test_a_profile_sees_the_nodes_that_it_selects() -> None:
    plugin = Proposing()
    run(plugin, selector=parse_selector("pool=x"))
    assert [node.metadata.name for node in plugin.seen[0].nodes] == ["a"]


def stored(api: InMemoryApi, kind: Kind[Any], name: str, namespace: str = "") -> Document:
    document = api.found(kind, name, namespace)
    assert document is not None
    return document


def test_a_node_is_cordoned() -> None:
    api = stored_cluster()
    run(Proposing([Cordon("a", True, "drain")]), api=api)
    assert stored(api, NODES, "a")["spec"]["unschedulable"] is True
    assert api.writes == {("patch", "nodes"): 1}


def test_a_node_is_uncordoned() -> None:
    api = stored_cluster()
    run(Proposing([Cordon("a", True, "drain"), Cordon("a", False, "undo")]), api=api)
    assert "unschedulable" not in stored(api, NODES, "a")["spec"]
    assert api.writes == {("patch", "nodes"): 2}


def test_a_pod_gets_its_deletion_cost() -> None:
    api = stored_cluster()
    run(Proposing([DeletionCost(WEB[0], 7, "rank")]), api=api)
    annotations = stored(api, PODS, "web-0", "default")["metadata"]["annotations"]
    assert annotations == {"controller.kubernetes.io/pod-deletion-cost": "7"}


def test_a_namesake_of_a_pod_does_not_get_its_deletion_cost() -> None:
    api = stored_cluster()
    api.put(PODS, to_document(make_pod("web-0", "b", uid="uid-namesake")))
    plugin = Proposing([DeletionCost(WEB[0], 7, "rank")])
    run(plugin, api=api)
    assert plugin.responses == [False]
    assert "annotations" not in stored(api, PODS, "web-0", "default")["metadata"]


def test_what_cannot_be_patched_is_said_to_the_plugin() -> None:
    plugin = Proposing([Cordon("a", True, "drain"), DeletionCost(WEB[0], 7, "rank"), Remark("done")])
    api = stored_cluster()
    api.go_away()
    run(plugin, api=api)
    assert plugin.responses == [False, False, True]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [([], True), ([{"type": "Ready", "status": "True"}], True), ([{"type": "Ready", "status": "Unknown"}], False)],
)
def test_ready_nodes(conditions: list[dict[str, str]], ready: bool) -> None:
    assert is_ready(make_node("a", conditions=conditions, unschedulable=True)) is ready
