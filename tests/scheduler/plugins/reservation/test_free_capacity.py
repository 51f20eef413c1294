"""Who gets the free capacity of a reservation, and that it counts once whatever its owners do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from koordinator.api.duration import GoDuration
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import (
    AVAILABLE,
    RESTRICTED,
    Reservation,
    ReservationOwner,
    ReservationSpec,
    ReservationStatus,
)
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pod_points import Use
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster

OWNER = {"app": "web"}


def available(name: str = "r", cpu: str = "3", node: str = "a", *, once: bool = True, policy: str = "") -> Reservation:
    held = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("1Gi")}
    return Reservation(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=ReservationSpec(
            template=PodTemplateSpec(spec=make_pod("template", cpu=cpu).spec),
            owners=[ReservationOwner(label_selector=LabelSelector(match_labels=OWNER))],
            allocate_once=once,
            allocate_policy=policy,
            ttl=GoDuration(hours=24),
        ),
        status=ReservationStatus(phase=AVAILABLE, node_name=node, allocatable=held),
    )


def cluster_with(*reservations: Reservation) -> Cluster:
    cluster = Cluster([make_node("a")], ReservationPlugin)
    for reservation in reservations:
        cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        cluster.bound(reserve_pod(reservation), reservation.status.node_name)
    return cluster


def owner(name: str, cpu: str = "3") -> Pod:
    return make_pod(name, cpu=cpu, labels=OWNER)


def noted(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def test_a_pod_that_does_not_own_a_reservation_cannot_take_its_capacity() -> None:
    cluster = cluster_with(available())
    assert isinstance(cluster.engine.decide(describe(make_pod("p", cpu="3")), NOW), Rejection)


def test_like_owners_do_not_take_what_other_reservations_keep() -> None:
    """The second is evaluated as the first, which is on the node by then."""
    cluster = Cluster([make_node("a", cpu="7")], ReservationPlugin)
    for name in ("r1", "r2", "r3"):
        reservation = available(name, cpu="2", once=False)
        cluster.state.set_object(RESERVATIONS, name, reservation)
        cluster.bound(reserve_pod(reservation), "a")
    first = cluster.engine.decide(describe(owner("o1")), NOW)
    assert isinstance(first, Placement)
    assert cluster.engine.assume(first) is None
    # Of the four CPUs that are left to owners each of the other Reservations keeps two.
    assert isinstance(cluster.engine.decide(describe(owner("o2")), NOW), Rejection)


def test_a_pod_whose_affinity_cannot_be_read_is_told_that_and_nothing_else() -> None:
    cluster = cluster_with(available())
    rejection = cluster.engine.decide(describe(noted(owner("o"), {RESERVATION_AFFINITY: "[]"})), NOW)
    assert isinstance(rejection, Rejection)
    assert rejection.message == (
        f"0/1 nodes are available: annotation {RESERVATION_AFFINITY}: Expected `object`, got `array`."
    )


def test_an_owner_gets_the_capacity_and_it_counts_once() -> None:
    cluster = cluster_with(available())
    placement = cluster.engine.decide(describe(owner("o")), NOW)
    assert isinstance(placement, Placement)
    assert cluster.engine.assume(placement) is None
    assert cluster.view.allocations.of("Reservation", "uid-o") == Use("r", "uid-r")
    assert cluster.view.columns.requested[0, CPU] == 3000


def test_an_owner_whose_binding_fails_gives_the_capacity_back() -> None:
    cluster = cluster_with(available())
    placement = cluster.engine.decide(describe(owner("o")), NOW)
    assert isinstance(placement, Placement)
    cluster.engine.assume(placement)
    cluster.engine.forget(placement)
    assert cluster.view.columns.requested[0, CPU] == 3000
    assert isinstance(cluster.engine.decide(describe(owner("o2")), NOW), Placement)


def test_a_reservation_that_allocates_once_has_no_second_owner() -> None:
    cluster = cluster_with(available())
    first = cluster.engine.decide(describe(owner("o", cpu="1")), NOW)
    assert isinstance(first, Placement)
    cluster.engine.assume(first)
    assert isinstance(cluster.engine.decide(describe(owner("o2", cpu="2")), NOW), Rejection)


def test_owners_of_a_restricted_reservation_take_no_more_than_is_reserved() -> None:
    cluster = cluster_with(available(cpu="2", once=False, policy=RESTRICTED))
    requesting = noted(owner("o", cpu="3"), {RESERVATION_AFFINITY: "{}"})
    rejection = cluster.engine.decide(describe(requesting), NOW)
    assert isinstance(rejection, Rejection)
    assert "Reservation(s) Insufficient cpu" in rejection.message


def test_a_pod_that_must_use_a_reservation_waits_for_one() -> None:
    cluster = cluster_with()
    rejection = cluster.engine.decide(describe(noted(make_pod("p"), {RESERVATION_AFFINITY: "{}"})), NOW)
    assert isinstance(rejection, Rejection)
    assert "node(s) no reservations match reservation affinity" in rejection.message


def test_a_node_that_is_gone_has_no_discounts() -> None:
    cluster = cluster_with(available())
    cluster.bound(noted(owner("o"), {RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'}), "a")
    assert list(cluster.view.columns.discounts) == [0]
    cluster.state.remove_node("a")
    assert not cluster.view.columns.discounts
    cluster.state.set_node(make_node("a"))
    assert list(cluster.view.columns.discounts) == [0]
    cluster.state.remove_pod("uid-o")
    assert not cluster.view.columns.discounts


KINDS = ("owner", "plain", "gone", "node", "ask", "place", "reservation", "unreserve")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=30)


@settings(max_examples=examples(60))
@given(STEPS)
def test_what_is_requested_is_the_pods_and_what_nobody_uses_of_reservations(steps: Sequence[tuple[str, int]]) -> None:
    cluster = cluster_with()
    cluster.state.set_node(make_node("a", cpu="40"))
    owners: dict[str, int] = {}
    plain: dict[str, int] = {}
    reserved = False
    for step, number in steps:
        name, cpu = f"p{number}", number + 1
        match step:
            case "owner" if name not in owners | plain:
                pod = owner(name, cpu=str(cpu))
                cluster.bound(noted(pod, {RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'}), "a")
                owners[name] = cpu
            case "plain" if name not in owners | plain:
                cluster.bound(make_pod(name, cpu=str(cpu)), "a")
                plain[name] = cpu
            case "gone" if name in owners | plain:
                cluster.state.remove_pod(f"uid-{name}")
                owners.pop(name, None)
                plain.pop(name, None)
            case "node":
                cluster.state.remove_node("a")
                cluster.state.set_node(make_node("a", cpu="40"))
            case "ask":
                cluster.engine.decide(describe(owner("asking", cpu="1")), NOW)
            case "place" if name not in owners | plain:
                placement = cluster.engine.decide(describe(owner(name, cpu=str(cpu))), NOW)
                assert isinstance(placement, Placement)
                assert cluster.engine.assume(placement) is None
                # Of a Reservation that is used up nobody takes anything.
                (owners if reserved and sum(owners.values()) < 3 else plain)[name] = cpu
            case "reservation" if not reserved:
                held = available(cpu="3", once=False)
                cluster.state.set_object(RESERVATIONS, "r", held)
                cluster.bound(reserve_pod(held), "a")
                reserved = True
            case "unreserve" if reserved:
                cluster.state.set_object(RESERVATIONS, "r", None)
                cluster.state.remove_pod("uid-r")
                reserved = False
        used = sum(owners.values())
        kept = max(0, 3 - used) if reserved else 0
        assert cluster.view.columns.requested[cluster.row("a"), CPU] == 1000 * (used + sum(plain.values()) + kept)
