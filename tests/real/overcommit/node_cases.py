"""Cases of zones, ratios, devices, other schedulers, and the policies for agents; and the table of all node cases."""

from __future__ import annotations

import json
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from tests.real.overcommit.capacity_cases import capacity_cases, online_pods
from tests.real.overcommit.differences import (
    AMPLIFICATION_KEPT,
    BAD_BANDWIDTH_IGNORED,
    BANDWIDTH_INHERITED,
    BARE_NODES,
    BLOCKS_REPLACED,
    DEVICE_NAMES_REMOVED,
    DEVICES_WITHOUT_COLOCATION,
    NUMA_NODE_COUNTS_ONCE,
    UNMEASURED_BY_REQUEST,
    WHOLE_UNITS,
    ZONE_ORDER_KEPT,
    ZONES_BY_NAME,
    ZONES_ZEROED,
)
from tests.real.overcommit.node_case import NodeCase, NodeWords, cpu_model, device, node_case, pod, report, zones

_HALVES: Final = (("50", "62G"), ("50", "58G"))
_FAST: Final = zones(*_HALVES, annotations=cpu_model("X", hyper_thread=True))
_OFFERED: Final = {0: ("5", "1Gi"), 1: ("6", "2Gi")}
_BY_MOST: Final = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}
_OFF: Final = {"enable": False}
_CARD: Final = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "80Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}
_CARDS: Final = {"koordinator.sh/gpu": "100", **_CARD}
_NVIDIA: Final = {label_keys.GPU_VENDOR: "nvidia", label_keys.GPU_MODEL: "A100", label_keys.GPU_DRIVER_VERSION: "550.1"}


def _zones() -> list[NodeCase]:
    by_request = {"memoryCalculatePolicy": "request"}
    pinned = [
        pod("zone-pinned-one", ("5", "5G"), ("5", "5G"), quality="LSR", zones=[0]),
        pod("zone-pinned-other", ("30", "30G"), ("28", "28G"), quality="LS"),
    ]
    reserved = {annotation_keys.NODE_RESERVATION: json.dumps({"reservedCPUs": "0-30"})}
    halves = zones(*_HALVES)
    return [
        node_case("zone-halves", topology=halves, pods=pinned),
        node_case("zone-by-request", topology=halves, pods=online_pods("zone-by-request"), strategy=by_request),
        node_case("zone-by-most", topology=halves, pods=online_pods("zone-by-most"), strategy=_BY_MOST),
        node_case("zone-with-leftovers", topology=zones(*_HALVES, batch=_OFFERED)),
        node_case("zone-limited", topology=halves, strategy={"batchCPUThresholdPercent": 5}),
        node_case("zone-empty", topology=zones(("50", "62G"), None)),
        node_case("zone-none", topology=zones()),
        node_case("zone-reserved", topology=halves, annotations=reserved),
    ]


def _zones_that_differ() -> list[NodeCase]:
    spread = [
        pod("zone-spread-one", ("5", "5G"), ("3", "4G"), quality="LSE", zones=[0, 2]),
        pod("zone-spread-beyond", ("5", "5G"), ("3", "4G"), quality="LSR", zones=[2, 7]),
        pod("zone-spread-bad", ("7", "7G"), ("3", "4G"), quality="LS", zones="{]"),
        pod("zone-spread-batch", ("7", "7G"), ("3", "4G"), priority="koord-batch", zones=[1]),
    ]
    gone = report(gone=[("koord-prod", ("4", "3G"))], hosts=[("koord-prod", ("1", "1G"))])
    thirds = zones(("33", "40G"), ("33", "40G"), ("34", "40G"))
    turned = zones(("40", "62G"), ("60", "58G"), names=("node-1", "node-0"))
    on_one = [pod("zone-reversed-one", ("5", "5G"), ("5", "5G"), quality="LSR", zones=[0])]
    unmeasured = [pod("zone-unmeasured", ("8", "8G"), quality="LS", zones=[1])]
    halves, offered = zones(*_HALVES), zones(*_HALVES, batch=_OFFERED)
    of_request = [UNMEASURED_BY_REQUEST]
    twice = [pod("zone-twice-one", ("5", "5G"), ("5", "5G"), quality="LSR", zones=[0, 0])]
    unsorted = zones(*_HALVES)
    for zone in unsorted["zones"]:
        zone["resources"].reverse()
    return [
        node_case("zone-thirds", topology=thirds, pods=spread, said=gone, intended=[WHOLE_UNITS]),
        node_case("zone-reversed", topology=turned, pods=on_one, intended=[ZONES_BY_NAME]),
        node_case("zone-twice", topology=halves, pods=twice, intended=[NUMA_NODE_COUNTS_ONCE]),
        node_case("zone-unsorted", topology=unsorted, intended=[ZONE_ORDER_KEPT]),
        node_case("zone-unmeasured", topology=halves, pods=unmeasured, strategy=_BY_MOST, intended=of_request),
        node_case("zone-off", strategy=_OFF, topology=offered, intended=[ZONES_ZEROED]),
        node_case("zone-silent", age=3600, topology=offered, intended=[ZONES_ZEROED]),
    ]


def _normalizations() -> list[NodeCase]:
    on = {"ratio": "on"}
    models = {
        "normal-base": cpu_model("X"),
        "normal-threads": cpu_model("X", hyper_thread=True),
        "normal-turbo": cpu_model("X", turbo=True),
        "normal-both": cpu_model("X", hyper_thread=True, turbo=True),
        "normal-one": cpu_model("Y"),
        "normal-too-large": cpu_model("Y", hyper_thread=True, turbo=True),
        "normal-no-field": cpu_model("Y", turbo=True),
        "normal-unknown-model": cpu_model("W"),
        "normal-no-info": {},
        "normal-bad-info": {annotation_keys.CPU_BASIC_INFO: "{]"},
    }
    said = report(system=("1", "1G"))
    cases = [
        node_case(name, labels=on, topology=zones(*_HALVES, annotations=info), pods=online_pods(name), said=said)
        for name, info in models.items()
    ]
    other = zones(*_HALVES, annotations=cpu_model("W"))
    return [
        *cases,
        node_case("normal-no-topology", labels=on),
        node_case("normal-default", labels={"ratio": "default"}, topology=other),
    ]


def _normalizations_by_label() -> list[NodeCase]:
    on, enabled = {"ratio": "on"}, label_keys.CPU_NORMALIZATION_ENABLED
    old = {annotation_keys.CPU_NORMALIZATION_RATIO: "1.50"}
    return [
        node_case("normal-enabled-by-label", labels={enabled: "true"}, topology=_FAST),
        node_case("normal-disabled-by-label", labels={**on, enabled: "false"}, topology=_FAST, annotations=old),
        node_case("normal-bad-label", labels={**on, enabled: "perhaps"}, topology=_FAST, annotations=old),
        node_case("normal-without-colocation", labels=on, topology=_FAST, annotations=old, strategy=_OFF),
    ]


def _amplifications() -> list[NodeCase]:
    both, small = {"amplify": "both"}, {"amplify": "small"}
    old = {annotation_keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":9.00}'}
    return [
        node_case("amplify-both", labels=both),
        node_case("amplify-memory", labels={"amplify": "memory"}),
        node_case("amplify-with-normal", labels={**both, "ratio": "on"}, topology=_FAST),
        node_case("amplify-off", annotations=old),
        node_case("amplify-without-colocation", labels=both, annotations=old, strategy=_OFF),
        node_case("amplify-too-small", labels=small),
        node_case("amplify-too-small-kept", labels=small, annotations=old, intended=[AMPLIFICATION_KEPT]),
    ]


def _devices() -> list[NodeCase]:
    cards = ("gpu", True, _CARD)
    broken = ("gpu", False, _CARD)
    small = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"}
    network = ("rdma", True, {"koordinator.sh/rdma": "100"})
    ascend = (
        "gpu",
        True,
        {"huawei.com/npu-core": "20", "huawei.com/npu-cpu": "14", "koordinator.sh/gpu-memory": "64Gi"},
    )
    held = NodeWords(offers={**_CARDS, "koordinator.sh/rdma": "200", "huawei.com/npu-core": "5"})
    stale = NodeWords(offers=_CARDS)
    return [
        node_case("gpu-nvidia", devices=device(cards, cards, broken, labels=_NVIDIA)),
        node_case(
            "gpu-bare", words=NodeWords(is_bare=True), devices=device(cards, labels=_NVIDIA), intended=[BARE_NODES]
        ),
        node_case("gpu-without-vendor", devices=device(cards)),
        node_case("gpu-huawei", devices=device(ascend, ascend, labels={label_keys.GPU_VENDOR: "huawei"})),
        node_case("gpu-broken", devices=device(broken), words=stale),
        node_case("gpu-none", words=held),
        node_case("gpu-other-name", devices=device(("gpu", True, {**_CARD, "example.com/lanes": "4"}))),
        node_case("gpu-silent", devices=device(cards, network), is_measured=False),
        node_case("gpu-name-gone", devices=device(("gpu", True, small)), words=stale, intended=[DEVICE_NAMES_REMOVED]),
        node_case("gpu-off", devices=device(cards, network), strategy=_OFF, intended=[DEVICES_WITHOUT_COLOCATION]),
        node_case("gpu-none-off", words=held, strategy=_OFF, intended=[DEVICES_WITHOUT_COLOCATION]),
        node_case("rdma", devices=device(network, network, ("rdma", False, {}))),
        node_case(
            "rdma-broken", devices=device(("rdma", False, {})), words=NodeWords(offers={"koordinator.sh/rdma": "100"})
        ),
        node_case("fpga", devices=device(("fpga", True, {"koordinator.sh/fpga": "100"}))),
    ]


def _third_parties() -> list[NodeCase]:
    def taken(cpu: str, memory: str, priority: str) -> dict[str, object]:
        amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
        return {"name": "yarn", "priority": priority, "resources": amounts}

    key = annotation_keys.THIRD_PARTY_ALLOCATIONS
    some = [taken("1234", "3Gi", "koord-batch"), taken("99", "1Gi", "koord-mid"), taken("1", "1", "koord-batch")]
    documents = {
        "yarn": json.dumps({"allocations": some}),
        "yarn-takes-all": json.dumps({"allocations": [taken("999999", "999G", "koord-batch")]}),
        "yarn-not-json": "{]",
        "yarn-nothing": json.dumps({"allocations": []}),
    }
    origin = '{"resources":{"example.com/other":"3","kubernetes.io/batch-cpu":"1"}}'
    return [
        *(node_case(name, annotations={key: text}) for name, text in documents.items()),
        node_case("yarn-off", annotations={key: documents["yarn"]}, strategy={"enable": False}),
        node_case("yarn-origin-kept", annotations={annotation_keys.ORIGIN_EXTENDED_ALLOCATABLE: origin}),
        node_case("yarn-origin-bad", annotations={annotation_keys.ORIGIN_EXTENDED_ALLOCATABLE: "{]"}),
    ]


def _agents() -> list[NodeCase]:
    bandwidth = annotation_keys.NETWORK_BANDWIDTH
    strategies: dict[str, dict[str, object]] = {
        "collect-by-annotation": {"metricReportIntervalSeconds": 15, "metricAggregateDurationSeconds": 77},
        "collect-invalid": {"metricReportIntervalSeconds": 0},
        "collect-off": {"enable": False, "metricReportIntervalSeconds": 15},
        "collect-durations": {"metricAggregatePolicy": {"durations": ["1m", "90s"]}},
        "collect-memory": {"metricMemoryCollectPolicy": "usageWithPageCache"},
    }
    return [
        *(node_case(name, strategy=strategy) for name, strategy in strategies.items()),
        node_case("collect-by-group", labels={"colocation": "metrics"}),
        node_case("slo-web", labels={"slo": "web"}),
        node_case("slo-same", labels={"slo": "same"}),
        node_case("slo-bandwidth-group", labels={"slo": "network"}),
        node_case("slo-bandwidth-inherited", labels={"slo": "system"}, intended=[BANDWIDTH_INHERITED]),
        node_case("slo-blocks", labels={"slo": "blocks"}, intended=[BLOCKS_REPLACED]),
        node_case("slo-hosts", labels={"slo": "hosts"}),
        node_case("slo-bandwidth", annotations={bandwidth: "25M"}),
        node_case("slo-bandwidth-bad", annotations={bandwidth: "fast"}, intended=[BAD_BANDWIDTH_IGNORED]),
    ]


def node_cases() -> list[NodeCase]:
    cases = [
        *capacity_cases(),
        *_zones(),
        *_zones_that_differ(),
        *_normalizations(),
        *_normalizations_by_label(),
        *_amplifications(),
        *_devices(),
        *_third_parties(),
        *_agents(),
    ]
    assert len({case.name for case in cases}) == len(cases)
    return cases
