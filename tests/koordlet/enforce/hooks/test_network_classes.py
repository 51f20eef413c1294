"""TCNetworkQoS: net_cls.classid of pods, annotations that are invalid, and what the NodeSLO requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.koordlet.enforce.hooks.contexts import HookError
from koordinator.koordlet.enforce.hooks.network_classes import is_enabled, net_class
from koordinator.koordlet.enforce.hooks.rules import Rules
from tests.koordlet.enforce.hooks.hook_fixtures import rules, running
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.enforce.strategies.qos_fixtures import policy

REQUESTING = policy(systemStrategy={"totalNetworkBandwidth": "800M"})
CAP = {"koordinator.sh/networkQOS": '{"egressLimit": "8M"}'}


def shaped(**given: Any) -> Rules:
    return rules(policy=REQUESTING, has_network_classes=True, **given)


@pytest.mark.parametrize(
    ("qos", "minor"), [("SYSTEM", 2), ("LSE", 3), ("LSR", 3), ("LS", 3), ("BE", 4)], ids=lambda value: str(value)
)
def test_a_pod_has_the_class_of_its_label(qos: str, minor: int) -> None:
    change = net_class(running(qos=qos), shaped())
    assert change is not None
    assert change.net_class == 0x10000 + minor


def test_a_pod_without_a_label_is_left_alone() -> None:
    assert net_class(running(qos=""), shaped()) is None


def test_a_pod_with_a_cap_has_its_own_class() -> None:
    change = net_class(running(annotations=CAP), shaped(network_classes={"web": 0x2F3A}))
    assert change is not None
    assert change.net_class == 0x12F3A


def test_a_pod_that_is_held_back_has_its_own_class() -> None:
    change = net_class(running(), shaped(network_classes={"web": 0x2F3A}))
    assert change is not None
    assert change.net_class == 0x12F3A


def test_a_pod_whose_class_is_not_there_yet_waits_for_it() -> None:
    assert net_class(running(annotations=CAP), shaped()) is None


def test_without_the_controller_nothing_is_written() -> None:
    assert net_class(running(), rules(policy=REQUESTING)) is None


@pytest.mark.parametrize("text", ["fast", '{"egressLimit": "fast"}', '{"ingressLimit": "-1"}', '{"egressLimit": 5}'])
def test_an_invalid_annotation_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(HookError, match=r"metadata\.annotations\[koordinator\.sh/networkQOS\]"):
        net_class(running(annotations={"koordinator.sh/networkQOS": text}), rules(policy=REQUESTING))


@pytest.mark.parametrize(
    ("spec", "requested"),
    [
        ({"systemStrategy": {"totalNetworkBandwidth": "1G"}}, True),
        ({"systemStrategy": {"totalNetworkBandwidth": "0"}}, False),
        ({}, False),
        ({"systemStrategy": {"totalNetworkBandwidth": "1G"}, "resourceQOSStrategy": {"policies": {}}}, True),
        (
            {
                "systemStrategy": {"totalNetworkBandwidth": "1G"},
                "resourceQOSStrategy": {"policies": {"netQOSPolicy": "tc"}},
            },
            True,
        ),
        (
            {
                "systemStrategy": {"totalNetworkBandwidth": "1G"},
                "resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}},
            },
            False,
        ),
    ],
)
def test_what_requests_it(spec: dict[str, Any], requested: bool) -> None:
    assert is_enabled(convert(spec, NodeSLOSpec)) is requested


def test_the_class_is_written_where_the_pod_has_its_cgroup(tmp_path: Path) -> None:
    node = HookedNode(tmp_path, TCNetworkQoS=True)
    pod = node.run_pod("batch", "BE")
    node.machine.write(f"/sys/fs/cgroup/net_cls/{pod.cgroup}/net_cls.classid", "0\n")
    node.rules = shaped()
    node.run_hooks()
    assert Path(node.layout.folder("net_cls", pod.cgroup), "net_cls.classid").read_text().strip() == str(0x10004)


def test_a_pod_with_a_cap_of_incoming_traffic_alone_counts_by_its_class() -> None:
    incoming = {"koordinator.sh/networkQOS": '{"ingressLimit": "10M"}'}
    assert net_class(running(annotations=incoming), shaped()) == net_class(running(), shaped())
