"""What pods request, in whichever resources they request it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.cluster.nodes.usage import Tier, profile_of


def _pod(*resources: dict[str, dict[str, str]], priority: int | None = None, **spec: Any) -> Pod:
    containers = [{"name": f"c{index}", "resources": part} for index, part in enumerate(resources)]
    document = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers, "priority": priority, **spec}}
    return convert(document, Pod)


def test_requests_and_limits_add_up_over_containers() -> None:
    part = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    profile = profile_of(_pod(part, part))
    assert (profile.cpu_request, profile.cpu_limit) == (1.0, 2.0)
    assert (profile.memory_request, profile.memory_limit) == (2 * 1024**3, 4 * 1024**3)


def test_one_container_without_a_limit_makes_the_pod_unlimited() -> None:
    profile = profile_of(_pod({"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}}))
    assert profile.cpu_limit == math.inf


def test_batch_resources_are_milli_cpu_and_bytes() -> None:
    amounts = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    profile = profile_of(_pod({"requests": amounts, "limits": amounts}, priority=5500))
    assert (profile.cpu_request, profile.cpu_limit, profile.memory_limit) == (1.5, 1.5, 1024**3)


def test_sidecars_count_and_other_init_containers_do_not() -> None:
    init = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "setup", "resources": {"requests": {"cpu": "8"}}},
    ]
    assert profile_of(_pod({"requests": {"cpu": "1"}}, initContainers=init)).cpu_request == 2.0


@pytest.mark.parametrize(
    ("priority", "resources", "tier"),
    [
        (9500, {"requests": {"cpu": "1"}}, Tier.LATENCY_SENSITIVE),
        (None, {"requests": {"cpu": "1"}}, Tier.LATENCY_SENSITIVE),
        (7500, {"requests": {"cpu": "1"}}, Tier.BATCH),
        (5500, {"requests": {"kubernetes.io/batch-cpu": "1000"}}, Tier.BATCH),
        (3500, {"requests": {"cpu": "1"}}, Tier.BATCH),
        (None, {}, Tier.BEST_EFFORT),
        (9500, {}, Tier.BEST_EFFORT),
    ],
)
def test_tier(priority: int | None, resources: dict[str, dict[str, str]], tier: Tier) -> None:
    assert profile_of(_pod(resources, priority=priority)).tier is tier
