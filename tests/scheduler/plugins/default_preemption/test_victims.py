"""Who has to leave: rules one by one, and random nodes against all subsets of victims."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import PodCondition, PodStatus
from koordinator.api.workload import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_engine(nodes: Sequence[Node]) -> tuple[Engine, ClusterState]:
    state = make_state(nodes)
    return Engine(make_profile(state.view, preempts=True), state, FirstChoice()), state


def running(name: str, cpu: str = "1", *, started: int = 0, leaving: bool = False, **changes: Any) -> PodInfo:
    pod = make_pod(name, cpu=cpu, **changes)
    status = PodStatus(start_time=NOW + timedelta(minutes=started))
    if leaving:
        condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
        status = msgspec.structs.replace(status, conditions=[condition])
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW)
        pod = msgspec.structs.replace(pod, metadata=metadata)
    return describe(msgspec.structs.replace(pod, status=status))


def rejected(engine: Engine, cpu: str = "1", priority: int = 10) -> Rejection:
    result = engine.decide(describe(make_pod("incoming", cpu=cpu, priority=priority)), NOW)
    assert isinstance(result, Rejection)
    return result


def plan(engine: Engine, cpu: str = "1", priority: int = 10) -> tuple[str | None, set[str]]:
    after = rejected(engine, cpu, priority).after
    return after.nominated_node, {victim.pod.metadata.name for victim in after.victims}


def test_the_least_important_pod_leaves() -> None:
    engine, state = make_engine([make_node("a", cpu="2")])
    state.set_pod(running("middle", priority=5), "a")
    state.set_pod(running("low", priority=1), "a")
    assert plan(engine) == ("a", {"low"})


def test_among_equals_the_youngest_leaves() -> None:
    engine, state = make_engine([make_node("a", cpu="2")])
    state.set_pod(running("young", priority=1, started=9), "a")
    state.set_pod(running("old", priority=1, started=1), "a")
    assert plan(engine) == ("a", {"young"})


def test_pods_that_need_not_leave_stay() -> None:
    engine, state = make_engine([make_node("a", cpu="4")])
    for number in range(4):
        state.set_pod(running(f"p{number}", priority=1, started=number), "a")
    assert plan(engine, cpu="2") == ("a", {"p2", "p3"})


def test_what_stands_for_a_reservation_is_no_victim() -> None:
    engine, state = make_engine([make_node("a", cpu="2")])
    state.set_pod(running("reserve-pod", priority=1), "a")
    state.set_pod(running("pod", priority=5), "a")
    state.view.pseudo_pods.add("uid-reserve-pod")
    assert plan(engine) == ("a", {"pod"})


def test_nobody_leaves_for_what_stands_for_a_reservation() -> None:
    engine, state = make_engine([make_node("a", cpu="1")])
    state.set_pod(running("low", priority=1), "a")
    state.view.pseudo_pods.add("uid-incoming")
    assert plan(engine) == (None, set())


def test_pods_of_the_same_priority_are_no_victims() -> None:
    engine, state = make_engine([make_node("a", cpu="1")])
    state.set_pod(running("equal", priority=10), "a")
    rejection = rejected(engine)
    assert not rejection.after.found
    assert rejection.message.endswith(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_pod_too_large_for_what_it_may_free_is_told_what_is_missing() -> None:
    engine, state = make_engine([make_node("a", cpu="3"), make_node("b", unschedulable=True)])
    state.set_pod(running("high", priority=99), "a")
    state.set_pod(running("low", cpu="2", priority=1), "a")
    assert rejected(engine, cpu="3").message.endswith(
        "preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("on_a", "on_b"),
    [
        pytest.param([(1, 0)], [(2, 0)], id="lower top priority"),
        pytest.param([(2, 0), (1, 0)], [(2, 0), (2, 0)], id="smaller sum"),
        pytest.param([(-5, 0)], [(-5, 0), (-5, 0)], id="fewer, though all are negative"),
        pytest.param([(1, 9)], [(1, 2)], id="runs for a shorter time"),
    ],
)
def test_the_node_where_it_hurts_least(on_a: list[tuple[int, int]], on_b: list[tuple[int, int]]) -> None:
    engine, state = make_engine([make_node("b", cpu="2"), make_node("a", cpu="2")])
    for node, pods in (("a", on_a), ("b", on_b)):
        for number, (priority, started) in enumerate(pods):
            pod = running(f"{node}{number}", cpu=str(2 // len(pods)), priority=priority, started=started)
            state.set_pod(pod, node)
    assert plan(engine, cpu="2")[0] == "a"


def budget(allowed: int, **changes: Any) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="budget", namespace=changes.get("namespace", "default"), uid="budget"),
        spec=PodDisruptionBudgetSpec(selector=changes.get("selector", LabelSelector(match_labels={"app": "web"}))),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, disrupted_pods=changes.get("disrupted", {})),
    )


def with_budget(engine: Engine, state: ClusterState, given: PodDisruptionBudget) -> tuple[str | None, set[str]]:
    state.set_object(POD_DISRUPTION_BUDGETS, "default/budget", given)
    for node, labels in (("a", {"app": "web"}), ("b", {"app": "other"})):
        state.set_pod(running(f"on-{node}", priority=1 if node == "a" else 2, labels=labels), node)
    return plan(engine)


@pytest.mark.parametrize(
    ("given", "node"),
    [
        pytest.param(budget(0), "b", id="protects"),
        pytest.param(budget(1), "a", id="allows one"),
        pytest.param(budget(0, namespace="elsewhere"), "a", id="of another namespace"),
        pytest.param(budget(0, selector=LabelSelector()), "a", id="an empty selector matches nothing"),
        pytest.param(budget(0, selector=None), "a", id="no selector matches nothing"),
        pytest.param(budget(0, disrupted={"on-a": "2026-01-01T00:00:00Z"}), "a", id="is evicted already"),
    ],
)
def test_budgets(given: PodDisruptionBudget, node: str) -> None:
    engine, state = make_engine([make_node("a", cpu="1"), make_node("b", cpu="1")])
    assert with_budget(engine, state, given)[0] == node


def test_within_a_node_protected_pods_are_the_first_to_stay() -> None:
    engine, state = make_engine([make_node("a", cpu="2")])
    state.set_object(POD_DISRUPTION_BUDGETS, "default/budget", budget(0))
    state.set_pod(running("protected", priority=1, labels={"app": "web"}), "a")
    state.set_pod(running("important", priority=5), "a")
    assert plan(engine) == ("a", {"important"})


def test_while_victims_leave_nobody_else_has_to() -> None:
    engine, state = make_engine([make_node("a", cpu="1"), make_node("b", cpu="1")])
    state.set_pod(running("leaving", priority=1, leaving=True), "a")
    state.set_pod(running("other", priority=1), "b")
    state.view.nominations.set(describe(make_pod("incoming", priority=10)), "a")
    rejection = rejected(engine)
    assert rejection.after.nominated_node is None
    assert rejection.message.endswith("preemption: not eligible due to a terminating pod on the nominated node.")


def test_a_nomination_that_cannot_be_kept_is_taken_back() -> None:
    engine, state = make_engine([make_node("a", cpu="1")])
    state.set_pod(running("high", priority=99), "a")
    state.view.nominations.set(describe(make_pod("incoming", priority=10)), "a")
    assert rejected(engine).after.nominated_node == ""


def test_capacity_of_nominated_pods_is_left_alone() -> None:
    engine, state = make_engine([make_node("a", cpu="1")])
    state.view.nominations.set(describe(make_pod("expected", priority=10)), "a")
    assert rejected(engine, priority=10).message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    more_important = engine.decide(describe(make_pod("incoming", priority=11)), NOW)
    assert isinstance(more_important, Placement)


def test_what_another_scheduler_has_nominated_counts_for_less_important_pods_only() -> None:
    engine, state = make_engine([make_node("a", cpu="1")])
    state.view.nominations.set(describe(make_pod("expected", priority=10)), "a", foreign=True)
    assert rejected(engine, priority=9).message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert isinstance(engine.decide(describe(make_pod("incoming", priority=10)), NOW), Placement)


def test_a_pod_goes_to_its_nominated_node() -> None:
    engine, state = make_engine([make_node("a"), make_node("b", labels={"rank": "0"})])
    incoming = describe(make_pod("incoming", priority=10))
    state.view.nominations.set(incoming, "b")
    result = engine.decide(incoming, NOW)
    assert isinstance(result, Placement)
    assert result.node_name == "b"


pods_on_a_node = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12)), min_size=1, max_size=5)


@given(st.lists(pods_on_a_node, min_size=1, max_size=3), st.integers(1, 6))
def test_victims_are_few_enough_and_their_leaving_helps(nodes: list[list[tuple[int, int]]], cpu: int) -> None:
    names = [f"n{number}" for number in range(len(nodes))]
    engine, state = make_engine([make_node(name, cpu="6") for name in names])
    for name, pods in zip(names, nodes, strict=True):
        for number, (size, priority) in enumerate(pods):
            state.set_pod(running(f"{name}-{number}", cpu=str(size), priority=priority, started=number), name)
    before = state.view.columns.requested.copy()
    result = engine.decide(describe(make_pod("incoming", cpu=str(cpu), priority=10)), NOW)
    assert (state.view.columns.requested == before).all()
    if isinstance(result, Placement):
        return
    if not result.after.found:
        assert all(free_without_lower(pods) < cpu for pods in nodes)
        return
    row = state.view.columns.row_of[result.after.nominated_node or ""]
    taken = int(state.view.columns.requested[row, CPU]) // 1000
    sizes = [victim.request.amounts["cpu"] // 1000 for victim in result.after.victims]
    assert taken - sum(sizes) + cpu <= 6
    assert all(taken - sum(sizes) + size + cpu > 6 for size in sizes)
    assert all(victim.priority < 10 for victim in result.after.victims)


def free_without_lower(pods: list[tuple[int, int]]) -> int:
    return 6 - sum(size for size, priority in pods if priority >= 10)
