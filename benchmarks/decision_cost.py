"""What one decision costs by the number of nodes, and what remembering why costs, in this process without any API.

Every node is filtered and scored for every pod, with the profile of the scheduler benchmark and node metrics present.
``equal`` pods are replicas, ``different`` ones share nothing. The growth exponent is the slope of log cost over log
nodes: at most 1 means that cost grows no faster than linearly. Costs are CPU microseconds of ``decide`` and ``assume``.

Records are what explanations are made from: the best nodes with each plugin's score, and the log of attempts. Their
share of throughput is their cost over all CPU that the running scheduler spends on a pod, which ``--whole`` gives: take
the CPU per pod that the scheduler benchmark prints.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from benchmarks import pod_mixes, workload
from benchmarks.figures import growth_exponent
from benchmarks.pod_mixes import Document
from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.cycle.loop import DecisionLog
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Attempt, Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN

_PROFILE: Final = Path(__file__).parent / "scheduler_profile.yaml"
_SIZES: Final = (1000, 2000, 5000, 10_000, 20_000)
_TURN: Final = 50


class WithoutRecords(Engine):
    """Decides the same and remembers nothing about it."""

    def _placement(self, state: CycleState, profile: Profile, evaluation: Evaluation, row: int, tied: int) -> Placement:
        assert state.node is not None, "a placement has a node"
        size = self._state.view.columns.size
        return Placement(state, state.pod, profile, state.node, size, evaluation.feasible_count, (), (), ())


@dataclass(frozen=True, slots=True)
class ClusterFixture:
    """A cluster in memory, an engine that decides on it, and how pods get into it."""

    engine: Engine
    facts: PodFacts
    now: datetime

    def pods(self, documents: Sequence[Document]) -> list[PodInfo]:
        return [self.facts.of(convert(_named(document), Pod), None) for document in documents]

    def place(self, pod: PodInfo) -> Placement:
        result = self.engine.decide(pod, self.now)
        assert isinstance(result, Placement), result.message
        self.engine.assume(result)
        return result


def make_fixture(nodes: int, engine: type[Engine] = Engine) -> ClusterFixture:
    view, now = ClusterView(NodeColumns()), datetime.now(UTC)
    view.now = now
    state = ClusterState(view)
    configuration = parse_configuration(_PROFILE.read_text(), _PROFILE.name)
    (profile,) = build_profiles(configuration, BUILT_IN, view)
    state.add_event_handlers(profile.event_handlers)
    for number in range(nodes):
        document = workload.node(number)
        name = document["metadata"]["name"]
        metric = {"metadata": {"name": name}, "status": workload.node_metric_status(number, now)}
        state.set_node(convert(document, Node))
        state.set_node_object(NODE_METRICS.name, name, convert(metric, NodeMetric))
    facts = PodFacts(make_pod_info, lambda _: profile.treats_equals_alike)
    return ClusterFixture(engine(profile, state, Random(1)), facts, now)


def cost_of(nodes: int, documents: Sequence[Document]) -> float:
    """CPU microseconds of a decision with its assumption."""
    fixture = make_fixture(nodes)
    pods = fixture.pods(documents)
    return median_cost([_timed(fixture.place, turn) for turn in _turns(pods)])


def cost_of_records(nodes: int, documents: Sequence[Document]) -> tuple[float, float]:
    """CPU microseconds of a decision with and without its record; both take turns, so that moods hit both."""
    recorded, bare = make_fixture(nodes), make_fixture(nodes, WithoutRecords)
    log = DecisionLog()

    def decide_and_record(pod: PodInfo) -> None:
        placement = recorded.place(pod)
        log.add(pod.key, Attempt(recorded.now, 1, placement=placement))

    turns = zip(_turns(recorded.pods(documents)), _turns(bare.pods(documents)), strict=True)
    costs = [(_timed(decide_and_record, one), _timed(bare.place, other)) for one, other in turns]
    return median_cost([cost for cost, _ in costs]), median_cost([cost for _, cost in costs])


def median_cost(turns: Sequence[float]) -> float:
    """The first turn warms up and does not count."""
    return statistics.median(turns[1:])


def _turns(pods: Sequence[PodInfo]) -> list[Sequence[PodInfo]]:
    return [pods[start : start + _TURN] for start in range(0, len(pods), _TURN)]


def _timed(decide: Callable[[PodInfo], object], pods: Sequence[PodInfo]) -> float:
    """CPU microseconds a pod."""
    started = time.thread_time()
    for pod in pods:
        decide(pod)
    return (time.thread_time() - started) * 1e6 / len(pods)


def _named(document: Document) -> Document:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "namespace": "default", "uid": f"uid-of-{metadata['name']}"}}


def growth(sizes: Sequence[int], pods: dict[str, Sequence[Document]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind, documents in pods.items():
        costs = [cost_of(size, documents) for size in sizes]
        exponent = growth_exponent(sizes, costs) if len(sizes) > 1 else None
        found[kind] = {
            "microseconds": {str(size): round(cost, 1) for size, cost in zip(sizes, costs, strict=True)},
            "growth_exponent": None if exponent is None else round(exponent, 2),
            "no_faster_than_linear": None if exponent is None else exponent <= 1,
        }
    return found


def records(nodes: int, documents: Sequence[Document], whole: float | None) -> dict[str, object]:
    with_records, without = cost_of_records(nodes, documents)
    cost = with_records - without
    found: dict[str, object] = {
        "nodes": nodes,
        "microseconds": round(cost, 1),
        "decision_without_records": round(without, 1),
    }
    if whole is not None:
        found |= {"of_all_cpu_per_pod": round(cost / whole, 3), "under_5_percent": cost < 0.05 * whole}
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=_SIZES, help="cluster sizes")
    parser.add_argument("--equal", type=int, default=2000, help="equal pods (default 2000)")
    parser.add_argument("--different", type=int, default=300, help="different pods (default 300)")
    parser.add_argument("--records-at", type=int, default=5000, help="nodes where records are measured (default 5000)")
    parser.add_argument("--whole", type=float, help="CPU microseconds a pod of the running scheduler")
    options = parser.parse_args(arguments)
    if min(options.equal, options.different) <= _TURN:
        parser.error(f"--equal and --different must be more than {_TURN}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    equal, different = pod_mixes.equal(options.equal), pod_mixes.different(options.different)
    report = {
        "benchmark": "decision_cost",
        **growth(options.nodes, {"equal": equal, "different": different}),
        "records": records(options.records_at, equal, options.whole),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    # As the scheduler does it.
    gc.set_threshold(50_000, 50, 100)
    sys.exit(main())
