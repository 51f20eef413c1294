"""Expected usage of pods, in the original's numbers."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.api.priority import priority_class_with_default
from koordinator.scheduler.plugins.load_aware.pod_load import estimate_pod

FACTORS = {"cpu": 85, "memory": 70}
MEBIBYTE = 2**20
PROD, BATCH, MID, FREE = 9500, 5500, 7500, 3500

CASES: dict[str, tuple[int | None, dict[str, str], dict[str, str], dict[str, int]]] = {
    "requests": (PROD, {"cpu": "4", "memory": "1000Mi"}, {}, {"cpu": 3400, "memory": 700 * MEBIBYTE}),
    "the larger of limit and request": (PROD, {"cpu": "1"}, {"cpu": "4"}, {"cpu": 3400, "memory": 200 * MEBIBYTE}),
    "never above the limit": (PROD, {"cpu": "4"}, {"cpu": "1"}, {"cpu": 1000, "memory": 200 * MEBIBYTE}),
    "half is rounded up": (PROD, {"cpu": "10m"}, {}, {"cpu": 9, "memory": 200 * MEBIBYTE}),
    "nothing asked for": (PROD, {}, {}, {"cpu": 250, "memory": 200 * MEBIBYTE}),
    "a class of no band reads the plain names": (0, {"cpu": "1"}, {}, {"cpu": 850, "memory": 200 * MEBIBYTE}),
    "batch": (
        BATCH,
        {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "100Mi"},
        {},
        {"cpu": 1700, "memory": 70 * MEBIBYTE},
    ),
    "batch without requests": (BATCH, {"cpu": "8"}, {}, {"cpu": 250, "memory": 200 * MEBIBYTE}),
    "mid without requests has no default": (MID, {}, {}, {"cpu": 0, "memory": 0}),
    "free does not count native resources": (FREE, {"cpu": "8"}, {}, {"cpu": 0, "memory": 0}),
    "free": (
        FREE,
        {"kubernetes.io/free-cpu": "1000", "kubernetes.io/free-memory": "100Mi"},
        {},
        {"cpu": 850, "memory": 70 * MEBIBYTE},
    ),
}


def pod(priority: int | None, requests: dict[str, str], limits: dict[str, str]) -> Pod:
    resources: dict[str, Any] = {"requests": requests, "limits": limits}
    return convert({"spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]}}, Pod)


def estimated(of: Pod, factors: dict[str, int]) -> dict[str, int]:
    return estimate_pod(of, factors, priority_class_with_default(of))


@pytest.mark.parametrize("case", CASES)
def test_estimate(case: str) -> None:
    priority, requests, limits, expected = CASES[case]
    assert estimated(pod(priority, requests, limits), FACTORS) == expected


def test_other_resources_have_no_default() -> None:
    assert estimated(pod(PROD, {}, {}), {"example.com/widget": 50}) == {"example.com/widget": 0}
