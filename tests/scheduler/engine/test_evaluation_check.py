"""What is cached for classes of pods is what a fresh evaluation finds, with batches and without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from tests.examples import examples
from tests.scheduler.engine.random_events import RandomCluster
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_state
from tests.scheduler.ground.clusters import NOW

seeds = st.integers(0, 2**32)


@settings(max_examples=examples(10))
@given(seeds, st.integers(1, 12), st.booleans())
def test_every_decision_is_that_of_a_fresh_evaluation(seed: int, nodes: int, batches: bool) -> None:
    cluster = RandomCluster(seed, nodes=nodes, batches=batches)
    for _ in range(100):
        cluster.happen()
    assert cluster.differences == []
    assert cluster.check.checked == cluster.evaluated


@settings(max_examples=examples(3))
@given(seeds)
def test_decisions_are_the_same_without_batches(seed: int) -> None:
    batched, single = (RandomCluster(seed, nodes=8, batches=batches, checks=False) for batches in (True, False))
    for cluster in (batched, single):
        for _ in range(100):
            cluster.happen()
    assert batched.placed == single.placed


@pytest.mark.slow
@pytest.mark.parametrize("batches", [True, False])
def test_an_hour_s_worth_of_events(batches: bool) -> None:
    """Of a hundred nodes that report every minute, with an event or a decision each second."""
    cluster = RandomCluster(7, nodes=100, batches=batches)
    for second in range(3600):
        cluster.pass_time(1)
        for number in range(second % 60, 100, 60):
            cluster.report(f"n{number}")
        cluster.happen()
    assert cluster.differences == []
    assert sum(1 for node in cluster.placed if node) > 500


class Fickle(FilterPlugin):
    """Reads what no event tells and what it does not declare."""

    name = "Fickle"
    reads = (Aspect.NODE,)
    code = 0

    def class_key(self, pod: PodInfo) -> str:
        return ""

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return rows * 0 + self.code

    def reasons(self, pod: PodInfo, state: Any, code: int) -> tuple[Reason, ...]:
        return (Reason("fickle"),)


def test_a_plugin_that_reads_what_it_does_not_declare_is_found_out() -> None:
    state = make_state()
    for name in ("a", "b"):
        state.set_node(make_node(name))
    plugin = Fickle(None, state.view)
    profile = Profile("s", {"Fickle": plugin}, PluginOrder(filter=("Fickle",)))
    engine, found = Engine(profile, state, FirstChoice()), list[str]()
    engine.refresh = EvaluationCheck(profile, state.view, found.append).refresh
    engine.decide(describe(make_pod("p")), NOW)
    assert found == []
    plugin.code = 1
    engine.decide(describe(make_pod("q")), NOW)
    assert found == [
        f"node {name} for pods like default/q: cached are a total score of 0, a fresh evaluation has code 1 of Fickle"
        for name in ("a", "b")
    ]
