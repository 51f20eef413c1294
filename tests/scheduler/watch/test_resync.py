"""An event handler that failed on an event: it learns what it has missed, and nobody else notices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from koordinator.api.kinds import NODE_METRICS, POD_DISRUPTION_BUDGETS, Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.workload import PodDisruptionBudget
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.resync import TRIES
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.recording import one_node
from tests.scheduler.running_scheduler import RunningScheduler, simulate


class Copy(FilterPlugin, EventHandler):
    """Keeps a copy of the whole cluster, and fails on whatever ``broken`` names. At most two pods a node."""

    name = "Copy"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.PODS,)
    watches: ClassVar[tuple[Kind[Any], ...]] = (POD_DISRUPTION_BUDGETS,)
    node_objects: ClassVar[tuple[Kind[Any], ...]] = (NODE_METRICS,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.nodes: dict[int, str] = {}
        self.pods: dict[int, set[str]] = {}
        self.metrics: dict[int, str] = {}
        self.budgets: dict[str, str] = {}
        self.broken: frozenset[str] = frozenset()
        self.calls = 0

    def _called(self, point: str) -> None:
        self.calls += 1
        if point in self.broken:
            raise RuntimeError("disk full")

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array([len(self.pods.get(row, ())) >= 2 for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> list[Reason]:
        return [Reason("two pods are enough")]

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE})

    def on_node(self, row: int, node: Node) -> None:
        self._called("on_node")
        self.nodes[row] = node.metadata.name

    def on_node_removed(self, row: int, name: str) -> None:
        self._called("on_node_removed")
        for known in (self.nodes, self.pods, self.metrics):
            known.pop(row, None)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        self._called("on_pod_assigned")
        if row in self.nodes:
            self.pods.setdefault(row, set()).add(pod.key)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self._called("on_pod_removed")
        self.pods.get(row, set()).discard(pod.key)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        self._called("on_node_object")
        self.metrics.pop(row, None)
        if obj is not None:
            self.metrics[row] = obj.metadata.resource_version

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        self._called("on_object")
        if old is not None:
            assert self.budgets.pop(key) == old.metadata.name
        if new is not None:
            assert key not in self.budgets
            self.budgets[key] = new.metadata.name


def copying(view: ClusterView) -> Profile:
    base = make_profile(view)
    order = replace(base.order, filter=(*base.order.filter, "Copy"))
    return Profile(base.scheduler_name, {**base.plugins, "Copy": Copy(None, view)}, order)


def copy_of(fixture: RunningScheduler) -> Copy:
    plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Copy"]
    assert isinstance(plugin, Copy)
    return plugin


def is_true(fixture: RunningScheduler) -> bool:
    """Whether the copy shows what is."""
    copy, view, objects = copy_of(fixture), fixture.scheduler.state.view, fixture.api.objects
    rows = {row: name for name, row in view.columns.row_of.items()}
    pods = {row: {pod.key for pod in on.values()} for row, on in view.pods_on.items() if on}
    metrics = {view.columns.row_of[name]: obj.metadata.resource_version for name, obj in objects("nodemetrics").items()}
    return (
        copy.nodes == rows
        and {row: known for row, known in copy.pods.items() if known} == pods
        and copy.metrics == metrics
        and set(copy.budgets) == set(objects("poddisruptionbudgets"))
    )


def put_metric(fixture: RunningScheduler) -> None:
    fixture.api.store(NodeMetric(metadata=ObjectMeta(name="a", uid="m")), NODE_METRICS)


def put_budget(fixture: RunningScheduler) -> None:
    metadata = ObjectMeta(name="b", namespace="default", uid="b")
    fixture.api.store(PodDisruptionBudget(metadata=metadata), POD_DISRUPTION_BUDGETS)


def replace_node(fixture: RunningScheduler) -> None:
    """Its row is given to the next node."""
    fixture.api.drop("pods", "default/there")
    fixture.api.drop("nodes", "a")
    fixture.api.drop("nodemetrics", "a")
    fixture.api.store(make_node("b"))
    fixture.api.store(make_pod("new", node="b"))


def put_node(fixture: RunningScheduler) -> None:
    fixture.api.store(make_node("c"))
    fixture.api.store(make_pod("q", node="c"))


def put_and_remove_budget(fixture: RunningScheduler) -> None:
    put_budget(fixture)
    fixture.api.drop("poddisruptionbudgets", "default/b")


def put_budget_twice(fixture: RunningScheduler) -> None:
    put_budget(fixture)
    put_budget(fixture)


STORIES: dict[str, Callable[[RunningScheduler], None]] = {
    "on_node": put_node,
    "on_node_removed": replace_node,
    "on_pod_assigned": lambda fixture: fixture.api.store(make_pod("q", node="a")),
    "on_pod_removed": lambda fixture: fixture.api.drop("pods", "default/there"),
    "on_node_object": put_metric,
    "on_object": put_budget,
    "gone again": put_and_remove_budget,
    "changed": put_budget_twice,
}


@pytest.mark.parametrize("point", STORIES)
def test_it_learns_what_it_has_missed(point: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("there", node="a"))
        put_metric(fixture)
        await fixture.until_idle()
        copy = copy_of(fixture)
        copy.broken = frozenset({point if point.startswith("on_") else "on_object"})
        STORIES[point](fixture)
        await fixture.until_idle()
        assert not is_true(fixture) or point == "gone again"
        copy.broken = frozenset()
        await fixture.until_idle(2)
        await fixture.until_idle(2)
        assert is_true(fixture)
        assert fixture.registry.get_sample_value(RESYNCS, {"plugin": "Copy", "result": "success"}) == 1
        calls = copy.calls
        await fixture.until_idle(600)
        assert copy.calls == calls

    simulate(story, one_node, copying)


RESYNCS = "scheduler_plugin_resyncs_total"


def test_a_pod_that_was_rejected_by_what_was_missed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for name in ("one", "two"):
            fixture.api.store(make_pod(name, node="a"))
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        copy_of(fixture).broken = frozenset({"on_pod_removed"})
        fixture.api.drop("pods", "default/one")
        await fixture.until_idle(3)
        assert "p" not in fixture.api.placed()
        copy_of(fixture).broken = frozenset()
        await fixture.until_idle(10)
        assert fixture.api.placed()["p"] == "a"

    with caplog.at_level(logging.INFO):
        simulate(story, one_node, copying)
    said = [record.message for record in caplog.records if "Copy" in record.message]
    assert said == [
        "plugin Copy failed in on_pod_removed and is notified again later: RuntimeError: disk full",
        "plugin Copy has been notified of all that it had missed",
    ]


def test_one_that_goes_on_failing_is_reported_again_a_limited_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle()
        copy_of(fixture).broken = frozenset({"on_node_object"})
        put_metric(fixture)
        for _ in range(40):
            await fixture.until_idle(60)
        labels = {"plugin": "Copy", "method": "on_node_object"}
        assert fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) == 1 + TRIES
        assert fixture.registry.get_sample_value(RESYNCS, {"plugin": "Copy", "result": "error"}) == 1
        assert not fixture.scheduler.state.stale_handlers
        copy_of(fixture).broken = frozenset()
        put_metric(fixture)
        await fixture.until_idle()
        assert is_true(fixture)

    simulate(story, one_node, copying)
    said = [record.message for record in caplog.records if "Copy" in record.message]
    assert said == [
        "plugin Copy failed in on_node_object and is notified again later: RuntimeError: disk full",
        f"plugin Copy failed {TRIES} more times and is not notified again: it may be out of date until the next event",
    ]


def test_on_a_standby_too() -> None:
    async def run() -> None:
        fixture = RunningScheduler(one_node(), copying)
        watching = asyncio.create_task(fixture.scheduler.watch())
        copy_of(fixture).broken = frozenset({"on_node"})
        await fixture.until_idle()
        copy_of(fixture).broken = frozenset()
        await fixture.until_idle(5)
        assert is_true(fixture)
        watching.cancel()

    asyncio.run(run())
