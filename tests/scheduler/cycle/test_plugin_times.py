"""One decision of ten measures how long plugins take, and none is evaluated otherwise for it."""

from __future__ import annotations

import itertools

import pytest

from koordinator.base.metrics import Metrics
from koordinator.scheduler.cycle.measurement import PluginTimes
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugins.node_unschedulable import NodeUnschedulable
from tests.scheduler.explain.scene import Scene, make_node, make_pod


class Timed:
    """Each call of a plugin takes one second of this clock."""

    def __init__(self) -> None:
        self.scene = Scene(make_node("a"), make_node("b"))
        self.metrics = Metrics()
        ticks = itertools.count()
        self.times = PluginTimes("koord-scheduler", SchedulerMetrics(self.metrics), lambda: float(next(ticks)))
        self.scene.engine.measure = self.times.refresh

    def decide(self, decisions: int) -> None:
        """Each evaluates a node again."""
        for number in range(decisions):
            self.scene.view.columns.touch(0, Aspect.NODE)
            self.scene.engine.decide(self.scene.info(make_pod(f"p{number}")), self.scene.now)

    def evaluation(self, number: int) -> Evaluation:
        info = self.scene.info(make_pod(f"p{number}"))
        return Evaluation(self.scene.profile, self.scene.view, info)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def test_nine_decisions_measure_nothing() -> None:
    timed = Timed()
    timed.decide(9)
    name = "scheduler_framework_extension_point_duration_seconds_count"
    assert timed.value(name, extension_point="Filter", status="Success", profile="koord-scheduler") is None


def test_the_tenth_measures_each_plugin_that_was_called() -> None:
    timed = Timed()
    timed.decide(10)
    name = "scheduler_plugin_execution_duration_seconds_sum"
    taken = timed.value(name, plugin="NodeUnschedulable", extension_point="Filter", status="Success")
    assert taken is not None
    assert taken >= 1


def test_a_point_takes_as_long_as_its_plugins_together() -> None:
    timed = Timed()
    timed.decide(10)
    in_batch = timed.value(
        "scheduler_framework_extension_point_duration_seconds_sum",
        extension_point="Score",
        status="Success",
        profile="koord-scheduler",
    )
    alone = [
        sample.value
        for family in timed.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "scheduler_plugin_execution_duration_seconds_sum"
        and sample.labels["extension_point"] == "Score"
    ]
    assert in_batch == sum(alone)


def test_what_is_measured_is_evaluated_as_always() -> None:
    timed = Timed()
    measured, plain = timed.evaluation(1), timed.evaluation(2)
    timed.times.refresh(measured)
    plain.refresh()
    assert measured.totals.tolist() == plain.totals.tolist()


def test_a_plugin_that_raises_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed()

    def broken(plugin: NodeUnschedulable, pod: PodInfo, state: object, rows: Rows) -> Ints:
        raise ZeroDivisionError

    monkeypatch.setattr(NodeUnschedulable, "filter", broken)
    evaluation = timed.evaluation(10)
    with pytest.raises(ZeroDivisionError):
        timed.times.refresh(evaluation)
    assert all(type(entry.plugin).__name__ == entry.plugin.name for entry in evaluation.plan.filters)


def test_a_plugin_that_raises_is_measured_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed()

    def broken(plugin: NodeUnschedulable, pod: PodInfo, state: object, rows: Rows) -> Ints:
        raise ZeroDivisionError

    monkeypatch.setattr(NodeUnschedulable, "filter", broken)
    with pytest.raises(ZeroDivisionError):
        timed.times.refresh(timed.evaluation(10))
    of_plugin, of_point = "scheduler_plugin_execution_duration", "scheduler_framework_extension_point_duration"
    labels = {"extension_point": "Filter", "status": "Error"}
    assert timed.value(f"{of_plugin}_seconds_count", plugin="NodeUnschedulable", **labels) == 1
    assert timed.value(f"{of_point}_seconds_count", profile="koord-scheduler", **labels) == 1
