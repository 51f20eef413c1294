"""TCNetworkQoS on the kernel of this machine, in a network namespace: what it makes, and what becomes of packets."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.network_namespace import NodeNetwork, missing, node_network

SLO: dict[str, Any] = {
    "systemStrategy": {"totalNetworkBandwidth": "800M"},
    "resourceQOSStrategy": {
        "lsClass": {"networkQOS": {"enable": True, "egressRequest": 40, "egressLimit": 100}},
        "beClass": {"networkQOS": {"enable": True, "egressRequest": "80M", "egressLimit": 25}},
    },
}
TERWAY = {**SLO, "resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}}
LS, BE, CAPPED = "10.1.0.1", "10.1.0.2", "10.1.0.3"
TREE = {  # parent, rate, ceil, priority
    "1:1": ("", "800Mbit", "800Mbit", ""),
    "1:2": ("1:1", "400Mbit", "800Mbit", "1"),
    "1:3": ("1:1", "320Mbit", "800Mbit", "2"),
    "1:4": ("1:1", "80Mbit", "200Mbit", "3"),
}


def pod(name: str, address: str, qos: str, cap: str | None = None) -> dict[str, Any]:
    annotations = {} if cap is None else {"koordinator.sh/networkQOS": json.dumps({"egressLimit": cap})}
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": {"koordinator.sh/qosClass": qos}}
    return {"metadata": metadata | {"annotations": annotations}, "spec": {}, "status": {"podIP": address}}


PODS = [pod("ls", LS, "LS"), pod("be", BE, "BE"), pod("capped", CAPPED, "BE", "8M")]


@pytest.fixture(scope="module")
def can_have_a_namespace() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def network(can_have_a_namespace: None) -> Iterator[NodeNetwork]:
    with node_network() as network:
        for address in (LS, BE, CAPPED):
            network.add_address(address)
        yield network


@pytest.fixture
def iptables() -> None:
    if shutil.which("iptables") is None:
        pytest.skip("needs iptables")


def tree(network: NodeNetwork) -> dict[str, tuple[str, str, str, str]]:
    return {handle: (each.parent, each.rate, each.ceil, each.priority) for handle, each in network.classes().items()}


def test_the_tree_of_classes_follows_the_nodeslo(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        rounds(SLO)
        first = tree(network)
        rounds({**SLO, "systemStrategy": {"totalNetworkBandwidth": "100G"}})
        second = tree(network)
    assert first == TREE
    assert {handle: each[1:3] for handle, each in second.items()} == {
        "1:1": ("100Gbit", "100Gbit"),
        "1:2": ("59920Mbit", "100Gbit"),
        "1:3": ("40Gbit", "100Gbit"),
        "1:4": ("80Mbit", "25Gbit"),
    }


def test_packets_of_pods_go_through_the_class_of_the_pod(network: NodeNetwork, iptables: None) -> None:
    with network.rounds() as rounds:
        minors = rounds(SLO, PODS)
        assert rounds.log == []
    before = network.classes()
    for source, packets in (("10.99.0.2", 1), (LS, 2), (BE, 3), (CAPPED, 4)):
        network.send(source, packets=packets)
    after = network.classes()
    sent = {handle: each.packets - before[handle].packets for handle, each in after.items() if handle != "1:1"}
    # What the kernel itself sends, such as its search for neighbours, is the node's, too.
    assert sent.pop("1:2") >= 1
    assert sent == {"1:3": 2, "1:4": 3, f"1:{minors['capped']:x}": 4}


def test_a_pod_is_held_to_its_cap(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        minors = rounds(SLO, PODS)
    handle, size, packets = f"1:{minors['capped']:x}", 1000, 400
    started = time.monotonic()
    network.send(CAPPED, packets=packets, size=size)
    while network.classes()[handle].packets < packets:
        assert time.monotonic() - started < 30
    # 400 kB at 1 MB/s; the start of a process is in it.
    assert 0.3 <= time.monotonic() - started < 3


SHARED: dict[str, Any] = {"systemStrategy": {"totalNetworkBandwidth": "4M"}}
QUEUED, COUNTED = 900, 450
"""Packets of 1000 bytes: what each flow has to send, and after how many of both together the shares are read."""


def shared(ls: dict[str, Any], be: dict[str, Any]) -> dict[str, Any]:
    classes = {"lsClass": ls, "beClass": be}
    return {
        **SHARED,
        "resourceQOSStrategy": {name: {"networkQOS": {"enable": True, **of}} for name, of in classes.items()},
    }


def share_of_ls(network: NodeNetwork, slo: dict[str, Any]) -> float:
    """Of what two flows that both have more to send get, each from a pod of its class."""
    with network.rounds() as rounds:
        rounds(slo, PODS)
        assert rounds.log == []
    before = network.classes()

    def sent() -> list[int]:
        now = network.classes()
        return [now[handle].packets - before[handle].packets for handle in ("1:3", "1:4")]

    network.send(LS, BE, packets=QUEUED)
    started = time.monotonic()
    while sum(counts := sent()) < COUNTED:
        assert time.monotonic() - started < 30, counts
    assert max(counts) < QUEUED, "a flow had nothing to send any more"
    return counts[0] / sum(counts)


def test_two_flows_get_the_shares_of_their_classes(network: NodeNetwork, iptables: None) -> None:
    """What a class has not requested, the one with the higher priority gets first."""
    everything = {"egressLimit": 100}
    slo = shared({"egressRequest": 70, **everything}, {"egressRequest": 30, **everything})
    assert share_of_ls(network, slo) == pytest.approx(0.7, abs=0.1)


def test_what_one_class_may_not_take_the_other_one_gets(network: NodeNetwork, iptables: None) -> None:
    slo = shared({"egressRequest": 10, "egressLimit": 20}, {"egressRequest": 30, "egressLimit": 100})
    assert share_of_ls(network, slo) == pytest.approx(0.2, abs=0.1)


def test_a_second_agent_finds_everything_as_it_should_be(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        minors = rounds(SLO, PODS)
    before = network.run("tc", "filter", "show", "dev", "eth0"), tree(network)
    with network.rounds() as rounds:
        assert rounds(SLO, None) == {}
        assert rounds(SLO, PODS) == minors
    assert (network.run("tc", "filter", "show", "dev", "eth0"), tree(network)) == before


def test_a_pod_that_ends_takes_its_class_along(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        rounds(SLO, PODS[:2])
    assert tree(network) == TREE
    assert "flowid" not in network.run("tc", "filter", "show", "dev", "eth0")


@pytest.mark.parametrize("last", [{"slo": TERWAY}, {"slo": SLO, "enabled": False}], ids=["terway-qos", "--cleanup"])
def test_nothing_is_left_when_it_is_switched_off(network: NodeNetwork, last: dict[str, Any]) -> None:
    before = network.root()
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        assert network.root() == "htb"
        rounds(pods=PODS, **last)
    assert (network.root(), tree(network)) == (before, {})


def test_the_library_is_imported_only_when_there_is_something_to_be_done(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        rounds(TERWAY)
        assert (rounds.has_tree, rounds.has_imported) == (False, False)
        rounds(SLO)
        assert (rounds.has_tree, rounds.has_imported) == (True, True)


def test_what_an_earlier_agent_left_goes_if_it_is_not_requested(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        rounds(SLO, PODS)
    with network.rounds() as rounds:
        rounds(TERWAY, PODS)
        assert not rounds.has_tree
    assert tree(network) == {}


def test_no_rules_and_sets_are_left_when_it_is_switched_off(network: NodeNetwork, iptables: None) -> None:
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        assert len(network.rules()) == 3
        rounds(SLO, PODS, enabled=False)
        assert network.rules() == []
        # Sets that were still there would keep these from being made.
        rounds(SLO, PODS)
        assert rounds.log == []


def test_a_qdisc_of_somebody_else_stays(network: NodeNetwork) -> None:
    theirs = "tc qdisc add dev eth0 root handle 5: tbf rate 1gbit burst 100kb latency 50ms"
    network.run(*theirs.split())
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        assert rounds.log == ["no network QoS: eth0 has a root qdisc tbf 5: that koordlet has not made"]
    assert network.root() == "tbf"


def test_a_node_without_a_default_route_is_left_alone(network: NodeNetwork) -> None:
    network.run("ip", "route", "del", "default")
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        assert rounds.log == ["no network QoS: the node has no IPv4 default route"]


def test_rounds_leave_no_files_open(network: NodeNetwork) -> None:
    with network.rounds() as rounds:
        rounds(SLO, PODS)
        before = rounds.descriptors()
        rounds(SLO, PODS, rounds=20)
        assert rounds.descriptors() <= before
