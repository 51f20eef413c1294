"""To which CPUs a pod that disturbs others is pinned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from koordinator.koordlet.enforce.executor import arbiter
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.policy import InterferenceStrategy
from koordinator.koordlet.enforce.strategies import cpu_suppress
from koordinator.koordlet.enforce.strategies.interference_cases import Result
from koordinator.koordlet.enforce.strategies.interference_remedies import away_from
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, Target
from tests.koordlet.enforce.strategies.qos_fixtures import topology
from tests.koordlet.enforce.strategies.test_interference_remedies import (
    CAP,
    PIN,
    Node,
    blamed,
    job,
    left_by_suppression,
    node,
)

CONTAINER = Target(CPUSET, job().pod.containers[0].cgroup)


@pytest.fixture
def pinned() -> Node:
    """After a cap has brought nothing."""
    played = Node(node())
    played.round(0.0, blamed())
    played.round(60.0, blamed())
    return played


def test_after_a_cap_without_effect_the_pod_is_pinned(pinned: Node) -> None:
    found = pinned.round(70.0, blamed())
    assert pinned.results == [(CAP, Result.TOO_LITTLE), (PIN, Result.TRYING)]
    assert set(found[CPU_QUOTA.key].values()) == {(-1, Priority.RELEASE)}, "the cap is undone"
    assert set(found[CPUSET.key].values()) == {(frozenset({4, 5, 6, 7}), Priority.POLICY)}
    assert len(found[CPUSET.key]) == 2, "the pod and its container"


def test_nothing_is_desired_of_the_cpus_any_more_when_a_pin_is_undone(pinned: Node) -> None:
    assert pinned.round(120.0, blamed())[CPUSET.key] == {}
    assert pinned.results == [(CAP, Result.TOO_LITTLE), (PIN, Result.TOO_LITTLE)]


def test_where_kubelet_writes_the_cpus_of_pods_containers_alone_are_pinned(pinned: Node) -> None:
    pinned.present = replace(pinned.present, cpu_manager_policy="static")
    assert len(pinned.round(70.0, blamed())[CPUSET.key]) == 1


def test_a_pin_is_to_cpus_that_cpu_suppress_leaves() -> None:
    played = Node(left_by_suppression({2, 3, 4, 5}), InterferenceStrategy(suppress=True, remedies=(PIN,)))
    assert set(played.round(0.0, blamed())[CPUSET.key].values()) == {(frozenset({4, 5}), Priority.POLICY)}


def test_where_cpu_suppress_leaves_no_cpus_away_from_the_victim_no_pin_is_possible() -> None:
    played = Node(left_by_suppression({0, 1}), InterferenceStrategy(suppress=True, remedies=(PIN,)))
    assert played.round(0.0, blamed())[CPUSET.key] == {}
    assert played.results == [(PIN, Result.NOT_POSSIBLE)]


@pytest.mark.parametrize(
    ("left", "has"), [({0, 1}, {0, 1}), ({0, 1, 4}, {4})], ids=["none of those of the pin", "one of them"]
)
def test_a_pinned_pod_gets_no_cpus_that_cpu_suppress_takes_from_it(left: set[int], has: set[int], pinned: Node) -> None:
    (of_container,) = [each for each in pinned.settings if each.target == CONTAINER]
    of_suppression = DesiredSetting(cpu_suppress.OWNER, CONTAINER, frozenset(left), "the node is busy")
    assert arbiter.elect([of_container, of_suppression]).value == frozenset(has)


@pytest.mark.parametrize(
    ("own", "allowed", "away"),
    [
        (set(), range(8), {4, 5, 6, 7}),
        ({0, 1}, range(8), {2, 3, 4, 5, 6, 7}),
        ({0, 2}, range(8), {4, 5, 6, 7}),
        ({0, 2, 4, 6}, range(8), set()),
        (set(), range(2), set()),
        ({0, 1}, {2, 3}, {2, 3}),
    ],
    ids=["half of the cores", "its core", "its cores", "a thread of each core", "one core alone", "elsewhere already"],
)
def test_cpus_away_from_those_of_the_victim(own: set[int], allowed: Any, away: set[int]) -> None:
    assert away_from(frozenset(own), frozenset(allowed), topology()) == away


def test_another_cache_is_better_than_another_core() -> None:
    two_caches = CPUTopology(tuple(replace(cpu, l3=cpu.numa_node) for cpu in topology().cpus))
    assert away_from(frozenset({0}), frozenset(range(8)), two_caches) == {4, 5, 6, 7}
    assert away_from(frozenset(), frozenset(range(8)), two_caches) == {4, 5, 6, 7}
    assert away_from(frozenset({0, 4}), frozenset(range(8)), two_caches) == {2, 3, 6, 7}
