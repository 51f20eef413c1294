"""What the services and the gauges show of reservations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordinator.api.annotations import RESERVATION_AFFINITY
from koordinator.api.codec import to_document
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import Reservation, ReservationStatus
from koordinator.base.services import ServiceError
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.explain.sources import filter_nodes
from koordinator.scheduler.plugins.reservation.documents import reservation_gauges
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.scheduler.fakes import describe, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import available, cluster_with, noted, owner
from tests.scheduler.plugins.reservation.test_ports import holding_a_port, with_port


def plugin_of(cluster: Cluster) -> ReservationPlugin:
    (plugin,) = cluster.engine.profile.all(ReservationPlugin)
    return plugin


def explained(cluster: Cluster, name: str = "r") -> dict[str, Any]:
    found = plugin_of(cluster).services()["/reservations/:name/explanation"]({"name": name})
    document: dict[str, Any] = to_document(found)
    return document


def placed(cluster: Cluster, pod: Pod) -> None:
    placement = cluster.engine.decide(describe(pod), NOW)
    assert isinstance(placement, Placement)
    assert cluster.engine.assume(placement) is None


def waits(cluster: Cluster, *pods: Pod) -> None:
    for pod in pods:
        cluster.state.show_pod(describe(pod), "")


def reasons(cluster: Cluster) -> dict[str, str]:
    return {each["pod"]: each["reason"] for each in explained(cluster)["waiting"]}


def test_the_explanation_says_whose_it_is_who_uses_it_and_what_is_left() -> None:
    cluster = cluster_with(available(once=False))
    placed(cluster, owner("o", cpu="1"))
    document = explained(cluster)
    assert document["owners"] == ["pods with app=web"]
    assert [each["pod"] for each in document["users"]] == ["default/o"]
    assert document["resources"][0] == {
        "name": "cpu",
        "allocatable": "3 cores",
        "allocated": "1 core",
        "left": "2 cores",
    }


def test_an_owner_that_would_use_it_has_no_reason() -> None:
    cluster = cluster_with(available())
    waits(cluster, owner("o"), make_pod("other"))
    assert reasons(cluster) == {"default/o": ""}


def test_an_owner_that_comes_too_late_is_told_so() -> None:
    cluster = cluster_with(available())
    placed(cluster, owner("first", cpu="1"))
    waits(cluster, owner("second"))
    assert reasons(cluster) == {"default/second": "the reservation is used up by its owner"}


def test_an_owner_is_told_that_others_have_left_nothing() -> None:
    cluster = cluster_with(available(cpu="1", once=False))
    placed(cluster, owner("first", cpu="1"))
    waits(cluster, owner("second", cpu="1"))
    assert reasons(cluster) == {"default/second": "nothing that the pod requests is left of the reservation"}


def test_an_owner_of_another_name_is_reported_the_mismatch() -> None:
    cluster = cluster_with(available())
    waits(cluster, noted(owner("o"), {RESERVATION_AFFINITY: '{"name": "another"}'}))
    assert reasons(cluster) == {"default/o": "the reservation didn't match the requested reservation name"}


def test_an_owner_that_does_not_fit_is_told_what_the_node_lacks() -> None:
    cluster = cluster_with(available())
    waits(cluster, owner("o", cpu="100"))
    assert reasons(cluster) == {"default/o": "Insufficient cpu by node"}


def test_a_reservation_without_a_node_says_why() -> None:
    cluster = cluster_with()
    pending = msgspec.structs.replace(available(), status=ReservationStatus())
    cluster.state.set_object(RESERVATIONS, "r", pending)
    waits(cluster, owner("o"))
    document = explained(cluster)
    assert (document["phase"], reasons(cluster)) == (
        "Pending",
        {"default/o": "the reservation is on no node yet"},
    )


def test_a_pod_that_got_its_node_waits_no_more() -> None:
    cluster = cluster_with(available())
    waits(cluster, owner("o"))
    cluster.state.show_pod(describe(owner("o")), "a")
    assert reasons(cluster) == {}


def test_only_the_most_important_waiting_owners_are_listed() -> None:
    cluster = cluster_with(available())
    waits(cluster, *(owner(f"o{number:02}") for number in range(12)))
    document = explained(cluster)
    assert (len(document["waiting"]), document["waitingLeftOut"]) == (10, 2)


def test_a_reservation_that_nobody_knows_is_not_found() -> None:
    with pytest.raises(ServiceError, match="cannot find reservation r"):
        explained(cluster_with())


def test_the_closest_node_says_what_its_reservation_lacks() -> None:
    cluster = cluster_with(available())
    pod = describe(noted(owner("o", cpu="100"), {RESERVATION_AFFINITY: "{}"}))
    results = filter_nodes(cluster.engine.profile, cluster.view, pod)
    texts = [lack.text for objection in results.objections(0) for lack in objection.lacks]
    assert "reservation r: Insufficient cpu by node" in texts


def test_the_reservations_of_a_node_are_listed_as_by_the_original() -> None:
    cluster = cluster_with(available(once=False))
    placed(cluster, owner("o", cpu="1"))
    (item,) = plugin_of(cluster).services()["/nodeReservations/:nodeName"]({"nodeName": "a"})["items"]
    assert item["allocatable"] == {"cpu": "3", "memory": "1Gi"}
    assert (item["name"], item["kind"], item["allocated"]["cpu"]) == ("r", "Reservation", "1")
    assert [(each["Name"], each["Ports"]) for each in item["assignedPods"]] == [("o", None)]
    shown = [[item[f"{name}Resource"][key] for key in ("MilliCPU", "Memory")] for name in ("available", "allocated")]
    assert shown == [[2000, 0], [1000, 2**30]]


def test_host_ports_are_shown_in_the_form_of_those_of_nodes() -> None:
    cluster, _ = holding_a_port()
    placed(cluster, with_port(owner("o", cpu="1")))
    (item,) = plugin_of(cluster).services()["/nodeReservations/:nodeName"]({"nodeName": "a"})["items"]
    ports = {"0.0.0.0": [{"Protocol": "TCP", "Port": 8080}]}
    assert (item["allocatablePorts"], item["allocatedPorts"], item["assignedPods"][0]["Ports"]) == (ports,) * 3


def test_a_node_without_reservations_has_an_empty_document() -> None:
    services = plugin_of(cluster_with()).services()
    assert services["/nodeReservations/:nodeName"]({"nodeName": "a"}) == {}


def samples(*reservations: Reservation) -> dict[tuple[str, ...], float]:
    return {
        (each.name.removeprefix("scheduler_reservation_"), *each.labels.values()): each.value
        for gauge in reservation_gauges(lambda: reservations)
        for family in gauge.collect()
        for each in family.samples
    }


def test_the_gauges_have_the_units_of_the_original() -> None:
    reservation = available()
    status = msgspec.structs.replace(reservation.status, allocated={"cpu": Quantity.parse("1500m")})
    found = samples(msgspec.structs.replace(reservation, status=status))
    assert found["status_phase", "r", "Available"] == 1.0
    assert found["status_phase", "r", "Pending"] == 0.0
    assert found["resource", "allocatable", "r", "memory", "Gi"] == 1.0
    assert found["resource", "allocated", "r", "cpu", "core"] == 1.5
    assert found["resource", "utilization", "r", "cpu", "ratio"] == 0.5
