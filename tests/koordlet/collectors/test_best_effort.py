"""All BestEffort pods together: usage, the real limit, requests."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.collectors.best_effort import BestEffortCollector, BestEffortUsage, batch_cpu_request
from koordinator.koordlet.collectors.scan import BestEffortReading
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import NO_LIMIT
from tests.koordlet.collectors.scans import SECOND, node_reading, scan


def reading(
    second: float, cpu: int, quota: int = NO_LIMIT, period: int = 100_000, cpus: tuple[int, ...] = (4,)
) -> BestEffortReading:
    return BestEffortReading(second, cpu, quota, period, cpus)


def collected(*readings: BestEffortReading | None) -> BestEffortUsage | None:
    """What the last of several rounds gives."""
    collector = BestEffortCollector(lifetime=20)
    usage = None
    for number, one in enumerate(readings):
        at = scan(number)
        at.best_effort = one
        usage = collector.collect(at, ())
    return usage


def batch_pod(requests: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> NodePod:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    document = {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}
    return NodePod(convert(document, Pod), "u", "c", ())


def test_usage_is_0_in_the_first_round_so_that_the_limit_is_known() -> None:
    assert collected(reading(1, 5 * SECOND)) == BestEffortUsage(usage=0, real_limit=4000, request=0)


def test_usage_in_whole_milli_cpu() -> None:
    usage = collected(reading(1, 0), reading(3, 3 * SECOND + 999_999))
    assert usage is not None
    assert usage.usage == 1500


def test_a_counter_that_begins_anew_is_no_usage() -> None:
    usage = collected(reading(1, 5 * SECOND), reading(2, SECOND))
    assert usage is not None
    assert usage.usage == 0


@pytest.mark.parametrize(
    ("quota", "period", "cpus", "limit"),
    [
        (NO_LIMIT, 100_000, (4,), 4000),
        (NO_LIMIT, 100_000, (4, 2, 3), 2000),
        (150_000, 100_000, (4,), 1500),
        (800_000, 100_000, (4,), 4000),
        (33_333, 100_000, (4,), 333),
        (50_000, 0, (4,), 4000),
    ],
)
def test_the_real_limit_is_the_narrower_of_cpusets_and_quota(
    quota: int, period: int, cpus: tuple[int, ...], limit: int
) -> None:
    usage = collected(reading(1, 0, quota, period, cpus))
    assert usage is not None
    assert usage.real_limit == limit


@pytest.mark.parametrize("absent", [None, reading(1, 0, cpus=())], ids=["no folder", "no cpuset, no CPUs known"])
def test_without_a_folder_there_is_nothing(absent: BestEffortReading | None) -> None:
    assert collected(absent) is None


def test_without_cpusets_all_cpus_are_the_limit() -> None:
    at = scan(1, node=node_reading(0, by_cpu={0: 0, 1: 0, 2: 0}))
    at.best_effort = reading(1, 0, cpus=())
    usage = BestEffortCollector(lifetime=20).collect(at, ())
    assert usage is not None
    assert usage.real_limit == 3000


def test_requests_of_pods_of_the_class_be_only() -> None:
    batch = {"kubernetes.io/batch-cpu": "500"}
    pods = [
        batch_pod(batch, {"koordinator.sh/qosClass": "BE"}),
        batch_pod(batch, {"koordinator.sh/qosClass": "LS"}),
        batch_pod(batch),
        batch_pod({}, {"koordinator.sh/qosClass": "BE"}),
    ]
    at = scan(1)
    at.best_effort = reading(1, 0)
    usage = BestEffortCollector(lifetime=20).collect(at, pods)
    assert usage is not None
    assert usage.request == 500


def test_sidecars_count_and_other_init_containers_do_not() -> None:
    resources = {"requests": {"kubernetes.io/batch-cpu": "200"}}
    init = [
        {"name": "i", "resources": resources},
        {"name": "s", "restartPolicy": "Always", "resources": resources},
        {"name": "n", "restartPolicy": "Always", "resources": {"requests": {"kubernetes.io/batch-cpu": "-100"}}},
    ]
    assert batch_cpu_request(batch_pod({"kubernetes.io/batch-cpu": "1k"}, initContainers=init).pod) == 1200
