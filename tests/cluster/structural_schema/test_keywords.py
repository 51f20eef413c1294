"""Patterns, formats and how values are printed, where they differ from what Python would do."""

from __future__ import annotations

import pytest

from koordinator.api.string_formats import FORMATS
from koordinator.cluster.structural_schema.failure import go_json, shown
from koordinator.cluster.structural_schema.keywords import PatternError, matcher


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("^a$", "a\n", False),
        (r"^a\z", "a", True),
        (r"\d", "٤", False),
        (r"\w", "ä", False),
        ("[[:alpha:]]+", "ab", True),
        ("^[[:digit:]_]+$", "4_2", True),
        ("^[^[:space:]]+$", "a b", False),
        ("^[]a]+$", "]a", True),
        ("^[^]a]$", "b", True),
        ("[$]", "a$", True),
        (r"^\$", "$a", True),
        ("^[a[b]+$", "a[b", True),
        ("(?i)^ab$", "AB", True),
        ("(?P<name>a)b", "ab", True),
        ("(?<name>a)b", "ab", True),
        ("^[&&~|]+$", "&~|", True),
        ("^a{2,3}?$", "aaa", True),
    ],
)
def test_patterns_are_those_of_go(pattern: str, text: str, fits: bool) -> None:
    assert matcher(pattern)(text) == fits


@pytest.mark.parametrize(
    "pattern", ["(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "a**", "a{2}{3}", "[", "(", ")", "*", "a\\"]
)
def test_what_go_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="error parsing regexp"):
        matcher(pattern)


def test_a_pattern_that_goes_back_on_its_steps_elsewhere_is_quick() -> None:
    # Python's own engine would take longer than the universe has existed.
    assert not matcher(r"^(a+)+$")("a" * 100_000 + "b")


@pytest.mark.parametrize("pattern", ["a" * 70_000, "(x{0,900}y{0,900}){30}"])
def test_a_pattern_that_takes_too_much_memory_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"expression too large|invalid repeat count"):
        matcher(pattern)


def test_a_text_that_needs_more_states_than_there_is_memory_for_is_still_matched_right() -> None:
    # One state for each combination of the last 200 characters.
    fits = matcher("[01]*1[01]{200}$")
    text = "01" * 5_000
    assert fits(text + "1" + "0" * 200)
    assert not fits(text + "0" * 201)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (2.0, "2"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (1e6, "1e+06"),
        (1e-5, "1e-05"),
        (0.0, "0"),
        ('a"b\n', '"a\\"b\\n"'),
        (None, "null"),
        ({"b": 1.0, "a": "<"}, '{"a":"\\u003c","b":1}'),
    ],
)
def test_values_are_printed_as_go_prints_them(value: object, text: str) -> None:
    assert shown(value) == text


def test_json_of_go_has_whole_numbers() -> None:
    assert go_json([1.0, 1.5]) == "[1,1.5]"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("datetime", "2026-02-28T23:59:59.5+01:00", "2026-02-29T00:00:00Z"),
        ("date", "2024-02-29", "2026-W01-1"),
        ("duration", "1.5h", "h"),
        ("hostname", "example.com", "example..com"),
        ("uri", "urn:a:b", "http://a b"),
        ("cidr", "fe80::/10", "fe80::/129"),
        ("mac", "01-23-45-67-89-ab-cd-ef", "01:23-45:67:89:ab"),
        ("isbn10", "0-321-75104-3", "0321751044"),
        ("k8sshortname", "a" * 63, "a" * 64),
        ("byte", "aGk=", "aGk"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert (bool(FORMATS[name](good)), bool(FORMATS[name](bad))) == (True, False)
