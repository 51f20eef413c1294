"""Completion indexes as intervals, compared with sets of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.controllers.job.indexes import Indexes

SETS = st.sets(st.integers(0, 30), max_size=20)


@given(SETS)
def test_what_is_written_is_read_again(indexes: set[int]) -> None:
    assert Indexes.parse(str(Indexes.of(indexes)), 31) == Indexes.of(indexes)


@given(SETS, SETS)
def test_union_and_intersection_are_those_of_sets(one: set[int], other: set[int]) -> None:
    assert Indexes.of(one) | Indexes.of(other) == Indexes.of(one | other)
    assert Indexes.of(one) & Indexes.of(other) == Indexes.of(one & other)


@given(SETS, st.integers(0, 40), st.integers(0, 40))
def test_the_first_absent_indexes(present: set[int], count: int, completions: int) -> None:
    absent = [index for index in range(completions) if index not in present][:count]
    assert Indexes.of(present).absent(count, completions) == absent


@pytest.mark.parametrize(("indexes", "text"), [((), ""), ((1,), "1"), ((1, 2), "1,2"), ((1, 3, 4, 5, 7), "1,3-5,7")])
def test_the_form_of_the_status(indexes: tuple[int, ...], text: str) -> None:
    assert str(Indexes.of(indexes)) == text


@pytest.mark.parametrize("text", ["x", "1-x", "-", "3-1", "9999999999", "5-", "-5"])
def test_what_is_no_interval_is_left_out(text: str) -> None:
    assert Indexes.parse(f"0,{text},2", 10) == Indexes.of((0, 2))


def test_indexes_beyond_the_completions_are_left_out() -> None:
    assert Indexes.parse("0-100000,200000", 3) == Indexes.of((0, 1, 2))
