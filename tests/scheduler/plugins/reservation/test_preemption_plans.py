"""Random nodes with Reservations, their users and other pods: what a plan evicts is enough, and nobody of it could
stay; where there is no plan, nothing would have helped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.reservation import ALIGNED, RESTRICTED, Reservation, ReservationOwner
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.fakes import describe, make_pod
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available
from tests.scheduler.plugins.reservation.test_preemption import IMPORTANT, Fixture, owner, wanted


class Running(NamedTuple):
    cpu: int
    priority: int
    of: str
    """The Reservation that it takes from, or ""."""


class Node(NamedTuple):
    """It has four CPUs, and the Reservations r and s. ``owner`` may take from r."""

    r: int
    s: int
    policy: str
    pods: Sequence[Running]


NODES = st.builds(
    Node,
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["", ALIGNED, RESTRICTED]),
    st.lists(
        st.builds(Running, st.integers(1, 2), st.sampled_from([1, 5, IMPORTANT]), st.sampled_from(["", "r", "s"])),
        max_size=4,
    ),
)
NEW = replace(wanted("2"), metadata=ObjectMeta(name="new", uid="uid-new"))
PREEMPTORS = {
    "stranger": make_pod("p", cpu="2", priority=IMPORTANT),
    "owner": make_pod("p", cpu="2", priority=IMPORTANT, labels=OWNER),
    "large owner": make_pod("p", cpu="4", priority=IMPORTANT, labels=OWNER),
    "owner that must": owner("2", name="p"),
    "reservation": reserve_pod(NEW),
}


def shared(name: str, cpu: int, policy: str, app: str) -> Reservation:
    found = available(name, str(cpu), once=False, policy=policy)
    owners = [ReservationOwner(label_selector=LabelSelector(match_labels={"app": app}))]
    return replace(found, spec=replace(found.spec, owners=owners))


def fixture_of(node: Node, without: Collection[str] = ()) -> Fixture:
    reservations = (shared("r", node.r, node.policy, "web"), shared("s", node.s, node.policy, "other"))
    fixture = Fixture(replace(NEW, spec=replace(NEW.spec, allocate_policy=node.policy)), *reservations)
    for index, each in enumerate(node.pods):
        if f"p{index}" not in without:
            fixture.running(make_pod(f"p{index}", cpu=str(each.cpu), priority=each.priority), of=each.of)
    return fixture


def is_placed(fixture: Fixture, pod: Pod) -> bool:
    return isinstance(fixture.engine.decide(describe(pod), NOW), Placement)


@settings(max_examples=examples(150))
@given(NODES, st.sampled_from(sorted(PREEMPTORS)))
def test_a_plan_is_enough_and_no_more_and_there_is_one_if_it_helps(node: Node, kind: str) -> None:
    fixture, pod = fixture_of(node), PREEMPTORS[kind]
    assume(fixture.state.view.columns.requested[0, CPU] <= 4000)
    assume(not is_placed(fixture, pod))
    less_important = {f"p{index}" for index, each in enumerate(node.pods) if each.priority < IMPORTANT}
    name, victims = fixture.plan(pod)
    assert victims <= less_important
    assert is_placed(fixture_of(node, less_important), pod) == bool(name)
    if name:
        assert is_placed(fixture_of(node, victims), pod)
        assert [each for each in victims if is_placed(fixture_of(node, victims - {each}), pod)] == []
