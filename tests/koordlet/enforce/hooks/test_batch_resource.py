"""BatchResource and CPUNormalization: amounts of a pod become shares, quotas and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.enforce.hooks import batch_resource, cpu_normalization
from koordinator.koordlet.enforce.hooks.contexts import Change, PodContext
from koordinator.koordlet.enforce.hooks.cpu_normalization import normalized
from tests.koordlet.enforce.hooks.hook_fixtures import BATCH, GIB, rules, running, starting, status
from tests.koordlet.enforce.strategies.qos_fixtures import suppression

SPEC = "node.koordinator.sh/extended-resource-spec"


def values(change: Change | None) -> tuple[Any, Any, Any] | None:
    return None if change is None else (change.cpu_shares, change.cpu_quota, change.memory_limit)


def containers(*resources: dict[str, str]) -> dict[str, Any]:
    return {
        "containers": [
            {"name": f"c{number}", "resources": {"requests": each, "limits": each}}
            for number, each in enumerate(resources)
        ]
    }


def test_batch_resources_are_limits_of_the_pod_and_the_container() -> None:
    pod = running(qos="BE", resources=BATCH)
    assert values(batch_resource.pod(pod, rules())) == (512, 50_000, GIB)
    assert values(batch_resource.container(pod, pod.containers[0], rules())) == (512, 50_000, GIB)


def test_a_pod_has_the_sum_of_its_containers() -> None:
    pod = running(qos="BE", spec=containers(BATCH, BATCH))
    assert values(batch_resource.pod(pod, rules())) == (1024, 100_000, 2 * GIB)


def test_one_container_without_a_limit_leaves_the_pod_without() -> None:
    for other in ({}, {"kubernetes.io/batch-cpu": "0", "kubernetes.io/batch-memory": "0"}):
        pod = running(qos="BE", spec=containers(BATCH, other))
        assert values(batch_resource.pod(pod, rules())) == (512, -1, -1)


def test_a_sidecar_counts() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": BATCH, "limits": BATCH}}
    pod = running(qos="BE", spec=containers(BATCH) | {"initContainers": [sidecar, {"name": "i"}]})
    assert values(batch_resource.pod(pod, rules())) == (1024, 100_000, 2 * GIB)


def test_a_starting_pod_says_it_in_its_annotation() -> None:
    text = (
        '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1k"}}}}'
    )
    pod = starting("BE", **{SPEC: text})
    assert values(batch_resource.pod(pod, rules())) == (512, 100_000, -1)


@pytest.mark.parametrize("text", ["{", '{"containers":{}}', "{}"])
def test_a_pod_without_batch_resources_keeps_what_it_has(text: str) -> None:
    assert batch_resource.pod(starting("BE", **{SPEC: text}), rules()) is None


def test_other_classes_keep_what_they_have() -> None:
    assert batch_resource.pod(running(qos="LS", resources=BATCH), rules()) is None


def test_pods_have_no_quota_while_the_class_has_one() -> None:
    pod = running(qos="BE", resources=BATCH)
    by_quota = suppression(cpuSuppressPolicy="cfsQuota")
    assert values(batch_resource.pod(pod, rules(policy=by_quota))) == (512, -1, GIB)
    assert values(batch_resource.pod(pod, rules(policy=by_quota, is_suppression_on=False))) == (512, 50_000, GIB)


def test_when_it_is_off_pods_have_what_kubelet_gives_them() -> None:
    pod = running(qos="BE", resources=BATCH)
    assert values(batch_resource.release_pod(pod, rules())) == (2, -1, -1)
    assert batch_resource.release_pod(running(qos="BE"), rules()) is None


def quota(pod: PodContext, ratio: float | None) -> int | None:
    change = cpu_normalization.container(pod, pod.containers[0], rules(normalization_ratio=ratio))
    return None if change is None else change.cpu_quota


def test_a_limit_is_divided_by_what_a_core_is_worth() -> None:
    limited = {"cpu": "1", "memory": "1Gi"}
    assert quota(running(qos="LS", resources=limited), 1.5) == 66_667
    assert quota(running(qos="LS", resources=limited), None) == 100_000
    assert quota(running(qos="LS"), 1.5) is None
    assert quota(running(qos="LSR", resources=limited), 1.5) is None
    assert quota(running(qos="", resources=limited, annotations=status(cpuset="1")), 1.5) is None


def test_batch_pods_are_normalised_as_well() -> None:
    pod = running(qos="BE", resources=BATCH)
    assert values(batch_resource.pod(pod, rules(normalization_ratio=1.2))) == (512, 41_667, GIB)


def test_a_normalised_quota_is_one_that_the_kernel_takes() -> None:
    pod = running(qos="BE", resources={"kubernetes.io/batch-cpu": "5", "kubernetes.io/batch-memory": "1Gi"})
    assert values(batch_resource.pod(pod, rules(normalization_ratio=1.5))) == (5, 1000, GIB)


@given(st.one_of(st.just(-1), st.integers(1000, 10**9)), st.floats(0.01, 5))
def test_a_normalised_quota_is_never_more_and_never_too_little(limit: int, ratio: float) -> None:
    found = normalized(limit, ratio)
    assert found <= limit
    assert found * max(ratio, 1.0) >= limit - 1 or limit <= 0


def test_a_free_pod_is_limited_and_runs_after_all_batch_pods() -> None:
    free = {"kubernetes.io/free-cpu": "500", "kubernetes.io/free-memory": "1Gi"}
    pod = running(qos="BE", resources=free)
    assert values(batch_resource.pod(pod, rules())) == (2, 50_000, GIB)
    assert values(batch_resource.container(pod, pod.containers[0], rules())) == (2, 50_000, GIB)
