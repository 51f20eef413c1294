"""Pod addresses are distinct while pods live."""

from __future__ import annotations

from koordinator.cluster.nodes.pod_addresses import PodAddresses


def test_pods_have_distinct_addresses() -> None:
    addresses = PodAddresses()
    taken = {addresses.take(f"pod-{node}-{index}", node) for node in range(300) for index in range(250)}
    assert len(taken) == 300 * 250


def test_a_pod_keeps_its_address() -> None:
    addresses = PodAddresses()
    assert addresses.take("a", 0) == addresses.take("a", 0)


def test_addresses_of_an_earlier_run_are_not_given_again() -> None:
    addresses = PodAddresses()
    addresses.adopt("old", "10.128.0.1")
    assert addresses.take("new", 0) == "10.128.0.2"


def test_a_released_address_is_used_again_when_its_turn_comes() -> None:
    addresses = PodAddresses()
    for index in range(254):
        addresses.take(f"pod-{index}", 0)
    addresses.release("pod-7")
    assert addresses.take("new", 0) == "10.128.0.8"
