"""A Reservation of which nothing is left has no more owners: those who come later take from its node alone."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.annotations import NODE_RESERVATION, RESERVATION_AFFINITY
from koordinator.api.labels import RESERVATION_ORDER
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import ALIGNED, RESTRICTED, Reservation
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.pod_points import Use
from tests.scheduler.fakes import describe, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import available, cluster_with, noted, owner
from tests.scheduler.plugins.reservation.test_ports import with_port


def used_by(cluster: Cluster, pod: Pod) -> str:
    """The Reservation that the pod takes from once it has its place; "" for none."""
    placement = cluster.engine.decide(describe(pod), NOW)
    assert isinstance(placement, Placement), placement
    assert cluster.engine.assume(placement) is None
    use = cluster.view.allocations.of("Reservation", pod.metadata.uid)
    return use.name if isinstance(use, Use) else ""


@pytest.mark.parametrize("policy", ["", ALIGNED, RESTRICTED])
def test_a_used_up_reservation_has_no_further_owner(policy: str) -> None:
    cluster = cluster_with(available(cpu="1", once=False, policy=policy))
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    assert used_by(cluster, owner("o2", cpu="1")) == ""
    assert cluster.view.columns.requested[0, CPU] == 2000


def test_what_is_left_is_taken_and_the_rest_comes_from_the_node() -> None:
    cluster = cluster_with(available(cpu="2", once=False))
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    assert used_by(cluster, owner("o2", cpu="2")) == "r"


def test_a_reservation_has_owners_again_when_one_has_left() -> None:
    cluster = cluster_with(available(cpu="1", once=False))
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    cluster.state.remove_pod("uid-o1")
    assert used_by(cluster, owner("o2", cpu="1")) == "r"


def test_what_is_kept_back_inside_is_not_left() -> None:
    reservation = available(cpu="2", once=False)
    kept = {NODE_RESERVATION: '{"resources":{"cpu":"1"}}'}
    reservation = msgspec.structs.replace(
        reservation, metadata=msgspec.structs.replace(reservation.metadata, annotations=kept)
    )
    cluster = cluster_with(reservation)
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    assert used_by(cluster, owner("o2", cpu="1")) == ""


def test_an_owner_takes_from_one_that_is_not_used_up_whatever_their_order() -> None:
    cluster = cluster_with(ordered("r", 1), ordered("s", 2))
    assert [used_by(cluster, owner(name, cpu="1")) for name in ("o1", "o2", "o3")] == ["r", "s", ""]


def important(name: str, priority: int) -> Pod:
    pod = owner(name, cpu="1")
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


@pytest.mark.parametrize(("policy", "expected"), [("", "r"), (ALIGNED, "r"), (RESTRICTED, "")])
def test_an_owner_that_is_more_important_than_a_user_becomes_one_and_takes_from_the_node(
    policy: str, expected: str
) -> None:
    cluster = cluster_with(available(cpu="1", once=False, policy=policy))
    assert used_by(cluster, important("low", 1)) == "r"
    assert used_by(cluster, important("high", 2)) == expected
    assert cluster.view.columns.requested[0, CPU] == 2000
    assert used_by(cluster, important("equal", 1)) == ""


def test_a_more_important_owner_takes_what_is_left_elsewhere_first() -> None:
    cluster = cluster_with(ordered("r", 1), ordered("s", 2))
    assert [used_by(cluster, important(f"o{number}", number)) for number in range(3)] == ["r", "s", "r"]


def ordered(name: str, order: int) -> Reservation:
    reservation = available(name, cpu="1", once=False)
    labels = {RESERVATION_ORDER: str(order)}
    return msgspec.structs.replace(reservation, metadata=msgspec.structs.replace(reservation.metadata, labels=labels))


def test_a_pod_that_must_use_a_reservation_uses_one_that_is_used_up() -> None:
    cluster = cluster_with(available(cpu="1", once=False))
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    assert used_by(cluster, noted(owner("o2", cpu="1"), {RESERVATION_AFFINITY: "{}"})) == "r"


def test_host_ports_are_left_when_nothing_else_is() -> None:
    reservation = available(cpu="1", once=False)
    template = PodTemplateSpec(spec=with_port(make_pod("template", cpu="1")).spec)
    cluster = cluster_with(
        msgspec.structs.replace(reservation, spec=msgspec.structs.replace(reservation.spec, template=template))
    )
    assert used_by(cluster, owner("o1", cpu="1")) == "r"
    assert used_by(cluster, with_port(owner("o2", cpu="1"))) == "r"
