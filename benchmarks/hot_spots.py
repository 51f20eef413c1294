"""A simulated day: hot spots with and without what the recommender has learned on the day before, with the same pods.

usage: python -m benchmarks.hot_spots [--nodes 20] [--days 5] [--hours 24] [--seed 1]

Workloads use little for most of the day and much for three hours, most of them in office hours and each at an hour of
its own; requests say little about either. Every hour two workloads are rolled out anew. The four combinations are made
of the programs' own parts: the scheduler's engine with its default plugins and LoadAwareScheduling, the model of the
recommender, and LowNodeLoad every ten minutes. Nodes report every five minutes. Days are independent of each other.

hot         node hours with more than 70 percent of the CPUs in use, for a day
full        node hours with more than 90 percent
evictions   pods that LowNodeLoad has moved, for a day
pending     pod hours without a node, for a day
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, cast

from benchmarks.descheduler_cycle import Permissive, carried_out
from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS, RECOMMENDATIONS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.recommendation import Recommendation
from koordinator.descheduler.framework import Handle, Snapshot
from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition, LowNodeLoadArgs
from koordinator.descheduler.plugins.low_node_load.plugin import LowNodeLoad
from koordinator.manager.recommender.container_model import ContainerModel
from koordinator.manager.recommender.estimate import estimate
from koordinator.manager.recommender.options import EstimateOptions, ModelOptions
from koordinator.manager.recommender.policy import ContainerRules
from koordinator.model.recommendations import RecommendationIndex
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.recommending import recommendation

_CORES: Final = 16
_PODS_OF_A_NODE: Final = 16
_STEP: Final = timedelta(minutes=5)
_STEPS: Final = 288
_CYCLE: Final = 2
"""Steps from one cycle of the descheduler to the next."""
_PARTS: Final = 12
_PEAK_HOURS: Final = 3
_EXPECTED_HIGH: Final = 90.0
_HOT: Final = 0.7
_FULL: Final = 0.9
_START: Final = datetime(2026, 5, 4, tzinfo=UTC)
_NAMES: Final = ("neither", "scheduler", "descheduler", "both")
_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: koord-scheduler
    plugins:
      filter: {enabled: [{name: LoadAwareScheduling}]}
      score: {enabled: [{name: LoadAwareScheduling, weight: 1}]}
    pluginConfig:
      - name: LoadAwareScheduling
        args: {estimator: ESTIMATOR}
"""


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    replicas: int
    request: float
    idle: float
    peak: float
    hour: float
    """At which its peak begins."""

    def usage(self, at: datetime, random: Random) -> float:
        """The cores that one of its pods uses."""
        hour = at.hour + at.minute / 60
        used = self.peak if (hour - self.hour) % 24 < _PEAK_HOURS else self.idle
        return used * random.uniform(0.85, 1.15)


def make_workloads(nodes: int, random: Random) -> list[Workload]:
    made: list[Workload] = []
    pods = nodes * _PODS_OF_A_NODE
    while (left := pods - sum(each.replicas for each in made)) > 0:
        hour = random.uniform(8, 17) if random.random() < 2 / 3 else random.uniform(0, 24)
        request = random.choice((0.25, 0.5, 1.0))
        replicas = min(random.randint(4, 20), left)
        peak = random.uniform(0.3, 2.2)
        made.append(Workload(f"w{len(made)}", replicas, request, peak * random.uniform(0.1, 0.3), peak, hour))
    return made


def learned(workload: Workload, random: Random) -> Recommendation:
    """What the recommender says after a day with two of its pods."""
    model = ContainerModel(ModelOptions())
    for step in range(_STEPS):
        at = _START - timedelta(days=1) + step * _STEP
        for uid in "ab":
            model.add_cpu(uid, workload.usage(at, random), at, workload.request)
    target = estimate(model, ContainerRules(), EstimateOptions(), 1)["cpu"].target
    return recommendation(workload.name, {"main": {"cpu": f"{target}m"}}, _START, app=workload.name)


@dataclass(slots=True)
class Day:
    """Counts in steps."""

    hot: int = 0
    full: int = 0
    evictions: int = 0
    pending: int = 0


@dataclass
class Cluster:
    """One combination, over a day."""

    nodes: Sequence[Node]
    workloads: Sequence[Workload]
    recommendations: Sequence[Recommendation]
    random: Random
    estimating: bool
    expecting: bool
    now: datetime = _START
    day: Day = field(default_factory=Day)

    def __post_init__(self) -> None:
        view = ClusterView(NodeColumns())
        view.now = self.now
        self.state = ClusterState(view)
        text = _PROFILE.replace("ESTIMATOR", "recommendedUsageEstimator" if self.estimating else "defaultEstimator")
        (profile,) = build_profiles(parse_configuration(text, "benchmark"), BUILT_IN, view)
        self.state.add_event_handlers(profile.event_handlers)
        self.engine = Engine(profile, self.state, self.random)
        for node in self.nodes:
            self.state.set_node(node)
        self.index = RecommendationIndex()
        for each in self.recommendations:
            self.index.put(each)
            self.state.set_object(RECOMMENDATIONS, each.metadata.key, each)
        args = LowNodeLoadArgs(
            low_thresholds={"cpu": 55},
            high_thresholds={"cpu": 70},
            anomaly_condition=AnomalyCondition(consecutive_abnormalities=1),
            expected_high_thresholds={"cpu": _EXPECTED_HIGH} if self.expecting else None,
        )
        nothing = cast("Any", None)
        handle = Handle("bench", nothing, nothing, Permissive(), nothing, nothing, nothing, nothing)
        self.descheduler = LowNodeLoad(args.completed("args"), handle)
        self.of_pod: dict[str, Workload] = {}
        self.placed: dict[str, Pod] = {}
        self.waiting: list[str] = []
        self.metrics: dict[str, NodeMetric] = {}
        self.made = 0

    def run(self, hours: float) -> Day:
        self.fill()
        for step in range(round(hours * timedelta(hours=1) / _STEP)):
            self.now = _START + step * _STEP
            self.report()
            if step % 12 == 6:
                for workload in self.random.sample(self.workloads, 2):
                    self.roll_out(workload)
            if step % _CYCLE == 0:
                self.deschedule()
            self.schedule()
            self.day.pending += len(self.waiting)
        return self.day

    def fill(self) -> None:
        """On the evening before, in parts, of which nodes report what they use."""
        of_pods = [each for each in self.workloads for _ in range(each.replicas)]
        self.random.shuffle(of_pods)
        for part in range(_PARTS):
            self.now = _START - (_PARTS - part) * _STEP
            self.report()
            self.add(of_pods[part::_PARTS])
        self.day = Day()

    def add(self, of_pods: list[Workload]) -> None:
        self.random.shuffle(of_pods)
        for workload in of_pods:
            self.made += 1
            name = f"{workload.name}-{self.made}"
            self.of_pod[name] = workload
            self.waiting.append(name)
        self.schedule()

    def schedule(self) -> None:
        waiting, self.waiting = self.waiting, []
        for name in waiting:
            pod = _pod(name, self.of_pod[name])
            decision = self.engine.decide(make_pod_info(pod), self.now)
            if not isinstance(decision, Placement):
                self.waiting.append(name)
                continue
            self.engine.assume(decision)
            self.placed[name] = _pod(name, self.of_pod[name], decision.node_name)

    def remove(self, name: str) -> Workload:
        self.placed.pop(name)
        self.state.forget(f"uid-{name}")
        return self.of_pod.pop(name)

    def roll_out(self, workload: Workload) -> None:
        gone = [name for name in self.placed if self.of_pod[name] is workload]
        self.add([self.remove(name) for name in gone])

    def deschedule(self) -> None:
        by_node: dict[str, list[Pod]] = {}
        for pod in self.placed.values():
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        snapshot = Snapshot(self.nodes, by_node, self.now, node_metrics=self.metrics, recommendations=self.index)
        leaving = [eviction.pod.metadata.name for eviction in carried_out(self.descheduler.balance(snapshot))]
        self.day.evictions += len(leaving)
        self.add([self.remove(name) for name in leaving])

    def report(self) -> None:
        """What pods use now, which counts for the day."""
        used: dict[str, dict[str, float]] = {node.metadata.name: {} for node in self.nodes}
        for name, pod in self.placed.items():
            used[pod.spec.node_name][name] = self.of_pod[name].usage(self.now, self.random)
        for node, usages in used.items():
            share = math.fsum(usages.values()) / _CORES
            self.day.hot += share > _HOT
            self.day.full += share > _FULL
            self.metrics[node] = metric = _metric(node, usages, self.now)
            self.state.view.now = self.now
            self.state.set_node_object(NODE_METRICS.name, node, metric)


def _node(number: int) -> Node:
    amounts = {"cpu": str(_CORES), "memory": "64Gi", "pods": "110"}
    document = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": amounts, "capacity": amounts}}
    return convert(document, Node)


def _pod(name: str, workload: Workload, node: str = "") -> Pod:
    requests = {"cpu": f"{round(workload.request * 1000)}m", "memory": "1Gi"}
    labels = {"app": workload.name}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    spec = {"nodeName": node, "schedulerName": "koord-scheduler", "containers": containers, "priority": 9500}
    return convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, Pod)


def _metric(node: str, usages: Mapping[str, float], now: datetime) -> NodeMetric:
    def resources(cores: float) -> dict[str, Any]:
        return {"resources": {"cpu": f"{round(cores * 1000)}m", "memory": "0"}}

    pods = [{"namespace": "default", "name": name, "podUsage": resources(used)} for name, used in usages.items()]
    of_node = {"nodeUsage": resources(math.fsum(usages.values())), "systemUsage": resources(0)}
    status = {"updateTime": now, "nodeMetric": of_node, "podsMetric": pods}
    return convert({"metadata": {"name": node}, "status": status}, NodeMetric)


def compare(nodes: int, days: int, seed: int, hours: float = 24.0) -> dict[str, dict[str, float]]:
    """By combination, the mean of the days, each of so many hours."""
    totals = {name: Day() for name in _NAMES}
    for number in range(days):
        random = Random(f"{seed}/{number}")
        workloads = make_workloads(nodes, random)
        known = [learned(each, random) for each in workloads]
        for name, total in totals.items():
            made = [_node(each) for each in range(nodes)]
            estimating, expecting = name in ("scheduler", "both"), name in ("descheduler", "both")
            day = Cluster(made, workloads, known, Random(f"{seed}/{number}"), estimating, expecting).run(hours)
            total.hot, total.full = total.hot + day.hot, total.full + day.full
            total.evictions, total.pending = total.evictions + day.evictions, total.pending + day.pending
    of_step = _STEP / timedelta(hours=1) / days
    return {
        name: {
            "hot": round(total.hot * of_step, 1),
            "full": round(total.full * of_step, 1),
            "evictions": round(total.evictions / days, 1),
            "pending": round(total.pending * of_step, 1),
        }
        for name, total in totals.items()
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_spots")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--hours", type=float, default=24.0, help="of each day")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    figures = compare(options.nodes, options.days, options.seed, options.hours)
    print(json.dumps({"benchmark": "hot_spots", "nodes": options.nodes, "days": options.days, **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
