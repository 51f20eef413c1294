"""The arguments ``ignoredResources`` and ``ignoredResourceGroups``: what is not looked at when a pod is to fit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_AFFINITY
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import RESTRICTED
from koordinator.scheduler.configuration.koordinator_arguments import ReservationArgs
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.pod_info import PodInfo, PodRequest
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, noted

DEVICE = "example.com/device"


def decide(**given: Any) -> Placement | Rejection:
    """A pod that has to use a Reservation, and requests two devices of a Reservation with one."""

    class Plugin(ReservationPlugin):
        def __init__(self, args: Any, view: ClusterView) -> None:
            super().__init__(ReservationArgs(**given), view)

    reservation = available(policy=RESTRICTED)
    held = {**reservation.status.allocatable, DEVICE: Quantity.parse("1")}
    reservation = replace(reservation, status=replace(reservation.status, allocatable=held))
    cluster = Cluster([make_node("a")], Plugin)
    cluster.state.set_object(RESERVATIONS, "r", reservation)
    cluster.bound(reserve_pod(reservation), "a")
    pod = noted(make_pod("o", labels=OWNER), {RESERVATION_AFFINITY: "{}"})
    request = PodRequest({"cpu": 1000, DEVICE: 2}, (1000, 0))
    decided = cluster.engine.decide(PodInfo(pod, request, pod.metadata.key, pod.metadata.uid, 0), NOW)
    assert isinstance(decided, Placement | Rejection)
    return decided


def test_without_them_everything_is_looked_at() -> None:
    rejection = decide()
    assert isinstance(rejection, Rejection)
    assert f"Reservation(s) Insufficient {DEVICE}" in rejection.message


@pytest.mark.parametrize("given", [{"ignored_resources": [DEVICE]}, {"ignored_resource_groups": ["example.com"]}])
def test_what_is_ignored_keeps_no_pod_out(given: dict[str, list[str]]) -> None:
    assert isinstance(decide(**given), Placement)


@pytest.mark.parametrize(
    "given", [{"ignored_resources": ["example.com/other"]}, {"ignored_resource_groups": ["example"]}]
)
def test_what_is_named_otherwise_is_looked_at(given: dict[str, list[str]]) -> None:
    assert isinstance(decide(**given), Rejection)
