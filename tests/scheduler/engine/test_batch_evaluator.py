"""Classes of pods that are followed together end where looking at everything anew does, whoever asks when."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.base.metrics import Metrics
from koordinator.scheduler.cycle.measurement import PluginTimes
from koordinator.scheduler.engine.batch_evaluator import BatchEvaluator
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.cached_results import CachedFilterResults, SharedResults
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugins.node_resources.fit import NodeResourcesFit
from tests.examples import examples
from tests.scheduler.plugins.clusters import NOW, ClusterFixture
from tests.scheduler.plugins.test_following import LOAD, failures, filter_results, make_profile, tick

NODES = [f"n{number}" for number in range(12)]
UPDATED = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, *, cpu: int = 3, zone: str = "a", unschedulable: bool = False, repelling: bool = False) -> Node:
    taints = [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}] if repelling else []
    return convert(
        {
            "metadata": {"name": name, "labels": {"zone": zone}},
            "spec": {"unschedulable": unschedulable, "taints": taints},
            "status": {
                "allocatable": {"cpu": str(cpu), "memory": "4Gi", "pods": "6", "kubernetes.io/batch-cpu": "2000"}
            },
        },
        Node,
    )


def pod(name: str, cpu: str, memory: str, *, zone: str = "", batch: bool = False, extended: bool = False) -> Pod:
    requests = {"kubernetes.io/batch-cpu": "600"} if batch else {"cpu": cpu, "memory": memory}
    if extended:
        requests["example.com/widget"] = "1"
    return convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "priority": 5500 if batch else 9500,
                "nodeSelector": {"zone": zone} if zone else {},
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
            },
        },
        Pod,
    )


WAITING = [
    pod("small", "500m", "512Mi"),
    pod("small-in-a", "500m", "512Mi", zone="a"),
    pod("large", "2", "1Gi"),
    pod("large-in-b", "2", "1Gi", zone="b"),
    pod("batch", "0", "0", batch=True),
    pod("batch-in-b", "0", "0", zone="b", batch=True),
    pod("extended", "500m", "512Mi", extended=True),
]


def report(name: str, cpu: int) -> NodeMetric:
    usage = {"nodeUsage": {"resources": {"cpu": f"{cpu}m", "memory": f"{cpu}Mi"}}}
    return convert({"metadata": {"name": name}, "status": {"updateTime": UPDATED, "nodeMetric": usage}}, NodeMetric)


class Bench:
    """A cluster, and evaluations that follow it on a batch evaluator."""

    def __init__(self, *, far: int, old: int = 64, classes: int = 256) -> None:
        self.fixture = ClusterFixture({"LoadAwareScheduling": LOAD})
        for index, name in enumerate(NODES):
            self.fixture.set_node(node(name, zone="ab"[index % 2]))
        self.profile = make_profile(self.fixture)
        tick(self.fixture, NOW)
        columns, shared = self.fixture.view.columns, SharedResults()
        self.batch = BatchEvaluator(columns, self.profile.score_type, far=far, old=old, classes=classes)
        self.following = [
            Evaluation(self.profile, self.fixture.view, self.fixture.info(each), shared=shared, batch=self.batch)
            for each in WAITING
        ]

    def check(self, number: int) -> None:
        """What the class is told is what it would be notified again."""
        evaluation = self.following[number]
        anew = Evaluation(self.profile, self.fixture.view, self.fixture.info(WAITING[number]))
        assert filter_results(evaluation, self.fixture) == filter_results(anew, self.fixture)
        assert failures(evaluation, self.fixture) == failures(anew, self.fixture)
        assert evaluation.best().first(99) == anew.best().first(99)
        assert evaluation.first_rejecting_plugins() == anew.first_rejecting_plugins()
        assert evaluation.feasible_count == anew.feasible_count


EVENTS = st.one_of(
    st.tuples(st.just("place"), st.sampled_from(NODES), st.integers(0, 6), st.integers(0, 30)),
    st.tuples(st.just("place"), st.sampled_from(NODES), st.integers(0, 6), st.integers(0, 30)),
    st.tuples(st.just("take"), st.integers(0, 6), st.integers(0, 30)),
    st.tuples(st.just("report"), st.sampled_from(NODES), st.integers(0, 3000)),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(1, 4), st.sampled_from("ab"), st.integers(0, 7)),
    st.tuples(st.just("remove"), st.sampled_from(NODES)),
)


def happen(fixture: ClusterFixture, event: Sequence[Any]) -> None:
    match event:
        case ("place", name, kind, number):
            if name in fixture.machines:
                placed = WAITING[kind]
                metadata = type(placed.metadata)(name=f"p{kind}-{number}", namespace="default", uid=f"p{kind}-{number}")
                fixture.place(type(placed)(metadata=metadata, spec=placed.spec), name)
        case ("take", kind, number):
            fixture.take(f"p{kind}-{number}")
        case ("report", name, cpu):
            if name in fixture.machines:
                fixture.report(report(name, cpu), name)
        case ("node", name, cpu, zone, bits):
            fixture.set_node(node(name, cpu=cpu, zone=zone, unschedulable=bits == 7, repelling=bool(bits & 1)))
        case ("remove", name):
            if name in fixture.machines:
                fixture.remove_node(name)


@settings(max_examples=examples(120))
@given(
    st.lists(st.tuples(EVENTS, st.sets(st.integers(0, 6), max_size=3)), min_size=10, max_size=40),
    st.sampled_from([0, 3, 10]),
    st.sampled_from([5, 15, 64]),
    st.sampled_from([3, 256]),
)
def test_following_together_equals_looking_anew(
    steps: list[tuple[Sequence[Any], set[int]]], far: int, old: int, classes: int
) -> None:
    bench = Bench(far=far, old=old, classes=classes)
    for event, requested in [*steps, (("nothing",), set(range(7)))]:
        happen(bench.fixture, event)
        tick(bench.fixture, NOW)
        for number in sorted(requested):
            bench.check(number)


def fill(bench: Bench, name: str) -> None:
    """Nothing large fits the node any more."""
    metadata = ObjectMeta(name=f"on-{name}", namespace="default", uid=f"on-{name}")
    bench.fixture.place(type(WAITING[2])(metadata=metadata, spec=WAITING[2].spec), name)
    tick(bench.fixture, NOW)


def test_a_class_that_was_left_behind_sees_which_nodes_have_filled_up() -> None:
    bench = Bench(far=0)
    for name in NODES[:3]:
        fill(bench, name)
        for number in (0, 2):
            bench.check(number)
    assert bench.following[2].number is not None
    for name in NODES[3:]:
        fill(bench, name)
        bench.check(0)
    bench.check(2)


def test_a_node_that_a_class_alone_has_rejected_is_feasible_for_it_again() -> None:
    bench = Bench(far=5)
    for _ in range(2):
        for name in NODES[1:]:
            bench.fixture.report(report(name, 100), name)
        tick(bench.fixture, NOW)
        bench.check(2)
    assert bench.following[2].number is not None
    fill(bench, "n0")
    bench.check(2)
    bench.fixture.take("on-n0")
    for name in NODES[1:]:
        bench.fixture.report(report(name, 200), name)
    tick(bench.fixture, NOW)
    bench.check(2)


def test_members_are_evaluated_together() -> None:
    bench = Bench(far=0)
    for name in NODES[:3]:
        fill(bench, name)
        for number in range(6):
            bench.check(number)
    assert all(evaluation.number is not None for evaluation in bench.following[:6])
    version = bench.batch.version
    for name in NODES[3:5]:
        fill(bench, name)
    bench.following[0].refresh()
    assert bench.batch.version == bench.fixture.view.columns.version > version


def test_a_class_that_is_queried_all_the_time_follows_by_itself() -> None:
    bench = Bench(far=2, old=5)
    for number in (0, 2):
        bench.check(number)
    for name in NODES[:3]:
        fill(bench, name)
    for number in (0, 2):
        bench.check(number)
    begun, columns = bench.batch.version, bench.fixture.view.columns
    behind = []
    for name in NODES[3:]:
        fill(bench, name)
        bench.check(0)
        behind.append(columns.version - bench.batch.version)
        assert bench.following[0].number is not None
    assert max(behind) == 5, "evaluated for nobody but who follows anyway"
    assert bench.batch.version > begun, "it would soon have to start anew"
    bench.check(2)


class Broken(BatchKernel):
    def put(self, place: int, pod: PodInfo, state: Any) -> None:
        return

    def evaluate(self, rows: Rows) -> Ints:
        raise ValueError("broken")


def test_after_an_error_each_follows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(far=0)
    with monkeypatch.context() as patched:
        patched.setattr(NodeResourcesFit, "batch_filter", lambda self: Broken())
        for name in NODES[:2]:
            fill(bench, name)
            for number in (0, 1, 4):
                bench.check(number)
        fill(bench, NODES[2])
        with pytest.raises(ValueError, match="broken"):
            bench.following[0].refresh()
        assert bench.following[0].number is None
    for number in (0, 1, 4):
        bench.check(number)


def test_what_is_evaluated_together_is_measured_too() -> None:
    bench, metrics, ticks = Bench(far=0), Metrics(), itertools.count()
    times = PluginTimes("koord-scheduler", SchedulerMetrics(metrics), lambda: float(next(ticks)))
    for name in NODES[:2]:
        fill(bench, name)
        bench.following[0].refresh()
    (evaluating,) = (
        each.in_batch
        for each in bench.following[0].pod_dependent
        if each.origin == (CachedFilterResults, "NodeResourcesFit")
    )
    assert evaluating is not None
    before = evaluating.evaluate
    fill(bench, NODES[2])
    times.refresh(bench.following[0])
    labels = {"plugin": "NodeResourcesFit", "extension_point": "Filter", "status": "Success"}
    assert metrics.registry.get_sample_value("scheduler_plugin_execution_duration_seconds_sum", labels) == 1
    assert evaluating.evaluate == before


@pytest.mark.parametrize("far", [0, 10])
def test_the_cluster_grows_beyond_what_there_was_capacity_for(far: int) -> None:
    bench = Bench(far=far)
    for name in NODES[:8]:
        fill(bench, name)
        for number in (0, 2):
            bench.check(number)
    for count in (1, 30, 60, 90):
        for index in range(count):
            bench.fixture.set_node(node(f"more-{count}-{index}"))
        for number in (0, 1):
            bench.check(number)
        for name in NODES[8:]:
            fill(bench, name)
            bench.fixture.take(f"on-{name}")
        for number in (1, 2, 3):
            bench.check(number)


def test_a_class_that_is_alone_leaves_the_batch_and_joins_it_again_with_others() -> None:
    bench = Bench(far=2)
    bench.check(0)
    for name in NODES[:3]:
        fill(bench, name)
    bench.check(0)
    found = [bench.following[0].number]
    for number in range(150):
        name = NODES[4 + number % 2]
        fill(bench, name)
        bench.check(0)
        bench.fixture.take(f"on-{name}")
        bench.check(0)
    found.append(bench.following[0].number)
    for name in NODES[:4]:
        bench.fixture.report(report(name, 100), name)
    tick(bench.fixture, NOW)
    bench.check(0)
    found.append(bench.following[0].number)
    assert found == [0, None, 0]
