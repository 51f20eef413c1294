"""Amounts as people write them."""

from __future__ import annotations

import pytest

from koordinator.scheduler.explain.explainer import amount_of, amount_text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2500, "2.5 cores"),
        ("cpu", 1000, "1 core"),
        ("cpu", 1, "0.001 cores"),
        ("cpu", 0, "0 cores"),
        ("cpu", -500, "-0.5 cores"),
        ("memory", 1 << 30, "1Gi"),
        ("memory", 3 << 29, "1.5Gi"),
        ("memory", 1023, "1023 B"),
        ("memory", 0, "0 B"),
        ("memory", -(1 << 20), "-1Mi"),
        ("ephemeral-storage", 5 << 40, "5Ti"),
        ("hugepages-2Mi", 1 << 21, "2Mi"),
        ("kubernetes.io/batch-cpu", 1500, "1500m"),
        ("kubernetes.io/mid-cpu", 1500, "1500m"),
        ("kubernetes.io/batch-memory", 1 << 30, "1Gi"),
        ("koordinator.sh/gpu-core", 50, "50 %"),
        ("koordinator.sh/gpu-memory-ratio", 50, "50 %"),
        ("koordinator.sh/gpu-memory", 1 << 30, "1Gi"),
        ("pods", 110, "110 pods"),
        ("pods", 1, "1 pod"),
        ("example.com/gpu", 2, "2"),
    ],
)
def test_an_amount_is_in_the_unit_of_its_resource(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 6000, "6 cores of cpu"),
        ("memory", 1 << 30, "1Gi of memory"),
        ("kubernetes.io/batch-cpu", 1500, "1500m of kubernetes.io/batch-cpu"),
        ("example.com/gpu", 2, "2 example.com/gpu"),
    ],
)
def test_what_is_counted_is_counted_in_its_own_name(resource: str, amount: int, text: str) -> None:
    assert amount_of(resource, amount) == text
