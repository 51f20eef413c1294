"""Host ports that a reservation holds: nobody else gets them, and they are free once it has ended."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import ContainerPort, Pod, PodTemplateSpec
from koordinator.api.reservation import FAILED, SUCCEEDED, Reservation
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.plugins.node_ports import NodePorts
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, noted


def with_port(pod: Pod) -> Pod:
    containers = [
        msgspec.structs.replace(each, ports=[ContainerPort(container_port=80, host_port=8080)])
        for each in pod.spec.containers
    ]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


def holding_a_port() -> tuple[Cluster, Reservation]:
    cluster, found = Cluster([make_node("a")], ReservationPlugin, NodePorts), available(cpu="1")
    template = PodTemplateSpec(spec=with_port(make_pod("template")).spec)
    found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, template=template))
    cluster.state.set_object(RESERVATIONS, "r", found)
    cluster.bound(reserve_pod(found), "a")
    return cluster, found


def end(cluster: Cluster, reservation: Reservation, phase: str) -> None:
    over = msgspec.structs.replace(reservation, status=msgspec.structs.replace(reservation.status, phase=phase))
    cluster.state.set_object(RESERVATIONS, "r", over)
    # What the handle does with a pseudo-pod that is taken back.
    cluster.state.remove_pod(reservation.metadata.uid)


def test_another_pod_does_not_get_the_port_of_a_reservation() -> None:
    cluster, _ = holding_a_port()
    assert isinstance(cluster.engine.decide(describe(with_port(make_pod("p"))), NOW), Rejection)


def test_an_owner_gets_the_port() -> None:
    cluster, _ = holding_a_port()
    owner = with_port(make_pod("o", labels=OWNER))
    assert isinstance(cluster.engine.decide(describe(owner), NOW), Placement)


@pytest.mark.parametrize("phase", [SUCCEEDED, FAILED])
def test_the_port_is_free_once_the_reservation_has_ended(phase: str) -> None:
    cluster, reservation = holding_a_port()
    end(cluster, reservation, phase)
    assert isinstance(cluster.engine.decide(describe(with_port(make_pod("p"))), NOW), Placement)


def test_an_owner_keeps_its_port_when_the_reservation_ends() -> None:
    cluster, reservation = holding_a_port()
    owner = noted(with_port(make_pod("o", labels=OWNER)), {RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'})
    cluster.bound(owner, "a")
    end(cluster, reservation, SUCCEEDED)
    assert isinstance(cluster.engine.decide(describe(with_port(make_pod("p"))), NOW), Rejection)
