"""Amounts as people write them."""

from __future__ import annotations

import pytest

from koordinator.scheduler.explain.amounts import amount_text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2500, "2.5"),
        ("cpu", 1, "0.001"),
        ("cpu", -500, "-0.5"),
        ("memory", 1 << 30, "1Gi"),
        ("memory", 3 << 29, "1.5Gi"),
        ("memory", 1023, "1023"),
        ("memory", -(1 << 20), "-1Mi"),
        ("ephemeral-storage", 5 << 40, "5Ti"),
        ("hugepages-2Mi", 1 << 21, "2Mi"),
        ("kubernetes.io/batch-cpu", 1500, "1500"),
        ("kubernetes.io/batch-memory", 1 << 30, "1Gi"),
        ("example.com/gpu", 2, "2"),
    ],
)
def test_an_amount_is_in_the_unit_of_its_resource(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text
