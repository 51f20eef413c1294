"""Lists of CPUs: what is read, what is refused, and that writing and reading agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.cpu_list import HIGHEST_CPU, format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("0", {0}),
        ("0-3,7", {0, 1, 2, 3, 7}),
        ("7,0-1,1", {0, 1, 7}),
        ("3-1", set()),
        (f"{HIGHEST_CPU}", {HIGHEST_CPU}),
    ],
)
def test_reads_the_kernels_lists(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "0,,1", "1-2-3", "0x3", "²", "1.0", " 1", "1\n", f"0-{HIGHEST_CPU + 1}", "9" * 40]
)
def test_refuses_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError):
        parse_cpu_list(text)


@pytest.mark.parametrize(
    ("cpus", "text"), [([], ""), ([5], "5"), ([1, 0], "0-1"), ([0, 1, 2, 4, 6, 7], "0-2,4,6-7"), ([3, 3], "3")]
)
def test_writes_neighbours_as_ranges(cpus: list[int], text: str) -> None:
    assert format_cpu_list(cpus) == text


@given(st.frozensets(st.integers(0, 300)))
def test_reads_back_what_it_writes(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus
