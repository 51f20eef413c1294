from __future__ import annotations

import pytest

from koordinator.cluster.http.response import warning_headers


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("plain", '299 - "plain"'),
        ('a "quoted" \\ text', r'299 - "a \"quoted\" \\ text"'),
        ("two\r\nlines: injected", '299 - "two  lines: injected"'),
        ("bell\a, escape\x1b[31m", '299 - "bell , escape [31m"'),
        ("größer", '299 - "größer"'),
    ],
)
def test_a_text_is_one_line_of_printable_characters(text: str, header: str) -> None:
    assert warning_headers([text]) == [header]


def test_a_text_is_reported_once_and_nothing_is_not_told() -> None:
    assert warning_headers(["a", "", "\n", "b", "a"]) == ['299 - "a"', '299 - "b"']


def test_long_texts_stay_whole_while_there_is_capacity() -> None:
    assert [len(header) for header in warning_headers(["x" * 2000, "y" * 2000])] == [2008, 2008]


def test_texts_are_cut_when_there_is_no_capacity_for_all() -> None:
    headers = warning_headers([f"{number:04d}" + "x" * 1000 for number in range(5)])
    assert [len(header) for header in headers] == [264] * 5


def test_thousands_of_texts_come_to_an_end() -> None:
    headers = warning_headers(f"warning {number}" for number in range(100_000))
    assert sum(len(header) - 8 for header in headers) < 4096 + 256
