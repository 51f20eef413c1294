"""Load columns followed event by event, beside the same computed anew from what is known in the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import USAGE_THRESHOLDS
from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod, PodCondition, PodStatus
from koordinator.model.huge_pages import huge_page_pool
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.plugins.load_aware.load_columns import LoadColumns
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.load_aware.settings import Settings
from tests.examples import examples
from tests.scheduler.fakes import make_node, make_pod, make_state
from tests.scheduler.simulating import simulating

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = ("n0", "n1")
PODS = ("p0", "p1", "p2")
WINDOW = {"usageAggregationType": "p95", "usageAggregatedDuration": "5m"}
SCORE_WINDOW = {"scoreAggregationType": "p95", "scoreAggregatedDuration": "10m"}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"prodUsageThresholds": {"cpu": 30}, "scoreAccordingProdUsage": True, "prodUsageIncludeSys": True},
    {"filterExpiredNodeMetrics": False, "estimatedSecondsAfterPodScheduled": 90},
    {"enableScheduleWhenNodeMetricsExpired": True, "scoreAccordingProdUsage": True},
    {"aggregated": {"usageThresholds": {"cpu": 50}, **WINDOW}},
    {"aggregated": {"usageThresholds": {"cpu": 50}, **WINDOW, **SCORE_WINDOW}, "prodUsageThresholds": {"cpu": 9}},
)
ANNOTATIONS: tuple[dict[str, Any], ...] = (
    {"usageThresholds": {"cpu": 40}, "prodUsageThresholds": {"memory": 20}},
    {"aggregatedUsage": {"usageThresholds": {"cpu": 30}, "usageAggregationType": "p95"}},
    {"usageThresholds": {"cpu": 0, "memory": 0}},
)
STEPS = st.lists(
    st.sampled_from(
        [
            "node",
            "report",
            "assume",
            "assume",
            "confirm",
            "confirm",
            "confirm",
            "forget",
            "remove",
            "leave",
            "later",
            "finish",
        ]
    ),
    min_size=10,
    max_size=25,
)
SEEDS = st.integers(0, 1 << 32)


def arguments(variant: dict[str, Any]) -> LoadAwareSchedulingArgs:
    return convert(variant, LoadAwareSchedulingArgs).completed("args")


class Cluster:
    """Nodes, reports and pods at random; not drawn by hypothesis, which would take most of the time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = START
        self.args = arguments(self.random.choice(VARIANTS))
        self.state: ClusterState = make_state()
        self.plugin = LoadAwareScheduling(self.args, self.state.view)
        self.state.add_event_handlers([self.plugin])
        for name in NODES:
            self.state.set_node(self.node(name))
            self.state.set_node_object("NodeMetric", name, self.metric(name))

    def number(self, most: int) -> int:
        return self.random.randint(0, most)

    def take(self, step: str) -> None:
        if step == "later":
            self.now += timedelta(seconds=self.number(100))
        self.state.view.now = self.now
        name = NODES[self.number(len(NODES) - 1)]
        uid = f"uid-{PODS[self.number(len(PODS) - 1)]}"
        if step == "node":
            self.state.set_node(self.node(name))
        elif step == "leave":
            self.state.remove_node(name)
        elif step == "report":
            self.state.set_node_object("NodeMetric", name, self.metric(name) if self.number(5) else None)
        elif step == "forget":
            self.state.forget(uid)
        elif step == "remove":
            self.state.remove_pod(uid)
        elif step != "later":
            pod = make_pod_info(self.pod(uid, step))
            place = self.state.assume if step == "assume" else self.state.set_pod
            place(pod, self.state.node_of(uid) or name)
        self.plugin.on_time(self.now)

    def node(self, name: str) -> Node:
        capacity = {"hugepages-2Mi": f"{self.number(2) * 700}Mi"}
        node = make_node(name, cpu=str(self.number(3) * 4), memory=f"{self.number(2) * 8}Gi", capacity=capacity)
        if not (variant := self.number(len(ANNOTATIONS))):
            return node
        annotations = {USAGE_THRESHOLDS: msgspec.json.encode(ANNOTATIONS[variant - 1]).decode()}
        return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))

    def metric(self, name: str) -> NodeMetric:
        updated = None if not self.number(5) else self.moment()
        windows = [{"duration": "5m", "usage": {"p95": self.usage()}} for _ in range(self.number(1))]
        info = {"nodeUsage": self.usage(), "systemUsage": self.usage(), "aggregatedNodeUsages": windows}
        pods = [
            {
                "namespace": "default",
                "name": pod,
                "podUsage": self.usage(100),
                "priority": ("koord-prod", "koord-batch")[self.number(1)],
            }
            for pod in PODS
            if self.number(1)
        ]
        status = {"updateTime": updated, "nodeMetric": info if self.number(7) else None, "podsMetric": pods}
        return convert({"metadata": {"name": name}, "status": status}, NodeMetric)

    def usage(self, unit: int = 1000) -> dict[str, Any]:
        return {"resources": {"cpu": f"{self.number(3) * unit}m", "memory": f"{self.number(3) * unit}Mi"}}

    def moment(self) -> datetime:
        return self.now - timedelta(seconds=self.number(240))

    def pod(self, uid: str, step: str) -> Pod:
        # Most changes of a pod are those of its status.
        kind = PODS.index(uid.removeprefix("uid-")) if self.number(3) else self.number(2)
        pod = make_pod(uid.removeprefix("uid-"), cpu=("500m", "2", "0")[kind], priority=(9500, 5500, 0)[kind])
        conditions = []
        if step != "assume" and self.number(3):
            conditions = [PodCondition(type="PodScheduled", status="True", last_transition_time=self.moment())]
        phase = "Succeeded" if step == "finish" else "Pending"
        return msgspec.structs.replace(pod, status=PodStatus(phase=phase, conditions=conditions))

    def columns_anew(self) -> LoadColumns:
        """From nodes, reports and pods as they are in the end."""
        settings, plugin = Settings(self.args), self.plugin
        anew = LoadColumns(settings)
        for row in self.state.view.columns.row_of.values():
            thresholds = plugin._thresholds[row]
            node = self.state.view.columns.nodes[row]
            assert node is not None
            anew.write_node(row, plugin._columns.limits_of[row][-1], thresholds, huge_page_pool(node))
            known = plugin._nodes.get(row)
            if known is not None:
                anew.write_report_time(row, known.metric.expires_from if known.metric else None, self.now.timestamp())
            anew.conclude(row, NodeLoad(known.width, known.metric, dict(known.pods)) if known is not None else None)
        return anew


def numbers(columns: LoadColumns, row: int) -> tuple[list[list[int]], list[list[int]]]:
    """What decisions read of a row, which the matrices say as well."""
    remaining, free = ([list(amounts) for amounts in left[row]] for left in (columns.remaining_of, columns.free_of))
    assert columns.remaining[:, :, row].tolist() == remaining
    assert columns.free[:, :, row].tolist() == [[100.0 * amount for amount in amounts] for amounts in free]
    return remaining, free


@settings(max_examples=examples(120), deadline=None)
@given(SEEDS, STEPS)
def test_followed_columns_are_those_computed_anew(seed: int, steps: list[str]) -> None:
    cluster = Cluster(seed)
    for step in steps:
        cluster.take(step)
        anew, cross_node = cluster.columns_anew(), cluster.plugin._columns
        for row in cluster.state.view.columns.row_of.values():
            assert numbers(cross_node, row) == numbers(anew, row)


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS, STEPS)
def test_a_row_whose_numbers_change_is_touched(seed: int, steps: list[str]) -> None:
    cluster = Cluster(seed)
    nodes, columns = cluster.state.view.columns, cluster.plugin._columns
    for step in steps:
        before = {row: numbers(columns, row) for row in nodes.row_of.values()}
        version = nodes.version
        cluster.take(step)
        touched = nodes.changes_since(version, 100)
        assert touched is not None
        assert {row for row, known in before.items() if known != numbers(columns, row)} <= touched.keys()


def test_simulating_leaves_the_numbers_as_they_were() -> None:
    state = make_state()
    state.view.now = START
    plugin = LoadAwareScheduling(arguments({}), state.view)
    state.add_event_handlers([plugin])
    state.set_node(make_node("n0"))
    usage = {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
    metric = {"metadata": {"name": "n0"}, "status": {"updateTime": START, "nodeMetric": usage}}
    state.set_node_object("NodeMetric", "n0", convert(metric, NodeMetric))
    there, more = (make_pod_info(make_pod(name)) for name in ("p0", "p1"))
    state.set_pod(there, "n0")
    before = numbers(plugin._columns, 0)
    with simulating(state, 0, [there], [more, make_pod_info(make_pod("p2"))]):
        assert numbers(plugin._columns, 0) != before
    assert numbers(plugin._columns, 0) == before


@pytest.mark.parametrize(("system", "passes"), [("50Gi", True), ("57Gi", False)])
@pytest.mark.parametrize("node_first", [True, False])
def test_the_pool_of_huge_pages_is_no_load_of_prod_pods(system: str, passes: bool, node_first: bool) -> None:
    """Of 64 GiB, 48 are huge pages, which the allocatable of 16 GiB does not contain and the system's usage does."""
    args = arguments({"prodUsageThresholds": {"memory": 50}, "prodUsageIncludeSys": True})
    state = make_state()
    plugin = LoadAwareScheduling(args, state.view)
    state.add_event_handlers([plugin])
    state.view.now = START
    usage = {"resources": {"cpu": "1", "memory": "2Gi"}}
    info = {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": "1", "memory": system}}}
    metric = convert({"metadata": {"name": "n0"}, "status": {"updateTime": START, "nodeMetric": info}}, NodeMetric)
    with_pool = make_node("n0", memory="16Gi", capacity={"memory": "64Gi", "hugepages-1Gi": "48Gi"})
    # A kubelet that is restarted reports the pool for the first time.
    state.set_node(with_pool if node_first else make_node("n0", memory="16Gi"))
    state.set_node_object("NodeMetric", "n0", metric)
    state.set_node(with_pool)
    pod = make_pod_info(make_pod("p0", memory="1Gi", priority=9500))
    state_of_pod = plugin.pre_filter(pod).state
    assert (plugin.filter_one(pod, state_of_pod, 0) == 0) is passes
