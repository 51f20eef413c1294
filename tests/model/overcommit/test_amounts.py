"""Arithmetic of amounts: rounding, and the float products of the original."""

from __future__ import annotations

import pytest

from koordinator.api.quantity import Quantity
from koordinator.model.overcommit.amounts import Amounts, cpu_and_memory, fraction, is_different, scaled, share


@pytest.mark.parametrize(
    ("amount", "factor", "expected"),
    [
        (100_000, fraction(100 - 65), 35_000),
        (100, 0.29, 28),  # 28.999999999999996 in a float64
        (999_000, 1.11, 1_108_890),
        (120 * 10**9, fraction(-20), -24 * 10**9),
        (2**53 + 1, 1.0, 2**53),
        (5, float("inf"), 2**63 - 1),
        (7, 0.5, 3),
        (-7, 0.5, -3),
    ],
)
def test_products_are_cut_towards_zero(amount: int, factor: float, expected: int) -> None:
    assert scaled(amount, factor) == expected


@pytest.mark.parametrize(("amount", "parts", "expected"), [(2000, 3, 667), (1000, 2, 500), (1000, 1, 1000), (0, 4, 0)])
def test_shares_are_rounded_up(amount: int, parts: int, expected: int) -> None:
    assert share(amount, parts) == expected


def test_quantities_are_read_rounded_up() -> None:
    assert cpu_and_memory({"cpu": Quantity.parse("1500u"), "memory": Quantity.parse("1500m")}) == Amounts(2, 2)


@pytest.mark.parametrize(
    ("old", "new", "threshold", "expected"),
    [
        (None, None, 0.1, False),
        ("1", None, 0.1, True),
        (None, "1", 0.1, True),
        ("100", "110", 0.1, False),
        ("100", "111", 0.1, True),
        ("100", "89", 0.1, True),
        ("0", "1", 1.0, True),
        ("0", "0", 0.1, False),
    ],
)
def test_differences(old: str | None, new: str | None, threshold: float, expected: bool) -> None:
    read = [None if text is None else Quantity.parse(text) for text in (old, new)]

    assert is_different(read[0], read[1], threshold) is expected
