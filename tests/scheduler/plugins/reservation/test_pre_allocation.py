"""Pre-allocation: which running pods a Reservation takes over, and what becomes of them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import PRE_ALLOCATABLE_PRIORITY, RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.labels import IS_PRE_ALLOCATABLE, PRE_ALLOCATION_REQUIRED
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import (
    ALIGNED,
    AVAILABLE,
    CLUSTER_MODE,
    RESTRICTED,
    PreAllocationPolicy,
    Reservation,
    ReservationOwner,
    ReservationStatus,
)
from koordinator.scheduler.configuration.koordinator_arguments import PreAllocationConfig, ReservationArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.reservation.booking import Booking
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pre_allocation import node_score
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_annotation, allocated_record, reserve_pod
from tests.scheduler.fakes import describe, make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import Cluster, listed
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

CLUSTER = PreAllocationConfig(enable_cluster_mode=True)
SEVERAL = PreAllocationPolicy(enable_multiple=True)


def reservation(cpu: str = "4", *, required: bool = False, policy: str = RESTRICTED, **spec: Any) -> Reservation:
    """One that has no node yet, for pods with the label ``app=web``."""
    found = available(cpu=cpu, once=False, policy=policy)
    template = PodTemplateSpec(spec=make_pod("template", cpu=cpu, memory="2Gi").spec)
    labels = {PRE_ALLOCATION_REQUIRED: "true"} if required else {}
    return replace(
        found,
        metadata=replace(found.metadata, labels=labels),
        spec=replace(found.spec, template=template, pre_allocation=True, **spec),
        status=ReservationStatus(),
    )


def on(pod: Pod, node: str = "a") -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


class Outcome(NamedTuple):
    """How it was while the Reservation was there."""

    reservation: Reservation
    taken_over: set[str]
    requested: int
    """Milli-CPU of node ``a``."""
    message: str


def play(wanted: Reservation, *pods: Pod, config: PreAllocationConfig | None = None, nodes: str = "a") -> Outcome:
    """Nodes have four cores. In the end the Reservation is deleted, and what nodes have requested is checked."""
    found: list[Outcome] = []

    def profile(view: ClusterView) -> Profile:
        base = make_profile(view)
        args = ReservationArgs(pre_allocation_config=config)
        plugins = {"Reservation": ReservationPlugin(args, view), "DefaultPreBind": DefaultPreBind(None, view)}
        order = listed(listed(base.order, ReservationPlugin), DefaultPreBind)
        scores = (*order.score, ("Reservation", 100))
        order = dataclasses.replace(order, pre_score=(*order.pre_score, "Reservation"), score=scores)
        return Profile("koord-scheduler", {**base.plugins, **plugins}, order)

    def api() -> SchedulerApi:
        found = SchedulerApi()
        for name in nodes:
            found.store(make_node(name))
        for pod in pods:
            found.store(pod)
        return found

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(wanted, RESERVATIONS)
        await fixture.until_idle()
        found.append(outcome(fixture))
        fixture.api.drop("reservations", "r")

    simulate(story, api, profile)
    return found[0]


def outcome(fixture: RunningScheduler) -> Outcome:
    (reservation,) = fixture.api.objects("reservations").values()
    records = {pod.metadata.name: allocated_record(pod) for pod in fixture.api.objects("pods").values()}
    columns = fixture.scheduler.state.view.columns
    notes = [note for name, reason, note in fixture.events.notes if (name, reason) == ("r", "FailedScheduling")]
    return Outcome(
        reservation,
        {name for name, record in records.items() if record is not None and record.uid == "uid-r"},
        int(columns.requested[columns.row_of["a"], CPU]),
        notes[-1] if notes else "",
    )


def test_a_reservation_takes_over_a_pod_where_the_node_is_full() -> None:
    found = play(reservation(), on(owner("o")))
    assert (found.reservation.status.phase, found.reservation.status.node_name) == (AVAILABLE, "a")
    assert found.taken_over == {"o"}
    assert found.requested == 4000


def test_without_pre_allocation_it_waits() -> None:
    assert "Insufficient cpu" in play(plain(), on(owner("o"))).message


def plain() -> Reservation:
    found = reservation()
    return replace(found, spec=replace(found.spec, pre_allocation=False))


def test_pods_of_others_are_not_taken_over() -> None:
    found = play(reservation(), on(make_pod("p", cpu="3")))
    assert "Insufficient cpu" in found.message


def test_a_pod_of_another_reservation_is_not_taken_over() -> None:
    taken = noted(on(owner("o")), {RESERVATION_ALLOCATED: allocated_annotation("other", "uid-other")})
    assert "Insufficient cpu" in play(reservation(), taken).message


def test_one_pod_that_does_not_do_is_not_taken_over() -> None:
    found = play(reservation(), on(owner("o", cpu="1")), on(owner("o2", cpu="3")))
    assert found.message.startswith("0/1 nodes are available: 1 Insufficient cpu by node")
    assert found.taken_over == set()


def test_several_pods_are_taken_over_together_where_the_policy_lets_it() -> None:
    found = play(reservation(pre_allocation_policy=SEVERAL), on(owner("o", cpu="1")), on(owner("o2", cpu="3")))
    assert found.reservation.status.node_name == "a"
    assert found.taken_over == {"o", "o2"}


def test_a_pod_that_the_reservation_cannot_hold_is_not_taken_over() -> None:
    found = play(reservation("2", required=True), on(owner("o", cpu="3")))
    assert found.message.startswith("0/1 nodes are available: 1 Reservation(s) Insufficient cpu")


def test_the_pod_that_fills_it_best_is_taken_over() -> None:
    found = play(reservation("2", required=True), on(owner("o", cpu="1")), on(owner("o2", cpu="2")))
    assert found.taken_over == {"o2"}


def test_it_is_placed_where_it_gets_the_fullest() -> None:
    found = play(reservation("2", required=True), on(owner("o", cpu="1")), on(owner("o2", cpu="2"), "b"), nodes="ab")
    assert found.reservation.status.node_name == "b"
    assert found.taken_over == {"o2"}


def test_where_it_is_required_nodes_without_a_candidate_do_not_do() -> None:
    found = play(reservation("1", required=True), on(owner("o", cpu="1"), "b"), nodes="ab")
    assert found.reservation.status.node_name == "b"
    assert found.taken_over == {"o"}


def test_where_it_is_required_and_there_is_no_candidate_it_waits() -> None:
    expected = "0/1 nodes are available: node(s) no pod match reservation with pre allocation required"
    assert play(reservation("1", required=True)).message.startswith(expected)


def test_where_no_pod_is_preferred_a_node_with_room_is_taken_as_it_is() -> None:
    found = play(
        reservation("1"), on(owner("o", cpu="1")), config=PreAllocationConfig(prefer_no_pre_allocated_pods=True)
    )
    assert found.reservation.status.node_name == "a"
    assert found.taken_over == set()


@pytest.mark.parametrize("policy", ["", ALIGNED])
def test_only_restricted_reservations_take_over_pods(policy: str) -> None:
    expected = "node(s) reservation pre allocation is unsupported with current attributes"
    assert expected in play(reservation(policy=policy), on(owner("o"))).message


def test_the_mode_for_the_whole_cluster_must_be_enabled() -> None:
    wanted = reservation(pre_allocation_policy=PreAllocationPolicy(mode=CLUSTER_MODE))
    assert "reservation requires cluster mode pre-allocation which is disabled" in play(wanted).message


def test_in_the_mode_for_the_whole_cluster_the_label_counts_and_not_the_owners() -> None:
    wanted = reservation(pre_allocation_policy=PreAllocationPolicy(mode=CLUSTER_MODE))
    pods = on(make_pod("p", cpu="3", labels={IS_PRE_ALLOCATABLE: "true"})), on(owner("o", cpu="1"))
    found = play(wanted, *pods, config=CLUSTER)
    assert found.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert play(wanted, pods[0], config=CLUSTER).taken_over == {"p"}


def test_in_the_mode_for_the_whole_cluster_the_most_important_pods_come_first() -> None:
    wanted = reservation(
        "1", required=True, pre_allocation_policy=PreAllocationPolicy(mode=CLUSTER_MODE, enable_multiple=True)
    )
    pods = [
        noted(on(make_pod(name, cpu="1", labels={IS_PRE_ALLOCATABLE: "true"})), {PRE_ALLOCATABLE_PRIORITY: priority})
        for name, priority in (("a", "1"), ("b", "7"), ("c", "many"))
    ]
    assert play(wanted, *pods, config=CLUSTER).taken_over == {"b"}


def test_a_pod_that_requests_another_reservation_is_not_taken_over() -> None:
    choosy = noted(on(owner("o")), {RESERVATION_AFFINITY: '{"name": "other"}'})
    assert "Insufficient cpu" in play(reservation(), choosy).message


def test_what_a_failed_attempt_has_recorded_is_used_or_taken_off() -> None:
    recorded = noted(on(owner("o", cpu="1")), {RESERVATION_ALLOCATED: allocated_annotation("r", "uid-r")})
    found = play(reservation("2", required=True), recorded, on(owner("o2", cpu="2")))
    assert found.taken_over == {"o2"}


def test_a_selector_that_cannot_be_read_takes_over_nobody() -> None:
    broken = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near", values=["web"])])
    wanted = reservation(required=True, owners=[ReservationOwner(label_selector=broken)])
    assert "spec.owners of the reservation cannot be read" in play(wanted, on(owner("o"))).message


@pytest.mark.parametrize(("taken", "expected"), [((), 0), (("2",), 75), (("1",), 50)])
def test_the_fuller_a_reservation_gets_the_better_is_the_node(taken: tuple[str, ...], expected: int) -> None:
    assert node_score(booking(reservation("2")), [describe(owner("o", cpu=cpu)) for cpu in taken]) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 100), (1, 50), (2, 33)])
def test_the_fewer_pods_are_taken_over_the_better_is_the_node(count: int, expected: int) -> None:
    pods = [describe(owner(f"o{number}")) for number in range(count)]
    assert node_score(booking(reservation(pre_allocation_policy=SEVERAL)), pods) == expected


def booking(wanted: Reservation) -> Booking:
    cluster = Cluster([make_node("a")], ReservationPlugin)
    return ReservationCache(cluster.view).pending_booking(wanted, reserve_pod(wanted))


def test_reservations_that_differ_in_their_spec_alone_are_not_alike() -> None:
    """A reserve pod has the template's spec, and pods that look alike share what was derived from one of them."""
    one, other = plain(), reservation()
    assert reserve_pod(one).metadata.annotations != reserve_pod(other).metadata.annotations


def test_the_message_counts_who_could_be_taken_over_and_why_that_does_not_help() -> None:
    choosy = noted(owner("o2", cpu="1"), {RESERVATION_AFFINITY: '{"name": "other"}'})
    pods = on(owner("o1", cpu="1")), on(choosy), on(owner("o3", cpu="1"), "b")
    assert play(reservation("9"), *pods, nodes="ab").message == (
        "0/2 nodes are available: 2 Insufficient cpu. 1 Reservation(s) didn't match the requested reservation name, "
        "2 Reservation(s) for node reason that Insufficient cpu, 3 Reservation(s) matched owner total"
    )


def test_who_is_where_the_reservation_may_not_go_is_not_counted() -> None:
    assert "matched owner total" not in play(pinned_to_a("9"), on(owner("o"), "b"), nodes="ab").message


def pinned_to_a(cpu: str) -> Reservation:
    found = reservation(cpu)
    template = found.spec.template
    assert template is not None
    spec = replace(template.spec, node_selector={"name": "a"})
    return replace(found, spec=replace(found.spec, template=replace(template, spec=spec)))
