"""Scores of nodes for pods that look for others of their kind, beside a plain sort of the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cmp_to_key

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from tests.examples import examples
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.coscheduling.gang_fakes import with_annotations
from tests.scheduler.plugins.coscheduling.network_topology.networks import cluster_network_topology, place
from tests.scheduler.plugins.coscheduling.network_topology.topology_stories import FOUR_BLOCKS

SELECTOR = "scheduling.koordinator.sh/network-topology-selector"


class Cluster:
    """Nodes with room for nine pods each; a profile in which nothing else has a score."""

    def __init__(self, places: Mapping[str, str], *, known: bool = True) -> None:
        self.view = ClusterView(NodeColumns(), network_topology=True)
        self.state = ClusterState(self.view)
        base = make_profile(self.view)
        self.plugin = Coscheduling(CoschedulingArgs(), self.view)
        order = replace(base.order, score=((self.plugin.name, 1),))
        profile = Profile(base.scheduler_name, {**base.plugins, self.plugin.name: self.plugin}, order)
        self.state.add_event_handlers(profile.event_handlers)
        for name, where in places.items():
            self.state.set_node(make_node(name, cpu="9", memory="99Gi", labels=place(where)))
        assert self.plugin.gangs.topology is not None
        if known:
            self.plugin.gangs.topology.set_object(cluster_network_topology())
        self.engine = Engine(profile, self.state, FirstChoice())
        self._number = 0

    def run(self, node: str, kind: str = "llm", cpu: str = "1") -> None:
        """A pod of a kind on the node."""
        self._number += 1
        pod = make_pod(f"runs-{self._number}", node=node, cpu=cpu)
        self.state.set_pod(describe(with_annotations(pod, {SELECTOR: kind})), node)

    def scores(self, kind: str = "llm") -> dict[str, int]:
        """Of all feasible nodes."""
        pod = describe(with_annotations(make_pod("p"), {SELECTOR: kind} if kind else {}))
        result = self.engine.decide(pod, NOW)
        assert isinstance(result, Placement)
        _, evaluation = self.engine._current(pod)
        rows = {name: row for name, row in self.view.columns.row_of.items() if evaluation.feasible[row]}
        return {name: sum(evaluation.scores_of((row,))[0]) for name, row in rows.items()}


def expected(places: Mapping[str, str], existing: Mapping[str, int], feasible: list[str]) -> dict[str, int]:
    """Node by node, as the words of the original say it."""

    def chain(name: str) -> list[str]:
        spine, block = places[name].split("/")
        return [f"node {name}", f"block {spine}/{block}", f"spine {spine}", "all"]

    def count(domain: str, amounts: Mapping[str, int]) -> int:
        return sum(amount for name, amount in amounts.items() if domain in chain(name))

    def compare(one: str, other: str) -> int:
        for ours, theirs in zip(chain(one), chain(other), strict=True):
            if difference := count(theirs, existing) - count(ours, existing):
                return difference
        slots = dict.fromkeys(feasible, 1)
        for ours, theirs in zip(chain(one), chain(other), strict=True):
            if difference := count(ours, slots) - count(theirs, slots):
                return difference
        return -1 if one < other else 1

    ordered = sorted(feasible, key=cmp_to_key(compare))
    last = len(ordered) - 1
    return {name: 100 - (100 * index // last if last else 0) for index, name in enumerate(ordered)}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(["s0/b0", "s0/b1", "s1/b0", "s1/b2"]), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["1", "9"])), max_size=5),
)
def test_scores_are_those_of_a_plain_sort(where: list[str], running: list[tuple[int, str]]) -> None:
    places = {f"n{number}": each for number, each in enumerate(where)}
    cluster = Cluster(places)
    existing: dict[str, int] = {}
    full: set[str] = set()
    for number, cpu in running:
        name = f"n{number % len(where)}"
        cluster.run(name, cpu=cpu)
        existing[name] = existing.get(name, 0) + 1
        full |= {name} if cpu == "9" else set()
    feasible = [name for name in places if name not in full]
    if feasible:
        assert cluster.scores() == expected(places, existing, feasible)


def test_scores_follow_pods_and_nodes() -> None:
    cluster = Cluster(FOUR_BLOCKS)
    cluster.run("n5")
    assert cluster.scores()["n5"] == 100
    cluster.run("n2")
    cluster.run("n3")
    assert [cluster.scores()[name] for name in ("n2", "n3")] == [100, 86]
    cluster.state.set_node(make_node("n3", cpu="9", memory="99Gi", labels=place("s1/b2")))
    assert cluster.scores()["n3"] == 100


def test_nodes_in_no_domain_come_last() -> None:
    scores = Cluster({"x": "/", "n0": "s0/b0", "n1": "s0/b0"}).scores()
    assert (scores["n0"], scores["n1"], scores["x"]) == (100, 50, 0)


@pytest.mark.parametrize(("kind", "known"), [("", True), ("llm", False)], ids=["of no kind", "no network"])
def test_without_a_kind_or_a_network_there_are_no_scores(kind: str, known: bool) -> None:
    cluster = Cluster(FOUR_BLOCKS, known=known)
    cluster.run("n5")
    assert set(cluster.scores(kind).values()) == {0}
