"""Whether a kubelet sets memory.high, memory.min and memory.low of pods, by what its /configz shows."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.node.kubelet import kubelet_configuration


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, False),
        ({"memoryThrottlingFactor": 0.9}, False),
        ({"memoryThrottlingFactor": 0.9, "featureGates": {"MemoryQoS": True}}, True),
        ({"memoryThrottlingFactor": 0.9, "featureGates": {"Other": True}}, False),
        ({"memoryThrottlingFactor": 0.9, "featureGates": {"MemoryQoS": False}}, False),
        ({"memoryReservationPolicy": "None"}, False),
        ({"memoryReservationPolicy": "None", "memoryThrottlingFactor": 0.8}, True),
        ({"memoryReservationPolicy": "TieredReservation"}, True),
        ({"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": False}}, False),
        ({"featureGates": "nonsense"}, False),
    ],
    ids=[
        "nothing",
        "the default of Kubernetes 1.35",
        "1.35 with the gate",
        "1.35 with another gate",
        "1.35 without the gate",
        "the default of 1.37",
        "1.37 with a factor",
        "1.37 with a policy",
        "1.37 without the gate",
        "nonsense",
    ],
)
def test_whether_the_memory_of_pods_is_the_kubelets(document: dict[str, Any], expected: bool) -> None:
    assert kubelet_configuration(document).manages_memory is expected
