from __future__ import annotations

from koordinator.api.defaults import with_defaults
from koordinator.api.duration import GoDuration
from koordinator.api.nodeslo import NodeSLO, NodeSLOSpec
from koordinator.api.reservation import PreAllocationPolicy, Reservation, ReservationSpec
from koordinator.api.resource_qos import NetworkQoSConfig, ResourceQoS, ResourceQoSStrategy


def test_a_reservation_gets_the_defaults_of_its_schema() -> None:
    filled = with_defaults(Reservation())
    assert (filled.spec.ttl, filled.spec.allocate_once, filled.status.phase) == (
        GoDuration(hours=24),
        True,
        "Pending",
    )


def test_what_is_set_stays() -> None:
    spec = with_defaults(ReservationSpec(ttl=GoDuration(0), allocate_once=False))
    assert (spec.ttl, spec.allocate_once) == (GoDuration(0), False)


def test_a_struct_that_is_there_gets_its_defaults() -> None:
    spec = with_defaults(ReservationSpec(pre_allocation_policy=PreAllocationPolicy()))
    assert spec.pre_allocation_policy == PreAllocationPolicy(mode="Default")


def test_network_limits_default_to_all_of_the_bandwidth() -> None:
    strategy = ResourceQoSStrategy(be_class=ResourceQoS(network_qos=NetworkQoSConfig()))
    filled = with_defaults(NodeSLO(spec=NodeSLOSpec(resource_qos_strategy=strategy)))
    assert filled.spec.resource_qos_strategy == ResourceQoSStrategy(
        be_class=ResourceQoS(
            network_qos=NetworkQoSConfig(ingress_request=0, ingress_limit=100, egress_request=0, egress_limit=100)
        )
    )


def test_a_complete_object_is_returned_itself() -> None:
    complete = with_defaults(Reservation())
    assert with_defaults(complete) is complete
