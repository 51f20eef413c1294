"""The load that a threshold allows, beside the original's comparison of percentages."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.plugins.load_aware.load_columns import NO_LIMIT, largest_load

WHOLES = st.integers(1, 64 << 40)


@given(st.integers(1, 200), WHOLES, st.integers(-3, 3))
def test_a_load_is_allowed_exactly_when_its_rounded_percentage_is(bound: int, whole: int, beside: int) -> None:
    largest = largest_load(bound, whole)
    load = max(largest + beside, 0)
    assert (math.floor(load / whole * 100 + 0.5) <= bound) == (load <= largest)


@given(st.integers(-5, 0), WHOLES)
def test_without_a_threshold_there_is_no_limit(bound: int, whole: int) -> None:
    assert largest_load(bound, whole) == NO_LIMIT
