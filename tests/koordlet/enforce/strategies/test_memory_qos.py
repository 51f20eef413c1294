"""Memory QoS: what each file gets, and from where."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.memory_qos import decide
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage
from koordinator.node.kernel_files import (
    KEPT_FILES,
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    MEMORY_OOM_GROUP,
    MEMORY_PRIORITY,
    MEMORY_USE_PRIORITY_OOM,
    MEMORY_WATERMARK_MIN_ADJUSTMENT,
    MEMORY_WATERMARK_RATIO,
    MEMORY_WATERMARK_SCALE,
    PAGE_CACHE_ENABLE,
    PAGE_CACHE_SIZE,
    PAGE_CACHE_SYNC,
    UNLIMITED,
    KernelFile,
    Target,
)
from tests.koordlet.enforce.strategies.qos_fixtures import GIB, LAYOUT, node, pod_usage, policy, snapshot


def pod(name: str = "web", qos: str = "LS", **given: Any) -> PodUsage:
    defaults: dict[str, Any] = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    return pod_usage(name, qos, **(defaults | given))


def annotated(**fields: Any) -> PodUsage:
    return pod(annotations={"koordinator.sh/memoryQOS": json.dumps(fields)})


def settings(*pods: PodUsage, **memory: Any) -> list[DesiredSetting]:
    strategy = {"lsClass": {"memoryQOS": {"enable": True, **memory}}}
    decided = decide(
        snapshot(policy=policy(resourceQOSStrategy=strategy), pods=pods, node=node(memory=8 * GIB)), LAYOUT
    )
    assert decided.settings is not None
    return list(decided.settings)


def values(found: list[DesiredSetting], file: KernelFile, folder: str) -> list[Any]:
    return [setting.value for setting in found if setting.target.file is file and setting.target.folder == folder]


def of(found: list[DesiredSetting], file: KernelFile, usage: PodUsage) -> tuple[list[Any], list[Any]]:
    """The pod's values, and those of its container."""
    return values(found, file, usage.pod.cgroup), values(found, file, usage.pod.containers[0].cgroup)


def test_protection_is_a_part_of_the_request_and_low_never_less_than_min() -> None:
    web = pod()
    found = settings(web, minLimitPercent=50, lowLimitPercent=25)
    assert of(found, MEMORY_MIN, web) == ([GIB // 2], [GIB // 2])
    assert of(found, MEMORY_LOW, web) == ([GIB // 2], [GIB // 2])


def test_a_container_that_has_ended_gets_nothing() -> None:
    """Its cgroup is gone: one that crash-loops must not be on the list of what is missing for ever."""
    web = pod()
    (container,) = web.pod.containers
    ended = web._replace(pod=replace(web.pod, containers=(replace(container, has_ended=True),)))
    found = settings(ended, minLimitPercent=50)
    assert of(found, MEMORY_MIN, ended) == ([GIB // 2], [])


@pytest.mark.parametrize(
    ("limits", "percent", "expected"),
    [
        ({"memory": "2Gi"}, 80, GIB + GIB * 80 // 100),
        ({}, 50, GIB + 7 * GIB * 50 // 100),
        ({"memory": "2Gi"}, 0, UNLIMITED),
    ],
    ids=["limit", "allocatable", "off"],
)
def test_throttling_begins_between_request_and_limit(limits: dict[str, str], percent: int, expected: int) -> None:
    web = pod(limits=limits)
    assert of(settings(web, throttlingPercent=percent), MEMORY_HIGH, web) == ([], [expected])


@pytest.mark.parametrize("name", ["batch", "free"])
def test_best_effort_pods_are_throttled_by_the_limit_of_their_own_memory(name: str) -> None:
    """A free pod is protected by nothing that it requests: all others go before it."""
    own = {f"kubernetes.io/{name}-memory": "2Gi"}
    job = pod(qos="BE", requests=own, limits=own)
    memory = {"throttlingPercent": 50, "minLimitPercent": 50, "lowLimitPercent": 50, "pageCacheLimitPercent": 50}
    strategy = {"beClass": {"memoryQOS": {"enable": True, **memory}}}
    given = snapshot(policy=policy(resourceQOSStrategy=strategy), pods=(job,), node=node(memory=8 * GIB))
    found = list(decide(given, LAYOUT).settings or ())
    protected, high = (GIB, 2 * GIB) if name == "batch" else (0, GIB)
    assert of(found, MEMORY_MIN, job) == of(found, MEMORY_LOW, job) == ([protected], [protected])
    assert of(found, MEMORY_HIGH, job) == ([], [high])
    assert of(found, PAGE_CACHE_SIZE, job) == ([GIB], [])


def test_early_reclaim_and_the_order_of_kills() -> None:
    web = pod()
    found = settings(
        web, wmarkRatio=95, wmarkScalePermill=20, wmarkMinAdj=-25, priorityEnable=1, priority=12, oomKillGroup=1
    )
    expected = {
        MEMORY_WATERMARK_RATIO: 95,
        MEMORY_WATERMARK_SCALE: 20,
        MEMORY_WATERMARK_MIN_ADJUSTMENT: -25,
        MEMORY_USE_PRIORITY_OOM: 1,
        MEMORY_PRIORITY: 12,
        MEMORY_OOM_GROUP: 1,
    }
    for file, value in expected.items():
        assert of(found, file, web) == ([value], [value]), file


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({"pageCacheLimitPercent": 10}, (2 * GIB // 10, 0, 1)),
        ({"pageCacheLimitSize": GIB, "pageCacheReclaimSync": True}, (GIB, 1, 1)),
        ({"pageCacheLimitSize": 3 * GIB}, (2 * GIB, 0, 1)),
        ({"pageCacheLimitSize": 0}, (0, None, 0)),
        ({"pageCacheLimitSize": GIB, "pageCacheEnable": False}, (GIB, 0, 0)),
        ({"pageCacheEnable": True}, (None, None, 1)),
        ({"pageCacheEnable": False}, (None, None, 0)),
        ({}, (None, None, None)),
    ],
)
def test_the_page_cache(memory: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    web = pod()
    found = settings(web, **memory)
    sizes = [of(found, file, web)[0] for file in (PAGE_CACHE_SIZE, PAGE_CACHE_SYNC, PAGE_CACHE_ENABLE)]
    assert sizes == [[] if value is None else [value] for value in expected]


def test_what_the_annotation_says_goes_before_the_class() -> None:
    web = annotated(minLimitPercent=10)
    found = settings(web, minLimitPercent=50, lowLimitPercent=50)
    assert of(found, MEMORY_MIN, web)[0] == [GIB // 10]
    assert of(found, MEMORY_LOW, web)[0] == [GIB // 2]
    assert {setting.priority for setting in found if setting.target.folder == web.pod.cgroup} == {Priority.POD}


def test_policy_none_takes_everything_back() -> None:
    web = annotated(policy="none")
    assert of(settings(web, minLimitPercent=50), MEMORY_MIN, web) == ([0], [0])


def test_policy_auto_is_what_is_recommended() -> None:
    web = annotated(policy="auto")
    assert of(settings(web), MEMORY_WATERMARK_RATIO, web) == ([95], [95])


@pytest.mark.parametrize("text", ["{", '{"minLimitPercent": -50}', '{"priority": 99}', '{"wmarkRatio": 101}'])
def test_an_annotation_that_cannot_be_used_is_as_none(text: str) -> None:
    web = pod(annotations={"koordinator.sh/memoryQOS": text})
    assert of(settings(web, minLimitPercent=50), MEMORY_MIN, web)[0] == [GIB // 2]


def test_a_class_of_kubernetes_is_protected_as_far_as_its_pods_are_and_all_pods_together() -> None:
    found = settings(pod("a"), pod("b"), minLimitPercent=50)
    assert values(found, MEMORY_MIN, LAYOUT.qos("Burstable")) == [GIB]
    assert values(found, MEMORY_MIN, LAYOUT.qos("Guaranteed")) == [GIB]


def test_without_the_nodes_memory_nothing_is_decided() -> None:
    given = snapshot(policy=policy(), pods=(pod(),), node=None)
    assert decide(given, LAYOUT).settings is None


def beside_kubelet(given: dict[Target, int], *pods: PodUsage, **memory: Any) -> list[DesiredSetting]:
    """With a kubelet that has given this."""
    strategy = {"lsClass": {"memoryQOS": {"enable": True, **memory}}}
    moment = snapshot(policy=policy(resourceQOSStrategy=strategy), pods=pods, node=node(memory=8 * GIB))
    decided = decide(moment, LAYOUT, given)
    assert decided.settings is not None
    return [setting for setting in decided.settings if setting.target.file in KEPT_FILES]


def test_where_nothing_is_throttled_or_protected_the_kubelets_values_are_left_alone() -> None:
    assert beside_kubelet({}, pod(), minLimitPercent=0, lowLimitPercent=0, throttlingPercent=0) == []


def test_where_nothing_is_throttled_or_protected_any_more_the_kubelets_values_return() -> None:
    web = pod()
    container = web.pod.containers[0].cgroup
    given = {Target(MEMORY_HIGH, container): 3 * GIB, Target(MEMORY_MIN, web.pod.cgroup): GIB}
    found = beside_kubelet(given, web, minLimitPercent=0, lowLimitPercent=0, throttlingPercent=0)
    assert {setting.target: setting.value for setting in found} == given
    assert {setting.priority for setting in found} == {Priority.RELEASE}


def test_what_is_throttled_and_protected_goes_before_the_kubelets_values() -> None:
    web = pod()
    container = web.pod.containers[0].cgroup
    given = {Target(MEMORY_HIGH, container): 3 * GIB, Target(MEMORY_MIN, container): GIB}
    found = beside_kubelet(given, web, minLimitPercent=50, throttlingPercent=50)
    assert of(found, MEMORY_HIGH, web)[1] == [GIB + GIB // 2]
    assert of(found, MEMORY_MIN, web)[1] == [GIB // 2]


@pytest.mark.parametrize(("summed_up", "expected"), [(GIB, GIB), (GIB // 4, GIB // 2)], ids=["more", "less"])
def test_a_qos_class_is_protected_no_less_than_the_kubelet_has_summed_up(summed_up: int, expected: int) -> None:
    folder = LAYOUT.qos("Burstable")
    found = beside_kubelet({Target(MEMORY_MIN, folder): summed_up}, pod(), minLimitPercent=50)
    assert values(found, MEMORY_MIN, folder) == [expected]


def test_what_the_kernel_does_not_have_is_not_desired_and_is_named_once() -> None:
    """Version 1 of cgroups lacks most files: a record of each, for each pod and container, would only cost."""
    memory = {"minLimitPercent": 10, "throttlingPercent": 80, "oomKillGroup": 1}
    strategy = {"lsClass": {"memoryQOS": {"enable": True, **memory}}}
    given = snapshot(policy=policy(resourceQOSStrategy=strategy), pods=(pod(),), node=node(memory=8 * GIB))
    found = decide(given, LAYOUT, absent=(MEMORY_MIN, MEMORY_HIGH))
    assert found.settings is not None
    files = {setting.target.file for setting in found.settings}
    assert MEMORY_OOM_GROUP in files
    assert not files & {MEMORY_MIN, MEMORY_HIGH}
    assert found.reason.endswith("; this kernel has no memory.min, memory.high")
