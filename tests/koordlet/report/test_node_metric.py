"""The NodeMetric status out of samples: windows, cold starts, memory policies, and what is taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.nodemetric import NodeMetric, NodeMetricSpec
from koordinator.api.pod import Pod
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import Series
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.koordlet.report.node_metric import NodeMetricInput, as_merge_patch, node_metric_status
from koordinator.model.node_metric import CollectPolicy, collect_policy
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = round(NOW.timestamp() * 1000)
GIB = 1 << 30
GROUPS = (kinds.NODE, kinds.PODS, kinds.MEMORY, kinds.COLD_PAGES)


def cache() -> RingMetricCache:
    return RingMetricCache({group: Retention(1, 3600) for group in GROUPS}, 1 << 30)


def fill(store: RingMetricCache, samples: dict[Series, float], ages: range = range(60, -1, -1)) -> None:
    """The same samples each second; ``ages`` in seconds before now."""
    for age in ages:
        store.append(END - age * 1000, samples)


def pod(name: str, uid: str, **document: Any) -> NodePod:
    layout = CgroupLayout("/cg", CgroupVersion.V2, CgroupDriver.CGROUPFS)
    body = {"metadata": {"name": name, "namespace": "shop", "uid": uid}, **document}
    return node_pods([convert(body, Pod)], layout)[0]


def test_a_node_of_which_nothing_is_known_yet() -> None:
    status = node_metric_status(cache(), NodeMetricInput(CollectPolicy(), [pod("web", "u1")], numa_nodes=[0]), NOW)
    empty: dict[str, Any] = {"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}}
    windows = [{"usage": empty, "duration": duration} for duration in ("5m0s", "10m0s", "30m0s")]
    assert status == {
        "updateTime": "2026-03-01T12:00:00Z",
        "nodeMetric": {
            "nodeUsage": {},
            "systemUsage": {},
            "aggregatedNodeUsages": windows,
            "aggregatedSystemUsages": windows,
        },
        "podsMetric": [],
        "hostApplicationMetric": [],
        "prodReclaimableMetric": {"resource": {}},
    }


def test_amounts_are_cut_to_milli_cpu_and_bytes() -> None:
    store = cache()
    fill(store, {kinds.NODE_CPU_USAGE.series(): 1.5009, kinds.NODE_MEMORY_USAGE.series(): GIB + 0.9})
    status = node_metric_status(store, NodeMetricInput(CollectPolicy()), NOW)
    assert status["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "1500m", "memory": "1Gi"}}


def test_samples_before_the_window_do_not_count() -> None:
    store = cache()
    fill(store, {kinds.NODE_CPU_USAGE.series(): 8.0, kinds.NODE_MEMORY_USAGE.series(): 8.0}, range(400, 300, -1))
    fill(store, {kinds.NODE_CPU_USAGE.series(): 2.0, kinds.NODE_MEMORY_USAGE.series(): 2.0}, range(300, -1, -1))
    status = node_metric_status(store, NodeMetricInput(CollectPolicy()), NOW)
    assert status["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "2", "memory": "2"}}


@pytest.mark.parametrize(("seconds", "known"), [(149, False), (150, True)])
def test_a_window_is_said_nothing_of_before_half_of_it_has_samples(seconds: int, known: bool) -> None:
    store = cache()
    fill(store, {kinds.NODE_CPU_USAGE.series(): 1.0, kinds.NODE_MEMORY_USAGE.series(): 1.0}, range(seconds, -1, -1))
    policy = CollectPolicy(durations=(timedelta(minutes=5),))
    (window,) = node_metric_status(store, NodeMetricInput(policy), NOW)["nodeMetric"]["aggregatedNodeUsages"]
    one = {"resources": {"cpu": "1", "memory": "1"}}
    assert window["usage"] == dict.fromkeys(("avg", "p50", "p90", "p95", "p99"), one if known else {})


def test_percentiles() -> None:
    store = cache()
    for age in range(199, -1, -1):
        store.append(
            END - age * 1000,
            {kinds.SYS_CPU_USAGE.series(): 200.0 - age, kinds.SYS_MEMORY_USAGE.series(): 1000.0 * (200 - age)},
        )
    policy = CollectPolicy(durations=(timedelta(seconds=199),))
    (window,) = node_metric_status(store, NodeMetricInput(policy), NOW)["nodeMetric"]["aggregatedSystemUsages"]
    cpu = {name: usage["resources"]["cpu"] for name, usage in window["usage"].items()}
    assert cpu == {"avg": "100500m", "p50": "100", "p90": "180", "p95": "190", "p99": "198"}


def test_no_windows_are_reported_where_none_are_wanted() -> None:
    status = node_metric_status(cache(), NodeMetricInput(CollectPolicy(durations=None)), NOW)
    assert set(status["nodeMetric"]) == {"nodeUsage", "systemUsage"}


def test_pods_by_namespace_and_name_with_their_classes() -> None:
    store = cache()
    for kind in (kinds.POD_CPU_USAGE, kinds.POD_MEMORY_USAGE):
        fill(store, {kind.series(pod_uid=uid): 1.0 for uid in ("u1", "u2")})
    batch = pod(
        "job",
        "u2",
        metadata={"name": "job", "namespace": "shop", "uid": "u2", "labels": {"koordinator.sh/qosClass": "BE"}},
    )
    pods = [pod("web", "u1", spec={"priority": 9500}), batch, pod("new", "u3")]
    status = node_metric_status(store, NodeMetricInput(CollectPolicy(), pods), NOW)
    assert [(item["name"], item["priority"], item["qos"]) for item in status["podsMetric"]] == [
        ("job", "koord-batch", "BE"),
        ("web", "koord-prod", "BE"),
    ]


def test_numa_nodes_without_samples_are_left_out() -> None:
    store = cache()
    fill(
        store,
        {
            kinds.NODE_NUMA_CPU_USAGE.series(numa_node_id="1"): 2.0,
            kinds.NODE_NUMA_MEMORY_USAGE.series(numa_node_id="1"): 3.0,
        },
    )
    status = node_metric_status(store, NodeMetricInput(CollectPolicy(), numa_nodes=[1, 0]), NOW)
    assert status["nodeMetric"]["numaUsages"] == [
        {"numaNodeID": 1, "nodeUsage": {"resources": {"cpu": "2", "memory": "3"}}, "systemUsage": {}}
    ]


@pytest.mark.parametrize(
    ("policy", "has_cold_pages", "memory"),
    [
        ("usageWithoutPageCache", True, "1"),
        ("usageWithPageCache", False, "2"),
        ("usageWithHotPageCache", True, "3"),
        ("usageWithHotPageCache", False, "1"),
    ],
)
def test_which_memory_counts_as_used(policy: str, has_cold_pages: bool, memory: str) -> None:
    store = cache()
    application = HostApplicationSpec(name="db", priority="koord-prod", qos="LS")
    label = {"host_app_name": "db"}
    node = (kinds.NODE_CPU_USAGE, kinds.NODE_MEMORY_USAGE, kinds.NODE_MEMORY_USAGE_WITH_PAGE_CACHE)
    fill(store, {kind.series(): amount for kind, amount in zip(node, (5.0, 1.0, 2.0), strict=True)})
    fill(
        store,
        {
            kinds.NODE_MEMORY_WITH_HOT_PAGE_USAGE.series(): 3.0,
            kinds.HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE.series(**label): 3.0,
        },
    )
    fill(store, {kinds.HOST_APPLICATION_CPU_USAGE.series(**label): 5.0})
    fill(
        store,
        {
            kinds.HOST_APPLICATION_MEMORY_USAGE.series(**label): 1.0,
            kinds.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE.series(**label): 2.0,
        },
    )
    spec = convert({"metricCollectPolicy": {"nodeMemoryCollectPolicy": policy}}, NodeMetricSpec)
    given = NodeMetricInput(collect_policy(spec), host_applications=[application], has_cold_pages=has_cold_pages)
    status = node_metric_status(store, given, NOW)
    usage = {"resources": {"cpu": "5", "memory": memory}}
    assert status["nodeMetric"]["nodeUsage"] == usage
    assert status["hostApplicationMetric"] == [{"name": "db", "usage": usage, "priority": "koord-prod", "qos": "LS"}]


def test_what_two_parts_say_of_one_pod_is_together() -> None:
    store = cache()
    for kind in (kinds.POD_CPU_USAGE, kinds.POD_MEMORY_USAGE):
        fill(store, {kind.series(pod_uid=uid): 1.0 for uid in ("a", "b", "c")})
    said = [{"a": {"one": 1}}, {"a": {"two": 2}, "b": {"two": 3}, "gone": {"two": 4}}]
    given = NodeMetricInput(CollectPolicy(), [pod(uid, uid) for uid in "abc"], extensions=said)
    reports = node_metric_status(store, given, NOW)["podsMetric"]
    assert [each.get("extensions") for each in reports] == [
        {"Object": {"one": 1, "two": 2}},
        {"Object": {"two": 3}},
        None,
    ]


def test_the_patch_takes_back_what_is_not_known_any_more() -> None:
    status = node_metric_status(cache(), NodeMetricInput(CollectPolicy(durations=None)), NOW)
    patch = as_merge_patch(status)["status"]
    assert patch["prodPeakMetric"] is None
    assert patch["prodReclaimableMetric"] == {"resource": {"resources": None}}
    assert patch["nodeMetric"] == {
        "nodeUsage": {"resources": None, "devices": None},
        "systemUsage": {"resources": None, "devices": None},
        "aggregatedNodeUsages": None,
        "aggregatedSystemUsages": None,
        "numaUsages": None,
    }


def test_a_report_is_what_readers_decode() -> None:
    store = cache()
    fill(store, {kinds.NODE_CPU_USAGE.series(): 1.0, kinds.NODE_MEMORY_USAGE.series(): float(GIB)}, range(1800, -1, -1))
    status = node_metric_status(store, NodeMetricInput(CollectPolicy()), NOW)
    metric = convert({"metadata": {"name": "n"}, "status": status}, NodeMetric)
    info = metric.status.node_metric
    assert info is not None
    assert info.node_usage.resources["memory"].value == GIB
    assert [window.duration.total_seconds() for window in info.aggregated_node_usages] == [300, 600, 1800]
    assert metric.status.update_time == NOW
