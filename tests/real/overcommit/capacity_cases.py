"""Cases of batch and mid capacity: configurations, reservations, states of nodes, reports and pods."""

from __future__ import annotations

import json
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from tests.real.overcommit.differences import (
    BARE_NODES,
    FUTURE_IS_DISTRUSTED,
    NEGATIVE_IS_ZERO,
    NO_BODY_DEGRADES,
    RATIO_ROUNDED,
    ROUNDED_EACH,
    UNMEASURED_BY_REQUEST,
    WRAPPED,
)
from tests.real.overcommit.node_case import NodeCase, NodeWords, PodOnNode, node_case, pod, report

_RECLAIMED: Final = report(reclaimable=("15", "30G"))
_LEFT_OVER: Final = {
    "kubernetes.io/batch-cpu": "777",
    "kubernetes.io/batch-memory": "1Gi",
    "kubernetes.io/mid-cpu": "3",
    "kubernetes.io/mid-memory": "1Gi",
}
_BY_MOST: Final = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}
_SIZES: Final = (("9", "11G"), ("4", "5G"))
"""What a pod requests, and what it uses."""


def online_pods(node: str) -> tuple[PodOnNode, ...]:
    """Two that were measured, of which one requests much more memory than it uses."""
    return (
        pod(f"{node}-web", ("20", "20G"), ("11", "11G"), quality="LS", priority="koord-prod"),
        pod(f"{node}-store", ("20", "40G"), ("22", "22G"), quality="LSR", priority="koord-prod"),
    )


def _policies() -> list[NodeCase]:
    strategies: dict[str, dict[str, object] | str] = {
        "policy-usage": {"cpuCalculatePolicy": "usage", "memoryCalculatePolicy": "usage"},
        "policy-cpu-max": {"cpuCalculatePolicy": "maxUsageRequest", "cpuReclaimThresholdPercent": 70},
        "policy-memory-request": {"memoryCalculatePolicy": "request", "memoryReclaimThresholdPercent": 80},
        "policy-memory-max": {"memoryCalculatePolicy": "maxUsageRequest"},
        "policy-cpu-request": {"cpuCalculatePolicy": "request"},
        "policy-unknown": {"cpuCalculatePolicy": "average", "memoryCalculatePolicy": "p95"},
        "threshold-zero": {"cpuReclaimThresholdPercent": 0, "memoryReclaimThresholdPercent": 0},
        "threshold-all": {"cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100},
        "threshold-above-all": {"cpuReclaimThresholdPercent": 150, "memoryReclaimThresholdPercent": 130},
        "threshold-odd": {"cpuReclaimThresholdPercent": 29, "memoryReclaimThresholdPercent": 57},
        "batch-limit": {"batchCPUThresholdPercent": 10, "batchMemoryThresholdPercent": 7},
        "batch-limit-zero": {"batchCPUThresholdPercent": 0, "batchMemoryThresholdPercent": 0},
        "annotation-off": {"enable": False},
        "annotation-not-json": '{"cpuReclaimThresholdPercent":',
        "annotation-wrong-type": '{"cpuReclaimThresholdPercent":"70"}',
        "annotation-empty": "",
        "annotation-unknown-field": {"cpuReclaimThresholdPercent": 50, "somethingElse": 1},
    }
    return [node_case(name, strategy=text, pods=online_pods(name)) for name, text in strategies.items()]


def _groups() -> list[NodeCase]:
    groups: dict[str, dict[str, str]] = {
        "group-none": {},
        "group-off": {"colocation": "off"},
        "group-tight": {"colocation": "tight"},
        "group-first-wins": {"colocation": "tight", "second": "yes"},
        "group-second": {"second": "yes"},
        "group-expression": {"colocation": "loose"},
        "group-invalid": {"colocation": "invalid"},
        "group-bad-selector": {"colocation": "bogus"},
        "label-cpu-ratio": {label_keys.CPU_RECLAIM_RATIO: "0.7"},
        "label-memory-ratio": {label_keys.MEMORY_RECLAIM_RATIO: "0.8"},
        "label-ratio-above-one": {label_keys.CPU_RECLAIM_RATIO: "1.5"},
        "label-ratio-zero": {label_keys.CPU_RECLAIM_RATIO: "0"},
        "label-ratio-bad": {label_keys.CPU_RECLAIM_RATIO: "much"},
    }
    cases = [node_case(name, labels=labels, pods=online_pods(name)) for name, labels in groups.items()]
    label = {label_keys.CPU_RECLAIM_RATIO: "0.29"}
    annotation = {"cpuReclaimThresholdPercent": 50}
    return [
        *cases,
        node_case("label-before-annotation", labels={label_keys.CPU_RECLAIM_RATIO: "0.9"}, strategy=annotation),
        node_case("annotation-before-group", labels={"colocation": "tight"}, strategy=annotation),
        node_case("annotation-on-in-group-off", labels={"colocation": "off"}, strategy={"enable": True}),
        node_case("label-ratio-rounded", labels=label, said=report(system=("1", "1G")), intended=[RATIO_ROUNDED]),
    ]


def _reservations() -> list[NodeCase]:
    documents = {
        "reserved-resources": json.dumps({"resources": {"cpu": "10", "memory": "20G"}}),
        "reserved-less-than-system": json.dumps({"resources": {"cpu": "3", "memory": "1G"}}),
        "reserved-cpus": json.dumps({"reservedCPUs": "0-19"}),
        "reserved-cpus-and-resources": json.dumps(
            {"reservedCPUs": "0-9,12", "resources": {"cpu": "30", "memory": "20G"}}
        ),
        "reserved-cpus-bad": json.dumps({"reservedCPUs": "0-x", "resources": {"cpu": "30"}}),
        "reserved-not-json": "{]",
        "reserved-cpus-only": json.dumps({"resources": {"cpu": "10"}, "applyPolicy": "ReservedCPUsOnly"}),
    }
    cases = [
        node_case(name, annotations={annotation_keys.NODE_RESERVATION: text}, pods=online_pods(name))
        for name, text in documents.items()
    ]
    by_request = {"memoryCalculatePolicy": "request"}
    kubelet = NodeWords(allocatable={"cpu": "88500m", "memory": "100G"})
    above = NodeWords(allocatable={"cpu": "110", "memory": "130G"})
    return [
        *cases,
        node_case("reserved-by-kubelet", words=kubelet, pods=online_pods("reserved-by-kubelet")),
        node_case("reserved-by-kubelet-and-requests", words=kubelet, strategy=by_request),
        node_case("allocatable-above-capacity", words=above),
    ]


def _nodes() -> list[NodeCase]:
    return [
        node_case("node-without-status", words=NodeWords(has_status=False)),
        node_case("node-without-allocatable", words=NodeWords(allocatable={})),
        node_case("node-without-memory", words=NodeWords(capacity={"cpu": "16"})),
        node_case("node-with-odd-amounts", words=NodeWords(capacity={"cpu": "15500m", "memory": "65123456Ki"})),
        node_case("node-with-leftovers", words=NodeWords(offers=_LEFT_OVER)),
        node_case("node-off-with-leftovers", words=NodeWords(offers=_LEFT_OVER), strategy={"enable": False}),
        node_case("node-silent-with-leftovers", words=NodeWords(offers=_LEFT_OVER), is_measured=False),
        node_case("node-unschedulable", words=NodeWords(spec={"unschedulable": True})),
        node_case("node-bare", words=NodeWords(is_bare=True)),
        node_case("node-bare-off", words=NodeWords(is_bare=True), labels={"colocation": "off"}, intended=[BARE_NODES]),
        node_case("node-huge", words=NodeWords(capacity={"cpu": "100k", "memory": "8Pi"})),
    ]


def _reports() -> list[NodeCase]:
    return [
        node_case("report-none", is_measured=False),
        node_case("report-without-time", age=None),
        node_case("report-stale", age=20 * 60),
        node_case("report-old-but-fresh", age=10 * 60),
        node_case("report-stale-by-annotation", age=3 * 60, strategy={"degradeTimeMinutes": 2}),
        node_case("report-fresh-by-annotation", age=30 * 60, strategy={"degradeTimeMinutes": 60}),
        node_case("report-without-body", said=report(has_body=False), intended=[NO_BODY_DEGRADES]),
        node_case("report-from-the-future", age=-3600, intended=[FUTURE_IS_DISTRUSTED]),
        node_case("report-without-cpu", said=report(usage={"memory": "50G"}, reclaimable=("15", "30G"))),
        node_case("report-without-system", said=report(system={})),
        node_case("report-negative", said=report(gone=[("koord-prod", ("-3", "-2G"))]), intended=[NEGATIVE_IS_ZERO]),
        node_case(
            "report-finer-than-milli",
            said=report(gone=[("koord-prod", ("1000500u", "2G"))], system=("7000400u", "12G")),
            intended=[ROUNDED_EACH],
        ),
        node_case("report-negative-system", said=report(system=("-3", "-2G"))),
        node_case("report-above-capacity", said=report(system=("300", "500G"))),
        *(
            node_case(
                f"host-{priority or 'none'}", said=report(hosts=[(priority, ("3", "5G"))], reclaimable=("50", "60G"))
            )
            for priority in ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
        ),
        *(
            node_case(
                f"gone-{priority or 'none'}", said=report(gone=[(priority, ("3", "5G")), ("koord-prod", ("1", "1G"))])
            )
            for priority in ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
        ),
    ]


def _kinds_of_pods() -> list[NodeCase]:
    kinds = {
        f"pod-{quality.lower() or 'plain'}-{priority or 'plain'}": (quality, priority)
        for quality in ("LSE", "LSR", "LS", "BE", "")
        for priority in ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
    }
    by_label = {label_keys.PRIORITY_CLASS: "koord-batch"}
    return [
        *(
            node_case(name, said=_RECLAIMED, pods=[pod(f"of-{name}", *_SIZES, quality=quality, priority=priority)])
            for name, (quality, priority) in kinds.items()
        ),
        node_case("pod-lse-max", pods=[pod("lse-max", *_SIZES, quality="LSE")], strategy=_BY_MOST),
        node_case("pod-class-by-label", pods=[pod("by-label", *_SIZES, labels=by_label)]),
    ]


def _pods() -> list[NodeCase]:
    phases = [
        pod(f"phase-{phase.lower()}", ("5", "6G"), ("2", "3G"), priority="koord-prod", phase=phase)
        for phase in ("Running", "Pending", "Succeeded", "Failed", "Unknown")
    ]
    batch = {"containers": [{"name": "main", "image": "image", "resources": _batch_requests()}]}
    whole = {"resources": {"requests": {"cpu": "7"}}}
    unmeasured = pod("unmeasured-max", ("8", "8G"), quality="LS")
    return [
        node_case("pod-phases", pods=phases),
        node_case("pod-unmeasured", pods=[pod("unmeasured", ("8", "8G"), quality="LS")]),
        node_case("pod-unmeasured-max", pods=[unmeasured], strategy=_BY_MOST, intended=[UNMEASURED_BY_REQUEST]),
        node_case("pod-without-requests", pods=[pod("no-requests", None, ("4", "5G"))], strategy=_BY_MOST),
        node_case("pod-of-batch-resources", pods=[pod("batch", None, ("4", "5G"), priority="koord-batch", spec=batch)]),
        node_case("pod-with-others", pods=[pod("with-others", ("2", "2G"), spec=_with_init_containers())]),
        node_case("pod-level-requests", pods=[pod("pod-level", ("2", "2G"), spec=whole)]),
    ]


def _batch_requests() -> dict[str, dict[str, str]]:
    amounts = {"kubernetes.io/batch-cpu": "5000", "kubernetes.io/batch-memory": "6G"}
    return {"requests": amounts, "limits": amounts}


def _with_init_containers() -> dict[str, object]:
    return {
        "initContainers": [
            {
                "name": "proxy",
                "image": "i",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "1", "memory": "1G"}},
            },
            {"name": "setup", "image": "i", "resources": {"requests": {"cpu": "5", "memory": "1G"}}},
        ]
    }


def _mid() -> list[NodeCase]:
    strategies: dict[str, dict[str, object]] = {
        "mid-default": {},
        "mid-unallocated": {"midUnallocatedPercent": 10, "midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20},
        "mid-all-unallocated": {"midUnallocatedPercent": 100},
        "mid-threshold-zero": {"midCPUThresholdPercent": 0, "midMemoryThresholdPercent": 0},
        "mid-static": {
            "midReclaimMode": "static",
            "midStaticCPUReservedPercent": 20,
            "midStaticMemoryReservedPercent": 33,
        },
        "mid-static-capped": {
            "midReclaimMode": "static",
            "midStaticCPUReservedPercent": 50,
            "midStaticMemoryReservedPercent": 50,
            "midCPUThresholdPercent": 7,
            "midMemoryThresholdPercent": 11,
        },
        "mid-static-by-default": {"midReclaimMode": "static"},
        "mid-unknown-mode": {"midReclaimMode": "other", "midUnallocatedPercent": 5},
    }
    label = {label_keys.MID_STATIC_CPU_RESERVED_RATIO: "0.4", label_keys.MID_STATIC_MEMORY_RESERVED_RATIO: "0.25"}
    return [
        *(
            node_case(name, strategy=strategy, said=_RECLAIMED, pods=online_pods(name))
            for name, strategy in strategies.items()
        ),
        node_case("mid-static-by-label", strategy={"midReclaimMode": "static"}, labels=label),
        node_case("mid-more-than-unused", said=report(usage=("95", "118G"), reclaimable=("50", "60G"))),
        node_case(
            "mid-overused-by-a-fraction",
            said=report(usage=("30", "123.5Gi"), reclaimable=("50", "60G")),
            intended=[WRAPPED],
        ),
        node_case("mid-overused", said=report(usage=("120", "130G"), reclaimable=("50", "60G"))),
    ]


def capacity_cases() -> list[NodeCase]:
    return [*_policies(), *_groups(), *_reservations(), *_nodes(), *_reports(), *_kinds_of_pods(), *_pods(), *_mid()]
