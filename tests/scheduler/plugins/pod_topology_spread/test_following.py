"""Classes of pods that follow events row by row end where looking at everything anew does, and share what they may."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.plugins.pod_topology_spread import spread as spread_module
from tests.examples import examples
from tests.scheduler.plugins.pod_topology_spread.dice import Dice
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture, class_key, spread, spread_pod
from tests.scheduler.plugins.pod_topology_spread.reference import HOSTNAME, ZONE


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32))
def test_following_events_equals_looking_anew(seed: int) -> None:
    dice = Dice(seed)
    fixture = dice.fixture()
    incoming = [fixture.info(dice.incoming_pod(f"incoming{number}")) for number in range(3)]
    evaluations = {class_key(fixture, pod): fixture.evaluation(pod.pod) for pod in incoming}
    for _ in range(20):
        dice.step(fixture)
        if dice.maybe(0.7):
            for pod in incoming:
                key = class_key(fixture, pod)
                evaluation = evaluations.setdefault(key, fixture.evaluation(pod.pod))
                assert fixture.evaluate(evaluation) == fixture.evaluate_afresh(pod.pod)


@pytest.mark.parametrize("one_row_in", [0, 1000])
@settings(max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_classes_that_share_counts_may_look_at_different_times(one_row_in: int, seed: int) -> None:
    """Whether they look at changed rows or, being too many, at all of them."""
    dice = Dice(seed)
    fixture = dice.fixture()
    pod = fixture.info(dice.incoming_pod())
    evaluations: dict[Hashable, list[Evaluation]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread_module, "_MANY_ROWS", one_row_in)
        for _ in range(30):
            dice.step(fixture)
            key = class_key(fixture, pod)
            if key not in evaluations:
                evaluations[key] = [fixture.evaluation(pod.pod) for _ in range(2)]
            for evaluation in evaluations[key]:
                if dice.maybe(0.3):
                    assert fixture.evaluate(evaluation) == fixture.evaluate_afresh(pod.pod)


def zones(fixture: ClusterFixture, count: int, nodes_each: int) -> None:
    for number in range(count * nodes_each):
        labels = {ZONE: f"z{number % count}", HOSTNAME: f"n{number}"}
        fixture.set_node(Node(metadata=ObjectMeta(name=f"n{number}", labels=labels)))


def reached(fixture: ClusterFixture, evaluation_pod: Pod, placed: Pod, *nodes: str) -> list[str]:
    """The other nodes that a placement on each of ``nodes`` makes the plugin evaluate again."""
    info = fixture.info(evaluation_pod)
    state = fixture.plugin.pre_filter(info).state
    columns = fixture.view.columns
    rows = [columns.row_of[name] for name in columns.row_of]
    fixture.plugin.filter(info, state, np.array(rows))
    for node in nodes:
        fixture.place(spread_pod(f"{placed.metadata.name}-{node}", placed.metadata.labels), node)
    found = fixture.plugin.apply_delta(info, state, np.array([columns.row_of[node] for node in nodes]))
    return sorted(columns.names[row] for row in found.tolist()) if found is not None else []


def test_a_placement_reaches_the_other_nodes_of_its_domain() -> None:
    fixture = ClusterFixture()
    zones(fixture, 2, 3)
    pod = spread_pod("p", {"app": "a"}, spread(ZONE))
    assert reached(fixture, pod, spread_pod("q", {"app": "a"}), "n0") == ["n2", "n4"]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_placement_that_lets_the_least_rise_reaches_the_other_domains(count: int) -> None:
    fixture = ClusterFixture()
    zones(fixture, count, 2)
    for number in range(1, count):
        fixture.place(spread_pod(f"in-zone-{number}", {"app": "a"}), f"n{number}")
    pod = spread_pod("p", {"app": "a"}, spread(ZONE))
    others = [number for number in range(2 * count) if number % count]
    assert reached(fixture, pod, spread_pod("q", {"app": "a"}), "n0") == sorted(f"n{number}" for number in others)


def test_placements_that_leave_all_as_even_as_before_reach_nobody() -> None:
    fixture = ClusterFixture()
    zones(fixture, 2, 2)
    pod = spread_pod("p", {"app": "a"}, spread(ZONE))
    assert reached(fixture, pod, spread_pod("q", {"app": "a"}), "n0", "n1") == []


@pytest.mark.parametrize(("labels", "skew"), [({"app": "b"}, 1), ({"app": "a"}, 5)])
def test_a_placement_that_decides_nothing_reaches_nobody(labels: dict[str, str], skew: int) -> None:
    fixture = ClusterFixture()
    zones(fixture, 2, 2)
    pod = spread_pod("p", {"app": "a"}, spread(ZONE, skew=skew))
    assert reached(fixture, pod, spread_pod("q", labels), "n0") == []


@pytest.mark.parametrize("at_once", [1, 5, 100])
def test_any_number_of_changed_rows_is_followed(at_once: int) -> None:
    fixture = ClusterFixture()
    zones(fixture, 3, 40)
    pod = spread_pod("p", {"app": "a"}, spread(ZONE), spread(HOSTNAME, "ScheduleAnyway"))
    evaluation = fixture.evaluation(pod)
    fixture.evaluate(evaluation)
    for number in range(100):
        fixture.place(spread_pod(f"q{number}", {"app": "a"}), f"n{number * 7 % 120}")
        if number % at_once == at_once - 1:
            assert fixture.evaluate(evaluation) == fixture.evaluate_afresh(pod)


def test_nodes_that_come_and_go_do_not_use_up_domains() -> None:
    fixture = ClusterFixture()
    zones(fixture, 2, 2)
    pod = spread_pod("p", {"app": "a"}, spread(HOSTNAME), spread(HOSTNAME, "ScheduleAnyway"))
    evaluation = fixture.evaluation(pod)
    fixture.evaluate(evaluation)
    topology = fixture.plugin.topologies[HOSTNAME]
    before = topology.size
    for number in range(300):
        name = f"spot{number}"
        fixture.set_node(Node(metadata=ObjectMeta(name=name, labels={ZONE: "z0", HOSTNAME: name})))
        fixture.place(spread_pod(f"q{number}", {"app": "a"}), name)
        assert fixture.evaluate(evaluation) == fixture.evaluate_afresh(pod)
        fixture.remove_node(name)
    assert topology.size <= before + 1


def test_a_topology_may_grow_while_it_is_followed() -> None:
    fixture = ClusterFixture()
    zones(fixture, 1, 1)
    fixture.set_node(Node(metadata=ObjectMeta(name="keyless")))
    pod = spread_pod("p", {"app": "a"}, spread(HOSTNAME), spread(HOSTNAME, "ScheduleAnyway"))
    evaluation = fixture.evaluation(pod)
    for number in range(100):
        name = f"new{number}"
        fixture.set_node(Node(metadata=ObjectMeta(name=name, labels={HOSTNAME: name})))
        fixture.place(spread_pod(f"q{number}", {"app": "a"}), name)
        fixture.place(spread_pod(f"r{number}", {"app": "a"}), "keyless")
        assert fixture.evaluate(evaluation) == fixture.evaluate_afresh(pod)


def test_a_nameless_zone_is_not_a_missing_one() -> None:
    fixture = ClusterFixture()
    fixture.set_service("s", {"app": "a"})
    for name, labels in (("n0", {ZONE: "z"}), ("n1", {}), ("n2", {})):
        fixture.set_node(Node(metadata=ObjectMeta(name=name, labels=labels)))
        fixture.place(spread_pod(f"on-{name}", {"app": "a"}), name)
    pod = spread_pod("p", {"app": "a"})
    evaluation = fixture.evaluation(pod)
    before = fixture.evaluate(evaluation)
    fixture.set_node(Node(metadata=ObjectMeta(name="n1", labels={ZONE: ""})))
    after = fixture.evaluate(evaluation)
    assert after == fixture.evaluate_afresh(pod)
    assert after != before
