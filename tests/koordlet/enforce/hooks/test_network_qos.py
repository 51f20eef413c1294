"""Rounds of TCNetworkQoS on a simulated kernel."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.hooks.network_classes import _MINORS, QDISC, assign
from koordinator.koordlet.enforce.hooks.network_qos import NetworkQoS
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.errors import Unavailable
from koordinator.node.traffic_control import (
    AddressSet,
    CgroupFilter,
    Qdisc,
    Rule,
    Shaping,
    SourceFilter,
    TrafficControlError,
)
from tests.koordlet.enforce.hooks.hook_fixtures import LAYOUT
from tests.node.traffic_control_kernel import TrafficControlKernel

MB = 1_000_000
NETWORK = {
    "lsClass": {"networkQOS": {"enable": True, "egressRequest": 40, "egressLimit": 100}},
    "beClass": {"networkQOS": {"enable": True, "egressRequest": "80M", "egressLimit": 25}},
}
TREE = {
    1: (0, 100 * MB, 100 * MB, 0),
    2: (1, 50 * MB, 100 * MB, 1),
    3: (1, 40 * MB, 100 * MB, 2),
    4: (1, 10 * MB, 25 * MB, 3),
}
RULES = [Rule("be_class", 4), Rule("ls_class", 3), Rule("system_class", 2)]


def slo(total: str = "800M", policy: str | None = None, **classes: Any) -> NodeSLOSpec:
    strategy = {**NETWORK, **classes, "policies": {"netQOSPolicy": policy}}
    return convert({"systemStrategy": {"totalNetworkBandwidth": total}, "resourceQOSStrategy": strategy}, NodeSLOSpec)


def pod(name: str, address: str, qos: str = "LS", cap: str | None = None, *, host_network: bool = False) -> NodePod:
    annotations = {} if cap is None else {"koordinator.sh/networkQOS": json.dumps({"egressLimit": cap})}
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    document = {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels, "annotations": annotations},
        "spec": {"hostNetwork": host_network},
        "status": {"podIP": address},
    }
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    return made


class ShapedNode:
    """A node whose NodeSLO requests it, with what does it."""

    def __init__(self, *devices: str) -> None:
        self.kernel = TrafficControlKernel(*devices)
        self.policy: NodeSLOSpec | None = slo()
        self.pods: list[NodePod] | None = []
        self.has_net_cls = False
        self.bandwidths: dict[str, int] = {}
        self.records: list[str] = []
        self.network = self.start()

    def start(self, **options: Any) -> NetworkQoS:
        """Of an agent that has just started."""
        sources = (lambda: self.policy), (lambda: self.pods), lambda: self.has_net_cls, lambda: self.bandwidths
        options = {"is_enabled": True, "record": self.records.append, **options}
        access = options.pop("access", self.kernel.access)
        self.network = NetworkQoS(access, *sources, **options)
        return self.network

    def reconcile(self) -> None:
        asyncio.run(self.network.reconcile())

    def minor(self, uid: str) -> int:
        return self.network.minors[uid]


@pytest.fixture
def node() -> ShapedNode:
    return ShapedNode()


def test_the_tree_has_a_class_for_the_node_and_one_for_each_class_of_pods(node: ShapedNode) -> None:
    node.reconcile()
    assert node.kernel.devices["eth0"].root == QDISC
    assert node.kernel.classes() == TREE


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ({"enable": True, "egressRequest": 10, "egressLimit": 0}, (10 * MB, 10 * MB)),
        ({"enable": True}, (1000, 100 * MB)),
        ({"enable": True, "egressRequest": 50, "egressLimit": 20}, (20 * MB, 20 * MB)),
        ({"enable": False, "egressRequest": 50, "egressLimit": 20}, (1000, 100 * MB)),
        ({"enable": True, "egressRequest": "900M", "egressLimit": 20}, (1000, 20 * MB)),
    ],
    ids=["without a limit the request is the limit", "neither", "a request above the limit", "off", "above the total"],
)
def test_bounds_of_a_class(node: ShapedNode, given: dict[str, Any], bounds: tuple[int, int]) -> None:
    node.policy = slo(beClass={"networkQOS": given})
    node.reconcile()
    assert node.kernel.classes()[4][1:3] == bounds


def test_requests_of_more_than_everything_leave_the_node_a_little(
    node: ShapedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.policy = slo(beClass={"networkQOS": {"enable": True, "egressRequest": 70}})
    node.reconcile()
    assert node.kernel.classes()[2] == (1, 1000, 100 * MB, 1)
    assert "allowed: up to systemStrategy.totalNetworkBandwidth, which is 800000000" in caplog.text


def test_a_changed_policy_changes_the_classes_in_place(node: ShapedNode) -> None:
    node.reconcile()
    node.kernel.steps.clear()
    node.policy = slo(beClass={"networkQOS": {"enable": True, "egressRequest": "80M", "egressLimit": 50}})
    node.reconcile()
    assert node.kernel.steps == ["change class 1:4 with 10000000 to 50000000 bytes/s"]


def test_pods_are_distinguished_by_sets_of_their_addresses(node: ShapedNode) -> None:
    node.pods = [
        pod("a", "10.1.0.1", "LSR"),
        pod("b", "10.1.0.2", "BE"),
        pod("c", "10.1.0.3", "SYSTEM"),
        pod("d", "10.1.0.4", ""),
        pod("e", "fd00::1", "LS"),
        pod("f", "", "LS"),
    ]
    node.reconcile()
    assert node.kernel.sets == {"system_class": {"10.1.0.3"}, "ls_class": {"10.1.0.1"}, "be_class": {"10.1.0.2"}}
    assert node.kernel.rules == RULES


def test_pods_in_the_nodes_network_are_in_no_set(node: ShapedNode) -> None:
    node.pods = [pod("a", "192.168.0.1", "BE", host_network=True)]
    node.reconcile()
    assert not any(node.kernel.sets.values())


def test_a_pod_with_a_cap_has_a_class_of_its_own(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "8M")]
    node.reconcile()
    assert node.kernel.classes()[node.minor("a")] == (1, MB, MB, 3)
    assert node.kernel.sources() == {"10.1.0.1": node.minor("a")}
    assert not any(node.kernel.sets.values())


@pytest.mark.parametrize(("own", "rate"), [(None, MB), ("80M", MB), ("4M", MB // 2)])
def test_what_a_strategy_leaves_to_a_pod_holds_beside_its_own_cap(node: ShapedNode, own: str | None, rate: int) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", own)]
    node.bandwidths = {"a": 8_000_000, "gone": 8_000_000}
    node.reconcile()
    assert node.kernel.classes()[node.minor("a")] == (1, rate, rate, 3)
    node.bandwidths = {}
    node.pods = [pod("a", "10.1.0.1", "BE")]
    node.reconcile()
    assert (node.kernel.classes(), node.kernel.sets["be_class"]) == (TREE, {"10.1.0.1"})


def test_a_cap_above_the_bandwidth_of_the_node_is_that_bandwidth(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "80G")]
    node.reconcile()
    assert node.kernel.classes()[node.minor("a")] == (1, 100 * MB, 100 * MB, 3)


def test_a_pod_with_an_invalid_cap_counts_by_its_class(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "fast")]
    node.reconcile()
    assert node.kernel.sets["be_class"] == {"10.1.0.1"}


def test_a_pod_that_ends_leaves_nothing(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    node.pods = []
    node.reconcile()
    assert (node.kernel.classes(), node.kernel.sources(), node.network.minors) == (TREE, {}, {})
    assert not any(node.kernel.sets.values())


def test_a_pod_with_a_new_address_and_a_new_cap(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "8M")]
    node.reconcile()
    node.pods = [pod("a", "10.1.0.9", "BE", "16M")]
    node.reconcile()
    assert node.kernel.classes()[node.minor("a")] == (1, 2 * MB, 2 * MB, 3)
    assert node.kernel.sources() == {"10.1.0.9": node.minor("a")}


def test_a_restart_changes_nothing(node: ShapedNode) -> None:
    node.pods = [pod(f"p{number}", f"10.1.0.{number}", "BE", "8M") for number in range(1, 20)]
    node.reconcile()
    node.kernel.steps.clear()
    node.start()
    node.reconcile()
    assert node.kernel.steps == []


def test_until_kubelet_reports_its_pods_theirs_stays(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    node.kernel.steps.clear()
    node.start()
    node.pods = None
    node.reconcile()
    assert node.kernel.steps == []


def test_what_others_change_is_put_back(node: ShapedNode) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE")]
    node.reconcile()
    shaping = node.kernel.devices["eth0"]
    node.kernel.devices["eth0"] = replace(shaping, classes=shaping.classes[:2])
    node.kernel.rules.clear()
    node.kernel.sets["be_class"].clear()
    node.reconcile()
    assert (node.kernel.classes(), node.kernel.sets["be_class"]) == (TREE, {"10.1.0.1"})
    assert node.kernel.rules == RULES


def test_a_rule_that_sends_a_set_elsewhere_goes(node: ShapedNode) -> None:
    node.kernel.sets["ls_class"] = set()
    node.kernel.rules = [Rule("ls_class", 9), Rule("other", 9)]
    node.reconcile()
    assert Rule("ls_class", 9) not in node.kernel.rules
    assert Rule("other", 9) in node.kernel.rules


@pytest.mark.parametrize("policy", [slo(policy="terway-qos"), slo(total="0")], ids=["another policy", "no bandwidth"])
def test_switching_it_off_takes_everything_away(node: ShapedNode, policy: NodeSLOSpec) -> None:
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    node.policy = policy
    node.reconcile()
    assert node.kernel.devices["eth0"] == Shaping("eth0", Qdisc("mq", 0))
    assert (node.kernel.sets, node.kernel.rules, node.network.minors) == ({}, [], {})


def test_what_was_never_requested_opens_nothing(node: ShapedNode) -> None:
    node.policy = slo(policy="terway-qos")
    node.reconcile()
    node.reconcile()
    assert node.kernel.opened == 0


def test_what_an_earlier_agent_left_goes_if_it_is_not_requested(node: ShapedNode) -> None:
    node.reconcile()
    node.start()
    node.policy = slo(policy="terway-qos")
    node.reconcile()
    node.reconcile()
    assert node.kernel.devices["eth0"] == Shaping("eth0", Qdisc("mq", 0))
    assert (node.kernel.sets, node.kernel.opened) == ({}, 2)


def test_an_agent_that_is_removed_takes_away_what_another_left(node: ShapedNode) -> None:
    node.pods = [pod("b", "10.1.0.2")]
    node.reconcile()
    node.start(is_enabled=False)
    node.reconcile()
    assert node.kernel.devices["eth0"] == Shaping("eth0", Qdisc("mq", 0))
    assert (node.kernel.sets, node.kernel.rules) == ({}, [])


def test_what_cannot_be_taken_away_is_an_error(node: ShapedNode) -> None:
    node.reconcile()
    node.start(is_enabled=False)
    node.kernel.refuses = Qdisc
    with pytest.raises(TrafficControlError, match=r"not taken away.*delete qdisc htb 1:"):
        node.reconcile()


def test_without_a_nodeslo_everything_stays(node: ShapedNode) -> None:
    node.policy = None
    node.reconcile()
    assert node.kernel.opened == 0


def test_a_qdisc_of_somebody_else_stays(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    theirs = Shaping("eth0", Qdisc("fq", 0x8001))
    node.kernel.devices["eth0"] = theirs
    node.reconcile()
    assert node.kernel.devices["eth0"] == theirs
    assert "eth0 has a root qdisc fq 8001: that koordlet has not made" in caplog.text


def test_another_default_route_moves_the_tree() -> None:
    node = ShapedNode("eth0", "eth1")
    node.reconcile()
    node.kernel.default = "eth1"
    node.reconcile()
    assert node.kernel.devices["eth0"].root == Qdisc("mq", 0)
    assert node.kernel.classes("eth1") == TREE


def test_without_iptables_caps_count_all_the_same(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.kernel.no_iptables = Unavailable("iptables is not installed", "iptables")
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    assert node.kernel.sources() == {"10.1.0.1": node.minor("a")}
    assert (node.kernel.sets, node.kernel.rules) == ({}, [])
    assert (
        "pods are not distinguished by class, and only their own limits count: iptables is not installed" in caplog.text
    )


def test_what_is_missing_is_said_once(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.kernel.missing = Unavailable("pyroute2 is not installed", "pip install 'koordinator[network]'")
    node.reconcile()
    node.reconcile()
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "no network QoS: pyroute2 is not installed; it needs pip install 'koordinator[network]'"
    ]


def test_a_step_that_is_refused_does_not_keep_others_back(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.kernel.refuses = SourceFilter
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    assert node.kernel.sets["ls_class"] == {"10.1.0.2"}
    assert "Operation not permitted" in caplog.text


def test_packets_of_the_nodes_network_go_by_cgroup_where_it_can_be(node: ShapedNode) -> None:
    node.has_net_cls = True
    node.reconcile()
    node.reconcile()
    assert [each.means for each in node.kernel.devices["eth0"].filters] == [CgroupFilter()]


def test_observe_only_does_nothing(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.start(observe_only=True)
    node.reconcile()
    assert node.kernel.steps == []
    assert "observe only: TCNetworkQoS: add qdisc htb 1:" in caplog.text


def test_connections_are_closed(node: ShapedNode) -> None:
    node.reconcile()
    assert (node.kernel.opened, node.kernel.closed) == (1, 1)


def test_what_is_done_is_recorded(node: ShapedNode) -> None:
    node.reconcile()
    assert node.records[0] == "eth0: add qdisc htb 1:"


def test_no_two_pods_share_a_number_and_a_number_stays() -> None:
    first = assign([f"pod-{number}" for number in range(3000)], {})
    assert len(set(first.values())) == 3000
    assert min(first.values()) >= 16
    second = assign([f"pod-{number}" for number in range(1500, 4500)], first)
    assert all(second[uid] == minor for uid, minor in first.items() if uid in second)


def test_when_the_numbers_run_out_the_rest_has_none() -> None:
    assert len(assign([str(number) for number in range(_MINORS)], {})) < _MINORS


def test_a_kernel_without_htb_is_said_in_one_line(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.kernel.refuses = Qdisc
    node.pods = [pod("a", "10.1.0.1", "BE", "8M"), pod("b", "10.1.0.2")]
    node.reconcile()
    node.reconcile()
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "TCNetworkQoS: add qdisc htb 1:: Operation not permitted"
    ]


def test_a_kernel_without_sets_is_said_in_a_line_for_each(node: ShapedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.kernel.refuses = AddressSet
    node.pods = [pod(f"p{number}", f"10.1.0.{number}") for number in range(1, 9)]
    node.reconcile()
    assert sorted(record.message for record in caplog.records if record.levelno == logging.WARNING) == [
        f"TCNetworkQoS: add set {name}: Operation not permitted" for name in ("be_class", "ls_class", "system_class")
    ]


def test_a_route_that_goes_away_for_a_moment_changes_nothing(node: ShapedNode) -> None:
    node.reconcile()
    node.kernel.default = None
    node.reconcile()
    assert node.kernel.classes() == TREE


def test_rounds_that_wait_run_in_one_thread(node: ShapedNode) -> None:
    threads: list[int] = []

    def open_() -> TrafficControlKernel:
        threads.append(threading.get_ident())
        return node.kernel

    node.start(access=replace(node.kernel.access, open=open_, waits=True))
    for _ in range(3):
        node.reconcile()
    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads
