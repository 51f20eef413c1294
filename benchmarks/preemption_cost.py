"""What making room by eviction costs, by the number of nodes, in this process without any API.

All nodes are full of unimportant pods, four on each; more important ones, each of which needs as much as three of them,
come one after the other. Each is decided about, its victims are gone ``--lag`` pods later, and it is decided about
again. Costs are CPU microseconds a pod: of the decision that finds victims, and of the one that takes the free capacity
with its assumption.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN

T = TypeVar("T")

_CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
"""
_SIZES: Final = (200, 1000, 5000)
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds a pod."""

    finding_victims: float
    taking_capacity: float


class FullCluster:
    """Nodes without free capacity for anybody, in memory, and an engine with the default plugins."""

    def __init__(self, nodes: int) -> None:
        self.view = ClusterView(NodeColumns())
        self.view.now = _BEGIN
        self.state = ClusterState(self.view)
        (profile,) = build_profiles(parse_configuration(_CONFIGURATION, ""), BUILT_IN, self.view)
        self.state.add_event_handlers(profile.event_handlers)
        self.engine = Engine(profile, self.state, Random(1))
        self._facts = PodFacts(make_pod_info, lambda _: profile.treats_equals_alike)
        for number in range(nodes):
            name = f"node-{number:05}"
            allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
            self.state.set_node(convert({"metadata": {"name": name}, "status": {"allocatable": allocatable}}, Node))
            for place in range(4):
                pod = self.pod(f"low-{number:05}-{place}", cpu="900m", priority=0, age=4 * number + place, node=name)
                self.state.set_pod(pod, name)

    def pod(self, name: str, *, cpu: str, priority: int, age: int = 0, node: str = "") -> PodInfo:
        requests = {"cpu": cpu, "memory": "500Mi"}
        started = (_BEGIN + timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
        document: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
            "spec": {
                "schedulerName": "default-scheduler",
                "nodeName": node,
                "priority": priority,
                "containers": [{"name": "pause", "resources": {"requests": requests}}],
            },
            "status": {"startTime": started} if node else {},
        }
        return self._facts.of(convert(document, Pod), None)


def costs_of(nodes: int, pods: int, lag: int) -> Costs:
    """For ``pods`` that preempt, with the promises of ``lag`` others being open all the time."""
    cluster = FullCluster(nodes)
    timer = _Timer()
    finding = taking = 0.0
    open_nominations: deque[tuple[PodInfo, Rejection]] = deque()
    for number in range(pods):
        pod = cluster.pod(f"high-{number:05}", cpu="3", priority=10)
        rejection, seconds = timer.of(partial(cluster.engine.decide, pod, _BEGIN))
        finding += seconds
        assert isinstance(rejection, Rejection)
        assert rejection.after.nominated_node
        cluster.view.nominations.set(pod, rejection.after.nominated_node)
        open_nominations.append((pod, rejection))
        if len(open_nominations) > lag:
            taking += _take(cluster, timer, *open_nominations.popleft())
    while open_nominations:
        taking += _take(cluster, timer, *open_nominations.popleft())
    return Costs(finding * 1e6 / pods, taking * 1e6 / pods)


def _take(cluster: FullCluster, timer: _Timer, pod: PodInfo, rejection: Rejection) -> float:
    for victim in rejection.after.victims:
        cluster.state.remove_pod(victim.uid)

    def take() -> None:
        placement = cluster.engine.decide(pod, _BEGIN)
        assert isinstance(placement, Placement)
        assert placement.node_name == rejection.after.nominated_node
        cluster.engine.assume(placement)

    _, seconds = timer.of(take)
    cluster.view.nominations.remove(pod.uid)
    return seconds


class _Timer:
    def of(self, work: Callable[[], T]) -> tuple[T, float]:
        started = time.thread_time()
        result = work()
        return result, time.thread_time() - started


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=_SIZES, help="cluster sizes")
    parser.add_argument("--pods", type=int, default=200, help="pods that preempt (default 200)")
    parser.add_argument("--lag", type=int, default=50, help="promises open at a time (default 50)")
    options = parser.parse_args(arguments)
    if min(options.nodes) < options.pods:
        parser.error("each pod needs the room of a node: --pods must not be more than --nodes")
    found = {}
    for nodes in options.nodes:
        rounds = [costs_of(nodes, options.pods, options.lag) for _ in range(_ROUNDS)]
        found[str(nodes)] = {
            "finding_victims": round(min(each.finding_victims for each in rounds), 1),
            "taking_capacity": round(min(each.taking_capacity for each in rounds), 1),
        }
    print(json.dumps({"benchmark": "preemption_cost", "microseconds": found, "open_nominations": options.lag}))
    return 0


if __name__ == "__main__":
    # As the scheduler does it.
    gc.set_threshold(50_000, 50, 100)
    sys.exit(main())
